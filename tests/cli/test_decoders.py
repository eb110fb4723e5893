"""Decoders of latents held to diffusers' AutoencoderKL and AutoencoderKLTemporalDecoder on random weights, at full width: needs PyTorch and diffusers; else skipped."""

import subprocess

import pytest

from tests.cli.program import PROGRAM, needs_program

try:
    import torch
    from diffusers import AutoencoderKL, AutoencoderKLTemporalDecoder
    from safetensors.torch import load_file, save_file
except ImportError:
    AutoencoderKL = None

pytestmark = [needs_program, pytest.mark.skipif(AutoencoderKL is None, reason="needs PyTorch and diffusers")]
SCALES = {"sd-vae": 0.18215, "sdxl-vae": 0.13025}


def random_decoder(kind=AutoencoderKL, **more):
    torch.manual_seed(0)
    network = kind(block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * 4, layers_per_block=2, **more).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return network


def error_of(output, expected):
    return ((output - expected).norm() / expected.norm()).item()


def test_pictures_are_what_diffusers_decodes(tmp_path):
    """In bf16 at most as far off as PyTorch's own run in bf16: rounded weights alone are 0.7e-2 of it."""
    network, x = random_decoder(up_block_types=("UpDecoderBlock2D",) * 4), torch.randn(2, 4, 7, 11)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    save_file({"x": x}, tmp_path / "in.safetensors")
    with torch.no_grad():
        expected = {name: network.decode(x / scale).sample for name, scale in SCALES.items()}
        rounded = network.bfloat16().decode((x / SCALES["sd-vae"]).bfloat16()).sample.float()
    limits = {"fp32": 1e-5, "bf16": error_of(rounded, expected["sd-vae"])}
    for name, dtype in (("sd-vae", "fp32"), ("sd-vae", "bf16"), ("sdxl-vae", "fp32")):
        hold(tmp_path, name, dtype, expected[name], limits[dtype])


def test_videos_are_what_diffusers_decodes(tmp_path):
    """Two videos of three frames, all at once."""
    network, x = random_decoder(AutoencoderKLTemporalDecoder), torch.randn(2, 3, 4, 5, 7)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    save_file({"x": x}, tmp_path / "in.safetensors")
    latents = x.flatten(0, 1) / network.config.scaling_factor
    with torch.no_grad():
        expected = network.decode(latents, num_frames=3).sample.unflatten(0, (2, 3))
        rounded = network.bfloat16().decode(latents.bfloat16(), num_frames=3).sample.float().unflatten(0, (2, 3))
    hold(tmp_path, "svd-vae", "fp32", expected, 1e-5)
    hold(tmp_path, "svd-vae", "bf16", expected, error_of(rounded, expected))


def hold(folder, name, dtype, expected, limit):
    result = subprocess.run([PROGRAM, "forward", name, "--dtype", dtype, "--weights", folder / "weights.safetensors", "--input",
                             folder / "in.safetensors", "--output", folder / "out.safetensors"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    error = error_of(load_file(folder / "out.safetensors")["output"], expected)
    print(f"{name} {dtype}: {error:.3g} of {limit:.3g}")
    assert error <= limit, f"{name} {dtype}"
