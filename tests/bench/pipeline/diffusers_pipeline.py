"""Writes what diffusers_pipeline_test.cpp holds ours to, beside this file: the weights of a small AutoencoderKL, a picture that it decodes, and
a picture that Stable Diffusion's loop draws with it and the U-Net of diffusers_unet.py: PNDM, guidance, decoder, in fp32.

usage: python3 -m tests.bench.pipeline.diffusers_pipeline, with diffusers 0.42.1 and PyTorch
"""

import json
from pathlib import Path

import diffusers
import torch
from safetensors.torch import load_file, save_file

from tests.bench.pipeline.diffusers_unet import PINNED, SMALL

FOLDER = Path(__file__).resolve().parent
# Every kind of block that Stable Diffusion's has; all else is as there.
SMALL_VAE = {
    "block_out_channels": (8, 16, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 3,
    "up_block_types": ("UpDecoderBlock2D",) * 3,
    "layers_per_block": 1,
    "latent_channels": 4,
    "norm_num_groups": 4,
}
SCHEDULER = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012, "steps_offset": 1, "skip_prk_steps": True, "set_alpha_to_one": False}
STEPS, GUIDANCE = 20, 7.5


def randomised(network):
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.2)
            parameter.copy_(parameter.half())
    return network.eval()


def draw(unet, vae, inputs):
    """The loop of diffusers' StableDiffusionPipeline."""
    scheduler = diffusers.PNDMScheduler(**SCHEDULER)
    scheduler.set_timesteps(STEPS)
    latents, text = inputs["latents"], torch.cat([inputs["negative_prompt_embeds"], inputs["prompt_embeds"]])
    for t in scheduler.timesteps:
        without, given = unet(torch.cat([latents, latents]), t, text).sample.chunk(2)
        latents = scheduler.step(without + GUIDANCE * (given - without), t, latents).prev_sample
    return latents, vae.decode(latents / vae.config.scaling_factor).sample


def main():
    if diffusers.__version__ != PINNED:
        raise SystemExit(f"diffusers {diffusers.__version__} is here, not {PINNED}")
    torch.manual_seed(17)
    vae = randomised(diffusers.AutoencoderKL(**SMALL_VAE))
    unet = diffusers.UNet2DConditionModel(**SMALL).eval()
    unet.load_state_dict({name: tensor.float() for name, tensor in load_file(FOLDER / "small_unet.safetensors").items()})
    inputs = {"latents": torch.randn(2, 4, 8, 12), "prompt_embeds": torch.randn(2, 5, 24), "negative_prompt_embeds": torch.randn(2, 5, 24)}
    tensors = {"x": torch.randn(2, 4, 5, 7), **inputs}
    with torch.no_grad():
        tensors["output"] = vae.decode(tensors["x"] / vae.config.scaling_factor).sample
        tensors["final_latents"], tensors["images"] = draw(unet, vae, inputs)
    metadata = {"diffusers": diffusers.__version__, "torch": torch.__version__, "configuration": json.dumps(SMALL_VAE)}
    weights = {name: tensor.half().contiguous() for name, tensor in vae.state_dict().items()}
    save_file(weights, FOLDER / "small_vae.safetensors", metadata)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "small_pipeline.safetensors", metadata)
    print({name: tensor.abs().max().item() for name, tensor in tensors.items()})


if __name__ == "__main__":
    main()
