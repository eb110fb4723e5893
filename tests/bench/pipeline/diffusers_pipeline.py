"""Writes what diffusers_pipeline_test.cpp holds ours to, beside this file: the weights of a small AutoencoderKL, a picture that it decodes, and
a picture that Stable Diffusion's loop draws with it and the U-Net of diffusers_unet.py: PNDM, guidance, decoder, in fp32. The latents that the
loops of SDXL and Stable Video Diffusion draw with the small U-Nets from there. checkpoint_settings.py draws by other schedulers.

usage: python3 -m tests.bench.pipeline.diffusers_pipeline, with diffusers 0.42.1 and PyTorch
"""

import diffusers
import torch

from tests.bench.pipeline.diffusers_unet import (SMALL, SMALL_SVD, SMALL_SVD_VAE, SMALL_XL, build, by_rule, loaded, randomised, require_pinned, save,
                                                 save_weights)

# Every kind of block that Stable Diffusion's has; all else is as there.
SMALL_VAE = {
    "block_out_channels": (8, 16, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 3,
    "up_block_types": ("UpDecoderBlock2D",) * 3,
    "layers_per_block": 1,
    "latent_channels": 4,
    "norm_num_groups": 4,
}
LATENT = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
SCHEDULER = {**LATENT, "steps_offset": 1, "skip_prk_steps": True, "set_alpha_to_one": False}
XL_SCHEDULER = {**LATENT, "steps_offset": 1, "timestep_spacing": "leading"}
SVD_SCHEDULER = {**XL_SCHEDULER, "prediction_type": "v_prediction", "timestep_type": "continuous", "use_karras_sigmas": True, "sigma_min": 0.002,
                 "sigma_max": 700.0}
STEPS, SVD_FRAMES, SVD_GUIDANCE = 20, 3, (1.0, 3.0)


def draw(unet, inputs, scheduler, guidance, steps=STEPS):
    """The loop of diffusers' StableDiffusionPipeline and StableDiffusionXLPipeline."""
    scheduler.set_timesteps(steps)
    latents = inputs["latents"] * scheduler.init_noise_sigma
    text, added = torch.cat([inputs["negative_prompt_embeds"], inputs["prompt_embeds"]]), None
    if "time_ids" in inputs:
        added = {"text_embeds": torch.cat([inputs["negative_pooled_prompt_embeds"], inputs["pooled_prompt_embeds"]]),
                 "time_ids": torch.cat([inputs["time_ids"]] * 2)}
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(torch.cat([latents, latents]), t)
        without, given = unet(scaled, t, text, added_cond_kwargs=added).sample.chunk(2)
        latents = scheduler.step(without + guidance * (given - without), t, latents).prev_sample
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
    return {"final_latents": latents, "images": torch.cat(frames).unflatten(0, latents.shape[:2])}


@torch.no_grad()
def main():
    require_pinned()
    torch.manual_seed(17)
    vae, unet = randomised(diffusers.AutoencoderKL(**SMALL_VAE)), loaded(SMALL, "small_unet")
    inputs = {"latents": torch.randn(2, 4, 8, 12), "prompt_embeds": torch.randn(2, 5, 24), "negative_prompt_embeds": torch.randn(2, 5, 24)}
    x = torch.randn(2, 4, 5, 7)
    latents = draw(unet, inputs, diffusers.PNDMScheduler(**SCHEDULER), 7.5)
    output, images = (vae.decode(numbers / vae.config.scaling_factor).sample for numbers in (x, latents))
    save_weights("small_vae", vae, SMALL_VAE)
    save("small_pipeline", {"x": x, **inputs, "output": output, "final_latents": latents, "images": images}, SMALL_VAE)

    torch.manual_seed(18)
    unet_xl = loaded(SMALL_XL, "small_sdxl")
    inputs_xl = {"latents": torch.randn(2, 4, 8, 12), "prompt_embeds": torch.randn(2, 5, 24),
                 "negative_prompt_embeds": torch.randn(1, 5, 24).repeat(2, 1, 1), "pooled_prompt_embeds": torch.randn(2, 20),
                 "negative_pooled_prompt_embeds": torch.randn(2, 20),
                 "time_ids": torch.tensor([[1024.0, 768, 0, 16, 1024, 1024], [640, 480, 8, 0, 512, 768]])}
    save("small_sdxl_pipeline", {**inputs_xl, "final_latents": draw(unet_xl, inputs_xl, diffusers.EulerDiscreteScheduler(**XL_SCHEDULER), 5)})

    torch.manual_seed(19)
    networks = by_rule(build(SMALL_SVD)), by_rule(diffusers.AutoencoderKLTemporalDecoder(**SMALL_SVD_VAE))
    told = {"latents": torch.randn(2, SVD_FRAMES, 4, 4, 6), "image_embeds": torch.randn(2, 1, 24), "image_latents": torch.randn(2, 4, 4, 6),
            "added_time_ids": torch.tensor([[6.0, 127, 0.02], [24, 30, 0.1]])}
    save("small_svd_pipeline", {**told, **draw_video(*networks, told)})


if __name__ == "__main__":
    main()
