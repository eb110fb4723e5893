"""`adm64`, the U-Net of Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021), with the parameter names of OpenAI's
guided-diffusion checkpoints. NCHW, as PyTorch has it.
"""

import torch
import torch.nn.functional as F
from torch import nn

from baselines.pytorch.networks.edm import resample, waves


SIZE, CHANNELS = 64, 192
IMAGE_CHANNELS, OUT_CHANNELS = 3, 6  # noise and the interpolation of its variance
LEVELS = (1, 2, 3, 4)  # times CHANNELS
BLOCKS = 3
ATTENTION_SIZES = (32, 16, 8)  # heights at which attention stands
HEAD_CHANNELS, GROUPS, CLASSES = 64, 32, 1000


class ResBlock(nn.Module):
    def __init__(self, channels, embedding, out, resample=None):
        super().__init__()
        self.resample = resample
        self.in_layers = nn.Sequential(nn.GroupNorm(GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embedding, 2 * out))
        self.out_layers = nn.Sequential(nn.GroupNorm(GROUPS, out), nn.SiLU(), nn.Identity(), nn.Conv2d(out, out, 3, padding=1))
        self.skip_connection = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x, embedding):
        h = self.in_layers[2](resample(self.in_layers[1](self.in_layers[0](x)), self.resample))
        scale, shift = self.emb_layers(embedding)[:, :, None, None].chunk(2, dim=1)
        h = self.out_layers[3](F.silu(self.out_layers[0](h) * (1 + scale) + shift))
        return self.skip_connection(resample(x, self.resample)) + h


def attention(x, norm, qkv, proj, heads):
    """x and the attention of its pixels; projections are Conv1d's, in the "new" order: all queries, all keys, all values."""
    n, channels, height, width = x.shape
    # As tokens of all channels: where x lies channels-last nothing moves, while Conv1d would have every attention transpose it twice.
    tokens = norm(x).permute(0, 2, 3, 1).reshape(n, height * width, channels)
    q, k, v = F.linear(tokens, qkv.weight[:, :, 0], qkv.bias).reshape(n, -1, 3, heads, channels // heads).transpose(1, 3).unbind(2)
    h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, -1, channels)
    h = F.linear(h, proj.weight[:, :, 0], proj.bias)
    return x + h.reshape(n, height, width, channels).permute(0, 3, 1, 2)


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.heads = channels // HEAD_CHANNELS
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x, embedding):
        return attention(x, self.norm, self.qkv, self.proj_out, self.heads)


class Plain(nn.Conv2d):
    def forward(self, x, embedding):
        return super().forward(x)


class Stage(nn.ModuleList):
    def forward(self, x, embedding):
        for layer in self:
            x = layer(x, embedding)
        return x


class StagedUNet(nn.Module):
    one_hot, numbers = False, ()

    def through_blocks(self, x, embedding):
        skips = []
        for stage in self.input_blocks:
            x = stage(x, embedding)
            skips.append(x)
        x = self.middle_block(x, embedding)
        for stage in self.output_blocks:
            x = stage(torch.cat([x, skips.pop()], dim=1), embedding)
        return self.out(x)


class UNet(StagedUNet):
    """x [n, 3, 64, 64], timesteps [n], labels [n] -> [n, 6, 64, 64]"""

    def __init__(self):
        super().__init__()
        embedding = 4 * CHANNELS
        self.time_embed = nn.Sequential(nn.Linear(CHANNELS, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.label_emb = nn.Embedding(CLASSES, embedding)

        width, size = LEVELS[0] * CHANNELS, SIZE
        self.input_blocks = nn.ModuleList([Stage([Plain(IMAGE_CHANNELS, width, 3, padding=1)])])
        skips = [width]
        for level, multiplier in enumerate(LEVELS):
            for _ in range(BLOCKS):
                stage = Stage([ResBlock(width, embedding, multiplier * CHANNELS)])
                width = multiplier * CHANNELS
                if size in ATTENTION_SIZES:
                    stage.append(Attention(width))
                self.input_blocks.append(stage)
                skips.append(width)
            if level + 1 < len(LEVELS):
                self.input_blocks.append(Stage([ResBlock(width, embedding, width, "down")]))
                skips.append(width)
                size //= 2
        self.middle_block = Stage(
            [ResBlock(width, embedding, width), Attention(width), ResBlock(width, embedding, width)])
        self.output_blocks = nn.ModuleList()
        for level, multiplier in reversed(list(enumerate(LEVELS))):
            for block in range(BLOCKS + 1):
                stage = Stage([ResBlock(width + skips.pop(), embedding, multiplier * CHANNELS)])
                width = multiplier * CHANNELS
                if size in ATTENTION_SIZES:
                    stage.append(Attention(width))
                if level and block == BLOCKS:
                    stage.append(ResBlock(width, embedding, width, "up"))
                    size *= 2
                self.output_blocks.append(stage)
        self.out = nn.Sequential(nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, OUT_CHANNELS, 3, padding=1))

    def forward(self, x, timesteps, labels):
        return self.through_blocks(x, self.time_embed(waves(timesteps, CHANNELS).to(x.dtype)) + self.label_emb(labels))
