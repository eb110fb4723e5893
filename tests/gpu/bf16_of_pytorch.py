#!/usr/bin/env python3
"""How far PyTorch's bf16 is from its fp32, in diffusers' U-Nets with weights as our network rows draw them. Run by hand; no test.

usage: python3 tests/gpu/bf16_of_pytorch.py, with a GPU of 40 GB, PyTorch and diffusers
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.bench.pipeline import diffusers_unet  # noqa: E402

CASES = [("sd15", diffusers_unet.SD15, 64, 64), ("sdxl", diffusers_unet.SDXL, 64, 64), ("sdxl", diffusers_unet.SDXL, 128, 128),
         ("svd", diffusers_unet.SVD, 72, 128)]
FRAMES, TOKENS = 14, 77


def draw(network):
    """As bench/pipeline/random_weights.cpp: N(0, 1 / fan in), gains 1 and biases 0, both with a deviation of 0.1."""
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            parameter.copy_(torch.randn_like(parameter) / parameter[0].numel() ** 0.5)
        else:
            parameter.copy_(torch.randn_like(parameter) * 0.1 + (1 if name.endswith("weight") else 0))


def rounded(tensor):
    return tensor.bfloat16() if torch.is_tensor(tensor) and tensor.dim() > 1 else tensor  # levels stay as they are


def round_inputs(_, positional, named):
    added = {key: rounded(value) for key, value in (named.pop("added_cond_kwargs", None) or {}).items()}
    return tuple(map(rounded, positional)), {key: rounded(value) for key, value in named.items()} | ({"added_cond_kwargs": added} if added else {})


@torch.no_grad()
def main():
    torch.set_default_device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for name, configuration, height, width in CASES:
        torch.manual_seed(1)
        network = diffusers_unet.build(configuration)
        draw(network)
        video = name == "svd"
        inputs = diffusers_unet.video_inputs_of(configuration, FRAMES, height, width) if video else diffusers_unet.inputs_of(
            configuration, height, width, TOKENS)
        exact = diffusers_unet.call(network, inputs).double()
        network.bfloat16().register_forward_pre_hook(round_inputs, with_kwargs=True)
        error = (diffusers_unet.call(network, inputs) - exact).norm() / exact.norm()
        print(f"{name} {height}x{width}: relative L2 {error.item():.4f}", flush=True)
        del network, exact
        torch.cuda.empty_cache()


main()
