"""Stable Diffusion 1.5 and XL, Stable Video Diffusion, and the decoders of their latents: diffusers' own modules at their published sizes, called
as its pipelines call them. Frames and pictures are NCHW."""

import torch
from torch import nn

from baselines.pytorch.errors import CannotRun

UNETS = {
    "sd15": {"cross_attention_dim": 768, "attention_head_dim": 8},  # all else is diffusers' default; 8 is the number of heads
    "sdxl": {
        "block_out_channels": (320, 640, 1280),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": (5, 10, 20),
        "transformer_layers_per_block": (1, 2, 10),
        "cross_attention_dim": 2048,
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 1280 + 6 * 256,
    },
}
VIDEO_UNETS = {"svd": {"down_block_types": ("CrossAttnDownBlockSpatioTemporal",) * 3 + ("DownBlockSpatioTemporal",), "cross_attention_dim": 1024}}
DECODERS = {"sd-vae": ("AutoencoderKL", 0.18215), "sdxl-vae": ("AutoencoderKL", 0.13025), "svd-vae": ("AutoencoderKLTemporalDecoder", 0.18215)}
CHANNELS = (128, 256, 512, 512)  # of a decoder's levels


def diffusers_class(name):
    try:
        import diffusers
    except ImportError as error:
        raise CannotRun(f"needs diffusers (pip install diffusers): {error}") from None
    return getattr(diffusers, name)


class UNet(nn.Module):
    """x [n, 4, h, w], timesteps [n], encoder_hidden_states [n, tokens, width], and of SDXL text_embeds [n, 1280] and time_ids [n, 6] -> noise, as x"""

    one_hot, numbers = False, ("time_ids",)

    def __init__(self, configuration):
        super().__init__()
        self.unet = diffusers_class("UNet2DConditionModel")(**configuration)

    def forward(self, x, timesteps, encoder_hidden_states, *added):
        added = dict(zip(("text_embeds", "time_ids"), added))
        return self.unet(x, timesteps, encoder_hidden_states, added_cond_kwargs=added, return_dict=False)[0]


class VideoUNet(nn.Module):
    """x [n, frames, 4, h, w] of x0 + sigma noise, sigma [n], image_latents as x, encoder_hidden_states [n, 1, 1024], added_time_ids [n, 3] -> v, as x"""

    one_hot, numbers = False, ("added_time_ids",)

    def __init__(self, configuration):
        super().__init__()
        self.unet = diffusers_class("UNetSpatioTemporalConditionModel")(**configuration)

    def forward(self, x, sigma, image_latents, encoder_hidden_states, added_time_ids):
        scaled = (x / torch.sqrt(1 + sigma**2).reshape(-1, 1, 1, 1, 1)).to(x.dtype)
        return self.unet(torch.cat([scaled, image_latents], 2), torch.log(sigma) / 4, encoder_hidden_states, added_time_ids, return_dict=False)[0]


class Decoder(nn.Module):
    """x [n, 4, h, w] or [n, frames, 4, h, w] -> pictures of 8 times the size, as x"""

    one_hot, numbers = False, ()

    def __init__(self, configuration):
        super().__init__()
        kind, self.scale = configuration
        blocks = {} if "Temporal" in kind else {"up_block_types": ("UpDecoderBlock2D",) * len(CHANNELS)}
        autoencoder = diffusers_class(kind)(block_out_channels=CHANNELS, down_block_types=("DownEncoderBlock2D",) * len(CHANNELS), layers_per_block=2, **blocks)
        self.decoder = autoencoder.decoder
        self.post_quant_conv = getattr(autoencoder, "post_quant_conv", None)  # videos' decoder has none

    def forward(self, x):
        latents = x / self.scale
        if self.post_quant_conv is not None:
            return self.decoder(self.post_quant_conv(latents))
        n, frames = x.shape[:2]
        still = torch.zeros(n, frames, dtype=x.dtype, device=x.device)  # diffusers' image_only_indicator
        return self.decoder(latents.flatten(0, 1), num_frames=frames, image_only_indicator=still).unflatten(0, (n, frames))
