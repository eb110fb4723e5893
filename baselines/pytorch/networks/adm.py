"""`adm64`, the U-Net of Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021), with the parameter names of OpenAI's
guided-diffusion checkpoints. NCHW, as PyTorch has it.
"""

import torch
import torch.nn.functional as F
from torch import nn

from baselines.pytorch.networks.edm import resample, waves


CHANNELS, IMAGE_CHANNELS = 192, 3
LEVELS = 4  # of 1, 2, 3, 4 times as many channels, each half as large as the one before
BLOCKS, FIRST_ATTENTION = 3, 1  # of a level; the level
HEAD_CHANNELS, GROUPS, CLASSES = 64, 32, 1000


class ResBlock(nn.Module):
    def __init__(self, channels, out, resample=None):
        super().__init__()
        self.resample = resample
        self.in_layers = nn.Sequential(nn.GroupNorm(GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(4 * CHANNELS, 2 * out))
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
    """Of residual blocks `block(channels, out)` and `attention(channels)`; `resampling(channels, direction)` is what leads from a level to the next."""

    one_hot, numbers = False, ()

    def __init__(self, width, out_channels, blocks, first_attention, block, attention, resampling, classes=0):
        super().__init__()
        embedding = 4 * width
        self.time_embed = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        if classes:
            self.label_emb = nn.Embedding(classes, embedding)

        def stage(level, channels):
            out = (level + 1) * width
            return Stage([block(channels, out)] + ([attention(out)] if level >= first_attention else []))

        self.input_blocks = nn.ModuleList([Stage([Plain(IMAGE_CHANNELS, width, 3, padding=1)])])
        skips = [width]
        for level in range(LEVELS):
            for _ in range(blocks):
                self.input_blocks.append(stage(level, skips[-1]))
                skips.append((level + 1) * width)
            if level + 1 < LEVELS:
                self.input_blocks.append(Stage([resampling(skips[-1], "down")]))
                skips.append(skips[-1])
        channels = skips[-1]
        self.middle_block = Stage([block(channels, channels), attention(channels), block(channels, channels)])
        self.output_blocks = nn.ModuleList()
        for level in reversed(range(LEVELS)):
            for index in range(blocks + 1):
                self.output_blocks.append(stage(level, channels + skips.pop()))
                channels = (level + 1) * width
                if level and index == blocks:
                    self.output_blocks[-1].append(resampling(channels, "up"))
        self.out = nn.Sequential(nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, out_channels, 3, padding=1))

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
    """x [n, 3, 64, 64], timesteps [n], labels [n] -> [n, 6, 64, 64]: noise, and the interpolation of its variance"""

    def __init__(self):
        super().__init__(CHANNELS, 2 * IMAGE_CHANNELS, BLOCKS, FIRST_ATTENTION, ResBlock, Attention,
                         lambda channels, direction: ResBlock(channels, channels, direction), CLASSES)  # fmt: skip

    def forward(self, x, timesteps, labels):
        return self.through_blocks(x, self.time_embed(waves(timesteps, CHANNELS).to(x.dtype)) + self.label_emb(labels))
