"""Writes what diffusers_pipeline_test.cpp holds ours to, beside this file: the weights of a small AutoencoderKL, a picture that it decodes, and
a picture that Stable Diffusion's loop draws with it and the U-Net of diffusers_unet.py: PNDM, guidance, decoder, in fp32. And the latents that
the loops of SDXL and Stable Video Diffusion draw with the small U-Nets from there.

usage: python3 -m tests.bench.pipeline.diffusers_pipeline, with diffusers 0.42.1 and PyTorch
"""

import json
from pathlib import Path

import diffusers
import torch
from safetensors.torch import load_file, save_file

from tests.bench.pipeline.diffusers_unet import PINNED, SMALL, SMALL_SVD, SMALL_SVD_VAE, SMALL_XL, weights_by_rule

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
XL_SCHEDULER = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012, "steps_offset": 1, "timestep_spacing": "leading"}
XL_GUIDANCE = 5
SVD_SCHEDULER = {**XL_SCHEDULER, "prediction_type": "v_prediction", "timestep_type": "continuous", "use_karras_sigmas": True, "sigma_min": 0.002,
                 "sigma_max": 700.0}
SVD_FRAMES, SVD_GUIDANCE = 3, (1.0, 3.0)


def randomised(network):
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros, which would hide a mix-up
                parameter.add_(torch.randn_like(parameter) * 0.2)
            parameter.copy_(parameter.half())
    return network.eval()


def draw(unet, inputs, scheduler):
    """The loop of diffusers' StableDiffusionPipeline."""
    scheduler.set_timesteps(STEPS)
    latents, text = inputs["latents"], torch.cat([inputs["negative_prompt_embeds"], inputs["prompt_embeds"]])
    for t in scheduler.timesteps:
        without, given = unet(torch.cat([latents, latents]), t, text).sample.chunk(2)
        latents = scheduler.step(without + GUIDANCE * (given - without), t, latents).prev_sample
    return latents


def draw_xl(unet, inputs, scheduler):
    """The loop of diffusers' StableDiffusionXLPipeline."""
    scheduler.set_timesteps(STEPS)
    latents = inputs["latents"] * scheduler.init_noise_sigma
    text = torch.cat([inputs["negative_prompt_embeds"], inputs["prompt_embeds"]])
    added = {"text_embeds": torch.cat([inputs["negative_pooled_prompt_embeds"], inputs["pooled_prompt_embeds"]]),
             "time_ids": torch.cat([inputs["time_ids"]] * 2)}
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(torch.cat([latents, latents]), t)
        without, given = unet(scaled, t, text, added_cond_kwargs=added).sample.chunk(2)
        latents = scheduler.step(without + XL_GUIDANCE * (given - without), t, latents).prev_sample
    return latents


def draw_video(unet, vae, inputs):
    """The loop of diffusers' StableVideoDiffusionPipeline, and its decoding in chunks of two frames."""
    scheduler = diffusers.EulerDiscreteScheduler(**SVD_SCHEDULER)
    scheduler.set_timesteps(STEPS)
    latents = inputs["latents"] * scheduler.init_noise_sigma
    pictures = inputs["image_latents"].unsqueeze(1).repeat(1, SVD_FRAMES, 1, 1, 1)
    pictures = torch.cat([torch.zeros_like(pictures), pictures])
    embeds = torch.cat([torch.zeros_like(inputs["image_embeds"]), inputs["image_embeds"]])
    guidance = torch.linspace(*SVD_GUIDANCE, SVD_FRAMES).reshape(1, -1, 1, 1, 1)
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(torch.cat([latents, latents]), t)
        without, given = unet(torch.cat([scaled, pictures], 2), t, embeds, torch.cat([inputs["added_time_ids"]] * 2)).sample.chunk(2)
        latents = scheduler.step(without + guidance * (given - without), t, latents).prev_sample
    frames = [vae.decode(chunk / vae.config.scaling_factor, num_frames=len(chunk)).sample for video in latents for chunk in video.split(2)]
    return latents, torch.cat(frames).unflatten(0, latents.shape[:2])


def save(name, tensors, metadata):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / f"{name}.safetensors", metadata)
    print(name, {name: tensor.abs().max().item() for name, tensor in tensors.items()})


def write_xl(metadata):
    torch.manual_seed(18)
    unet = diffusers.UNet2DConditionModel(**SMALL_XL).eval()
    unet.load_state_dict({name: tensor.float() for name, tensor in load_file(FOLDER / "small_sdxl.safetensors").items()})
    inputs = {"latents": torch.randn(2, 4, 8, 12), "prompt_embeds": torch.randn(2, 5, 24), "negative_prompt_embeds": torch.randn(1, 5, 24).repeat(2, 1, 1),
              "pooled_prompt_embeds": torch.randn(2, 20), "negative_pooled_prompt_embeds": torch.randn(2, 20),
              "time_ids": torch.tensor([[1024.0, 768, 0, 16, 1024, 1024], [640, 480, 8, 0, 512, 768]])}
    with torch.no_grad():
        save("small_sdxl_pipeline", {**inputs, "final_latents": draw_xl(unet, inputs, diffusers.EulerDiscreteScheduler(**XL_SCHEDULER))}, metadata)


def write_video(metadata):
    torch.manual_seed(19)
    unet, vae = diffusers.UNetSpatioTemporalConditionModel(**SMALL_SVD).eval(), diffusers.AutoencoderKLTemporalDecoder(**SMALL_SVD_VAE).eval()
    for network in (unet, vae):
        network.load_state_dict(weights_by_rule(network))
    inputs = {"latents": torch.randn(2, SVD_FRAMES, 4, 4, 6), "image_embeds": torch.randn(2, 1, 24), "image_latents": torch.randn(2, 4, 4, 6),
              "added_time_ids": torch.tensor([[6.0, 127, 0.02], [24, 30, 0.1]])}
    with torch.no_grad():
        latents, frames = draw_video(unet, vae, inputs)
    save("small_svd_pipeline", {**inputs, "final_latents": latents, "images": frames}, metadata)


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
        tensors["final_latents"] = draw(unet, inputs, diffusers.PNDMScheduler(**SCHEDULER))
        tensors["images"] = vae.decode(tensors["final_latents"] / vae.config.scaling_factor).sample
    metadata = {"diffusers": diffusers.__version__, "torch": torch.__version__, "configuration": json.dumps(SMALL_VAE)}
    weights = {name: tensor.half().contiguous() for name, tensor in vae.state_dict().items()}
    save_file(weights, FOLDER / "small_vae.safetensors", metadata)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "small_pipeline.safetensors", metadata)
    print({name: tensor.abs().max().item() for name, tensor in tensors.items()})
    versions = {"diffusers": diffusers.__version__, "torch": torch.__version__}
    write_xl(versions)
    write_video(versions)


if __name__ == "__main__":
    main()
