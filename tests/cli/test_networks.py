"""Networks held to their PyTorch implementations on random weights: needs PyTorch (any), 6 GB of disk and 16 GB of memory, for Stable Diffusion
diffusers; else skipped. On the GPU where there is one, else on the host."""

import subprocess

import pytest

from tests.cli.program import PROGRAM, needs_program

try:
    import torch
    from safetensors.torch import load_file, save_file

    from baselines.pytorch import networks
except ImportError:
    torch = None
try:
    from diffusers import AutoencoderKL, AutoencoderKLTemporalDecoder

    from tests.bench.pipeline import diffusers_unet

    DIFFUSERS = {"sd15": diffusers_unet.SD15, "sdxl": diffusers_unet.SDXL, "svd": diffusers_unet.SVD}
    WIDTH = {"block_out_channels": (128, 256, 512, 512), "down_block_types": ("DownEncoderBlock2D",) * 4, "layers_per_block": 2}
    IMAGES = {**WIDTH, "up_block_types": ("UpDecoderBlock2D",) * 4}
    DECODERS = {"sd-vae": lambda: AutoencoderKL(**IMAGES, scaling_factor=0.18215), "sdxl-vae": lambda: AutoencoderKL(**IMAGES, scaling_factor=0.13025),
                "svd-vae": lambda: AutoencoderKLTemporalDecoder(**WIDTH)}
except ImportError:
    DIFFUSERS, DECODERS = {}, {}

pytestmark = [needs_program, pytest.mark.skipif(torch is None, reason="needs PyTorch")]
LIMITS = {"fp32": 1e-5, "bf16": 2e-2}  # relative L2


def random_network(name):
    torch.manual_seed(0)
    network = (diffusers_unet.build(DIFFUSERS[name]) if name in DIFFUSERS else DECODERS[name]() if name in DECODERS else networks.build(name)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.2)
            if name in DIFFUSERS:
                parameter.copy_(parameter.half())  # as their files are
    return network


def inputs_of(name, height, width):
    if name == "svd":
        return diffusers_unet.video_inputs_of(DIFFUSERS[name], 5, height, width)
    if name in DIFFUSERS:
        return diffusers_unet.inputs_of(DIFFUSERS[name], height, width, 77)
    if name in DECODERS:  # latents; of two videos of three frames
        return {"x": torch.randn((2, 3, 4, height, width) if name == "svd-vae" else (2, 4, height, width))}
    if name == "adm64":
        return {"x": torch.randn(2, 3, height, width), "timesteps": torch.tensor([17.0, 800.0]), "labels": torch.tensor([3, 999])}
    if name == "unetcu":
        return {"x": torch.randn(2, 3, height, width), "timesteps": torch.tensor([17.0, 800.0])}
    if name == "mnist-unet":
        return {"x": torch.randn(2, 1, height, width) * 2, "sigma": torch.tensor([0.2, 5.0]), "labels": torch.tensor([3, 9])}
    shape = (2, 5, 1, height, width) if name == "moving-digits" else (2, 3, height, width)
    return {"x": torch.randn(shape) * 2, "sigma": torch.tensor([0.2, 5.0]), "labels": torch.tensor([3, 9])}


def decoded(network, x):
    latents = x / network.config.scaling_factor
    if x.dim() == 4:
        return network.decode(latents).sample
    return network.decode(latents.flatten(0, 1), num_frames=x.shape[1]).sample.unflatten(0, x.shape[:2])


@pytest.mark.parametrize("name, height, width", [("edm-cifar", 32, 32), ("edm-cifar", 12, 44), ("adm64", 64, 64), ("adm64", 40, 24),
                                                 ("moving-digits", 16, 16), ("moving-digits", 8, 20),
                                                 ("mnist-unet", 32, 32), ("mnist-unet", 12, 20), ("unetcu", 64, 64), ("unetcu", 24, 40),
                                                 ("sd15", 16, 24), ("sdxl", 16, 12), ("svd", 8, 16),
                                                 ("sd-vae", 7, 11), ("sdxl-vae", 7, 11), ("svd-vae", 5, 7)])
def test_forward_is_what_pytorch_computes(tmp_path, name, height, width):
    if name not in {*DIFFUSERS, *DECODERS, "edm-cifar", "adm64", "moving-digits", "mnist-unet", "unetcu"}:
        pytest.skip("needs diffusers")
    network, inputs = random_network(name), inputs_of(name, height, width)
    with torch.no_grad():
        if name in DIFFUSERS:
            expected = diffusers_unet.call(network, inputs)
        elif name in DECODERS:
            expected = decoded(network, inputs["x"])
        else:
            x, level, *condition = inputs.values()
            expected = network(x, level, *(torch.eye(10)[labels] if network.one_hot else labels for labels in condition))
    save_file({key: (value.half() if name in DIFFUSERS else value).contiguous() for key, value in network.state_dict().items()},
              tmp_path / "weights.safetensors")
    del network  # of up to 10 GB
    save_file(inputs, tmp_path / "in.safetensors")
    for dtype, limit in LIMITS.items():
        result = subprocess.run([PROGRAM, "forward", name, "--dtype", dtype, "--weights", tmp_path / "weights.safetensors", "--input",
                                 tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors"], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        output = load_file(tmp_path / "out.safetensors")["output"]
        limit = min(limit, 1e-2) if name in DECODERS else limit  # rounding the weights alone moves pictures by 0.7e-2
        assert (output - expected).norm() < limit * expected.norm(), dtype
