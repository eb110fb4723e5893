"""Networks held to their PyTorch implementations on random weights: needs PyTorch (any), 4 GB of disk and 16 GB of memory, for sd15 diffusers;
else skipped. On the GPU where there is one, else on the host."""

import os
import subprocess
from pathlib import Path

import pytest

try:
    import torch
    from safetensors.torch import load_file, save_file

    from baselines.pytorch import networks
except ImportError:
    torch = None
try:
    from diffusers import UNet2DConditionModel
except ImportError:
    UNet2DConditionModel = None

PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
pytestmark = [pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program"),
              pytest.mark.skipif(torch is None, reason="needs PyTorch")]
LIMITS = {"fp32": 1e-5, "bf16": 2e-2}  # relative L2


def random_network(name):
    torch.manual_seed(0)
    network = (UNet2DConditionModel(cross_attention_dim=768, attention_head_dim=8) if name == "sd15" else networks.build(name)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return network


def inputs_of(name, height, width):
    if name == "sd15":
        return {"x": torch.randn(2, 4, height, width), "timesteps": torch.tensor([17.0, 800.0]), "encoder_hidden_states": torch.randn(2, 77, 768)}
    if name == "adm64":
        return {"x": torch.randn(2, 3, height, width), "timesteps": torch.tensor([17.0, 800.0]), "labels": torch.tensor([3, 999])}
    return {"x": torch.randn(2, 3, height, width) * 2, "sigma": torch.tensor([0.2, 5.0]), "labels": torch.tensor([3, 9])}


@pytest.mark.parametrize("name, height, width", [("edm-cifar", 32, 32), ("edm-cifar", 12, 44), ("adm64", 64, 64), ("adm64", 40, 24),
                                                 ("sd15", 16, 24)])
def test_forward_is_what_pytorch_computes(tmp_path, name, height, width):
    if name == "sd15" and UNet2DConditionModel is None:
        pytest.skip("needs diffusers")
    network, inputs = random_network(name), inputs_of(name, height, width)
    with torch.no_grad():
        x, level, condition = inputs.values()
        if name == "sd15":
            expected = network(x, level, condition).sample
        else:
            expected = network(x, level, torch.eye(network.configuration.classes)[condition] if network.one_hot else condition)
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, tmp_path / "weights.safetensors")
    save_file(inputs, tmp_path / "in.safetensors")
    for dtype, limit in LIMITS.items():
        result = subprocess.run([PROGRAM, "forward", name, "--dtype", dtype, "--weights", tmp_path / "weights.safetensors", "--input",
                                 tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors"], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        output = load_file(tmp_path / "out.safetensors")["output"]
        assert (output - expected).norm() < limit * expected.norm(), dtype
