"""Writes what diffusers_test.cpp holds ours to, beside this file: weights, inputs and output of a small UNet2DConditionModel in fp32, and
how often a call of Stable Diffusion 1.5 meets each layer.

usage: python3 tests/bench/pipeline/diffusers_unet.py, with diffusers 0.42.1 and PyTorch

The weights are random, as a checkpoint in fp16 has them; the files' metadata has the versions and the configuration.
"""

import collections
import json
from pathlib import Path

import diffusers
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

PINNED = "0.42.1"  # of diffusers
FOLDER = Path(__file__).resolve().parent
# Every kind of block that Stable Diffusion 1.5 has; all else is as there.
SMALL = {
    "block_out_channels": (16, 32),
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 1,
    "attention_head_dim": 2,  # the number of heads, as in Stable Diffusion 1.5's configuration
    "cross_attention_dim": 24,
    "norm_num_groups": 8,
}
SD15 = {"cross_attention_dim": 768, "attention_head_dim": 8}  # all else is diffusers' default


def layers_of_sd15(batch=2, side=64, tokens=77):
    """Layer -> count, of one call; without numbers, so that nothing is allocated."""
    counts = collections.Counter()

    def count(*words):
        counts[" ".join(str(word) for word in words)] += 1

    def see(module, inputs, _):
        if isinstance(module, nn.Linear):
            count("product", inputs[0].numel() // module.in_features, module.out_features, module.in_features)
        elif isinstance(module, nn.Conv2d):
            n, _, h, w = inputs[0].shape
            if module.kernel_size[0] == 1:
                count("product", n * h * w, module.out_channels, module.in_channels)
            else:
                count("convolution", n, h, w, module.in_channels, module.out_channels, module.kernel_size[0], module.stride[0])
        elif isinstance(module, nn.GroupNorm):
            n, channels, *sides = inputs[0].shape
            count("groupnorm", n, sides[0] if len(sides) == 1 else sides[0] * sides[1], channels, module.num_groups, f"{module.eps:g}")
        elif isinstance(module, nn.LayerNorm):
            count("layernorm", inputs[0].numel() // inputs[0].shape[-1], inputs[0].shape[-1], f"{module.eps:g}")

    attention = F.scaled_dot_product_attention

    def see_attention(query, key, *rest, **named):
        n, heads, length, width = query.shape
        count("attention", n, heads, length, key.shape[2], width)
        return attention(query, key, *rest, **named)

    F.scaled_dot_product_attention = see_attention
    with torch.device("meta"), torch.no_grad():
        network = diffusers.UNet2DConditionModel(**SD15).eval()
        for module in network.modules():
            module.register_forward_hook(see)
        network(torch.zeros(batch, 4, side, side), torch.zeros(batch), torch.zeros(batch, tokens, SD15["cross_attention_dim"]))
    F.scaled_dot_product_attention = attention
    return counts


def main():
    if diffusers.__version__ != PINNED:
        raise SystemExit(f"diffusers {diffusers.__version__} is here, not {PINNED}")
    torch.manual_seed(16)
    network = diffusers.UNet2DConditionModel(**SMALL).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.2)
            parameter.copy_(parameter.half())
        inputs = {"x": torch.randn(2, 4, 8, 12), "timesteps": torch.tensor([17.0, 801.0]), "encoder_hidden_states": torch.randn(2, 5, 24)}
        output = network(inputs["x"], inputs["timesteps"], inputs["encoder_hidden_states"]).sample
    metadata = {"diffusers": diffusers.__version__, "torch": torch.__version__, "configuration": json.dumps(SMALL)}
    weights = {name: tensor.half().contiguous() for name, tensor in network.state_dict().items()}
    save_file(weights, FOLDER / "small_unet.safetensors", metadata)
    save_file({**inputs, "output": output.contiguous()}, FOLDER / "small_unet_forward.safetensors", metadata)
    lines = [f"{layer},{count}\n" for layer, count in sorted(layers_of_sd15().items())]
    (FOLDER / "sd15_layers.csv").write_text("layer,count\n" + "".join(lines))


if __name__ == "__main__":
    main()
