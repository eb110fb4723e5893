"""How `ab --python` holds a user's outputs against others, without PyTorch."""

import math

import pytest

from baselines.pytorch import ab_outputs
from baselines.pytorch.errors import Unsupported


def test_what_a_function_may_return():
    digest, found = ab_outputs.contents({"a": [1, 2.5], "b": (["text", None], True)})
    assert found == [("shape (2,)", [1, 2.5]), ("'text'", []), ("None", []), ("shape (1,)", [1])]
    assert digest != ab_outputs.contents({"a": [1, math.nextafter(2.5, 3)], "b": (["text", None], True)})[0]
    with pytest.raises(Unsupported, match="object"):
        ab_outputs.contents([object()])


def test_arrays_and_tensors():
    halves = pytest.importorskip("numpy").arange(6, dtype="float16").reshape(2, 3)
    assert ab_outputs.read(halves.T)[0] == "shape (3, 2)" and ab_outputs.read(halves.T)[2] == [0, 3, 1, 4, 2, 5]
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    assert ab_outputs.read(tensor.T) == ("shape (3, 2)", bytes(tensor.T.contiguous().view(torch.uint8).flatten().tolist()), [0, 3, 1, 4, 2, 5])
    assert len(ab_outputs.read(torch.zeros(3 * ab_outputs.MOST_VALUES))[2]) == ab_outputs.MOST_VALUES


def test_distances():
    assert ab_outputs.errors([3, 4.5], [3, 4])["l2"] == pytest.approx(0.1)
    odd = [math.inf, math.nan, 1]
    assert ab_outputs.errors(odd, odd) == {"max": 0, "l2": 0}
    assert ab_outputs.errors([math.nan, 1], [1, 1])["l2"] is None and ab_outputs.errors([1], [0])["l2"] is None


def test_the_old_side_writes_what_the_new_one_is_held_to(tmp_path):
    kept = str(tmp_path / "kept")
    ab_outputs.Judge([2.0], None, (), kept, is_old=True)
    ab_outputs.Judge([3.0], None, (), kept, is_old=True)  # in a later pass
    judge = ab_outputs.Judge([2.5], None, (), kept, is_old=False)
    assert judge([2.5])["errors"][0]["l2"] == 0.25 and "shape" in judge([2.5, 1])["wrong"]
    assert ab_outputs.Judge([2.5], lambda x: [x], (5.0,), kept, is_old=False)([2.5])["errors"][0]["l2"] == 0.5
