"""What the tests of noisefloor.torch.patch share: import it first. Skips them where PyTorch or diffusers is not installed."""

import collections

import built  # noqa: F401 - first
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


@pytest.fixture(autouse=True)
def no_gradients():
    """Imported, it is one of the module's own."""
    torch.manual_seed(3)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def off(got, wanted):
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


class Copies(TorchDispatchMode):
    """Counts calls of the dispatcher by their names."""

    def __init__(self):
        super().__init__()
        self.calls = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls[str(function).split(".")[1] if str(function).startswith("aten") else str(function)] += 1
        return function(*args, **kwargs or {})
