"""Writes what diffusers_test.cpp holds ours to, beside this file: weights, inputs and output of small U-Nets in fp32. The video network's norms
take no fewer than 32 channels; its weights are a rule, not a file.

usage: python3 -m tests.bench.pipeline.diffusers_unet, with diffusers 0.42.1 and PyTorch

The weights are random, as a checkpoint in fp16 has them; the files' metadata has the versions and the configuration.
"""

import json
import math
from pathlib import Path

import diffusers
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from baselines.pytorch.networks import stable_diffusion

PINNED = "0.42.1"  # of diffusers
FOLDER = Path(__file__).resolve().parent
# Every kind of block that the networks have; all else is as there.
SMALL = {
    "block_out_channels": (16, 32),
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 1,
    "attention_head_dim": 2,  # the number of heads, as in Stable Diffusion's configurations
    "cross_attention_dim": 24,
    "norm_num_groups": 8,
}
SMALL_XL = {
    **SMALL,
    "block_out_channels": (8, 16),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": (2, 4),
    "norm_num_groups": 4,
    "transformer_layers_per_block": (1, 2),
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 20 + 6 * 8,
}
SD15, SDXL, SVD = stable_diffusion.UNETS["sd15"], stable_diffusion.UNETS["sdxl"], stable_diffusion.VIDEO_UNETS["svd"]
SMALL_SVD = {
    "block_out_channels": (32, 64),
    "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
    "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
    "layers_per_block": 1,
    "num_attention_heads": (2, 4),
    "cross_attention_dim": 24,
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 3 * 8,
}


def build(configuration):
    video = "SpatioTemporal" in configuration["down_block_types"][0] if "down_block_types" in configuration else False
    return (diffusers.UNetSpatioTemporalConditionModel if video else diffusers.UNet2DConditionModel)(**configuration).eval()


def inputs_of(configuration, height, width, tokens, batch=2):
    """By our names."""
    inputs = {
        "x": torch.randn(batch, 4, height, width),
        "timesteps": torch.linspace(17, 801, batch),
        "encoder_hidden_states": torch.randn(batch, tokens, configuration["cross_attention_dim"]),
    }
    if "addition_embed_type" in configuration:
        width = configuration["addition_time_embed_dim"]
        inputs["text_embeds"] = torch.randn(batch, configuration["projection_class_embeddings_input_dim"] - 6 * width)
        inputs["time_ids"] = torch.tensor([[1024.0, 768, 0, 16, 1024, 1024], [640, 480, 8, 0, 512, 768]])[:batch]
    return inputs


def video_inputs_of(configuration, frames, height, width):
    """The same of two videos. x is x0 + sigma noise."""
    sigma = torch.tensor([0.4, 30.0])
    return {
        "x": torch.randn(2, frames, 4, height, width) * torch.sqrt(1 + sigma**2).reshape(2, 1, 1, 1, 1),
        "sigma": sigma,
        "image_latents": torch.randn(2, frames, 4, height, width),
        "encoder_hidden_states": torch.randn(2, 1, configuration["cross_attention_dim"]),
        "added_time_ids": torch.tensor([[6.0, 127, 0.02], [24, 30, 0.1]]),
    }


def call(network, inputs):
    """Videos as diffusers' pipeline does under EulerDiscreteScheduler."""
    if "sigma" in inputs:
        sigma = inputs["sigma"]
        scaled = inputs["x"] / torch.sqrt(1 + sigma**2).reshape(-1, 1, 1, 1, 1)
        return network(torch.cat([scaled, inputs["image_latents"]], 2), torch.log(sigma) / 4, inputs["encoder_hidden_states"],
                       inputs["added_time_ids"]).sample
    added = {name: inputs[name] for name in ("text_embeds", "time_ids") if name in inputs}
    return network(inputs["x"], inputs["timesteps"], inputs["encoder_hidden_states"], added_cond_kwargs=added).sample


def weights_by_rule(network):
    """Numbers of each tensor from its name alone: SplitMix64, seeded by FNV-1a. diffusers_test.cpp has the same rule."""
    weights = {}
    for name, tensor in network.state_dict().items():
        seed = 0xCBF29CE484222325
        for byte in name.encode():
            seed = (seed ^ byte) * 0x100000001B3 % 2**64
        with np.errstate(over="ignore"):
            bits = np.arange(1, tensor.numel() + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        uniform = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(40)).astype(np.float64) / 2**23 - 1  # -1 to 1
        fan_in = tensor.numel() // tensor.shape[0]
        spread = 2 if name.endswith("mix_factor") else 0.3 if tensor.dim() == 1 else math.sqrt(3 / fan_in)
        mean = 1 if tensor.dim() == 1 and "norm" in name and name.endswith("weight") else 0
        weights[name] = torch.from_numpy((mean + spread * uniform).astype(np.float32)).reshape(tensor.shape)
    return weights


def randomised(network):
    """As a checkpoint in fp16 has them."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.2)
            parameter.copy_(parameter.half())
    return network.eval()


def by_rule(network):
    network.load_state_dict(weights_by_rule(network))
    return network.eval()


def loaded(configuration, name):
    """A U-Net with the weights of a file that write_small() wrote."""
    unet = build(configuration)
    unet.load_state_dict({key: tensor.float() for key, tensor in load_file(FOLDER / f"{name}.safetensors").items()})
    return unet


def save(name, tensors, configuration=None):
    metadata = {"diffusers": diffusers.__version__, "torch": torch.__version__}
    if configuration is not None:
        metadata["configuration"] = json.dumps(configuration)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, FOLDER / f"{name}.safetensors", metadata)
    print(name, {key: tensor.abs().max().item() for key, tensor in list(tensors.items())[:20]})


def save_weights(name, network, configuration):
    save(name, {tensor: numbers.half() for tensor, numbers in network.state_dict().items()}, configuration)


def require_pinned():
    if diffusers.__version__ != PINNED:
        raise SystemExit(f"diffusers {diffusers.__version__} is here, not {PINNED}")


def write_small(name, configuration):
    torch.manual_seed(16)
    network = randomised(build(configuration))
    inputs = inputs_of(configuration, 8, 12, 5)
    save_weights(name, network, configuration)
    save(f"{name}_forward", {**inputs, "output": call(network, inputs)}, configuration)


SMALL_SVD_VAE = {
    "block_out_channels": (32, 64),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "layers_per_block": 2,
    "latent_channels": 4,
}


def write_small_video_decoder(name, configuration):
    torch.manual_seed(16)
    network = by_rule(diffusers.AutoencoderKLTemporalDecoder(**configuration))
    x = torch.randn(2, 3, 4, 4, 6)
    output = network.decode(x.flatten(0, 1) / network.config.scaling_factor, num_frames=3).sample.unflatten(0, (2, 3))
    save(f"{name}_forward", {"x": x, "output": output}, configuration)


def write_small_video(name, configuration):
    torch.manual_seed(16)
    network = by_rule(build(configuration))
    inputs = video_inputs_of(configuration, 3, 4, 6)
    save(f"{name}_forward", {**inputs, "output": call(network, inputs)}, configuration)


@torch.no_grad()
def main():
    require_pinned()
    write_small("small_unet", SMALL)
    write_small("small_sdxl", SMALL_XL)
    write_small_video("small_svd", SMALL_SVD)
    write_small_video_decoder("small_svd_vae", SMALL_SVD_VAE)


if __name__ == "__main__":
    main()
