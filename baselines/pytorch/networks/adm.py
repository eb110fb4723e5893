"""The U-Net of Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis" (NeurIPS 2021), with the parameter names of OpenAI's
guided-diffusion checkpoints. NCHW, as PyTorch has it.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from baselines.pytorch.networks.edm import resample, waves


@dataclasses.dataclass(frozen=True)
class Configuration:
    image_size: int = 64
    image_channels: int = 3
    out_channels: int = 6  # noise and the interpolation of its variance
    channels: int = 192
    multipliers: tuple = (1, 2, 3, 4)
    blocks: int = 3
    attention_sizes: tuple = (32, 16, 8)  # heights at which attention stands
    head_channels: int = 64
    classes: int = 1000  # 0: not conditional


CONFIGURATIONS = {"adm64": Configuration()}
GROUPS = 32


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


class Attention(nn.Module):
    def __init__(self, channels, head_channels):
        super().__init__()
        self.heads = channels // head_channels
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x, embedding):
        n, channels, height, width = x.shape
        # As tokens of all channels: where x lies channels-last nothing moves, while Conv1d would have every attention transpose it twice.
        tokens = self.norm(x).permute(0, 2, 3, 1).reshape(n, height * width, channels)
        # The "new" order of attention: all queries, all keys, all values.
        qkv = F.linear(tokens, self.qkv.weight[:, :, 0], self.qkv.bias).reshape(n, -1, 3, self.heads, channels // self.heads)
        q, k, v = qkv.transpose(1, 3).unbind(2)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, -1, channels)
        h = F.linear(h, self.proj_out.weight[:, :, 0], self.proj_out.bias)
        return x + h.reshape(n, height, width, channels).permute(0, 3, 1, 2)


class Plain(nn.Conv2d):
    def forward(self, x, embedding):
        return super().forward(x)


class Stage(nn.ModuleList):
    def forward(self, x, embedding):
        for layer in self:
            x = layer(x, embedding)
        return x


class UNet(nn.Module):
    """x [n, image_channels, size, size], timesteps [n], labels [n] or None -> [n, out_channels, size, size]"""

    one_hot, numbers = False, ()

    def __init__(self, c):
        super().__init__()
        self.configuration = c
        embedding = 4 * c.channels
        self.time_embed = nn.Sequential(nn.Linear(c.channels, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        if c.classes:
            self.label_emb = nn.Embedding(c.classes, embedding)

        width, size = c.multipliers[0] * c.channels, c.image_size
        self.input_blocks = nn.ModuleList([Stage([Plain(c.image_channels, width, 3, padding=1)])])
        skips = [width]
        for level, multiplier in enumerate(c.multipliers):
            for _ in range(c.blocks):
                stage = Stage([ResBlock(width, embedding, multiplier * c.channels)])
                width = multiplier * c.channels
                if size in c.attention_sizes:
                    stage.append(Attention(width, c.head_channels))
                self.input_blocks.append(stage)
                skips.append(width)
            if level + 1 < len(c.multipliers):
                self.input_blocks.append(Stage([ResBlock(width, embedding, width, "down")]))
                skips.append(width)
                size //= 2
        self.middle_block = Stage(
            [ResBlock(width, embedding, width), Attention(width, c.head_channels), ResBlock(width, embedding, width)])
        self.output_blocks = nn.ModuleList()
        for level, multiplier in reversed(list(enumerate(c.multipliers))):
            for block in range(c.blocks + 1):
                stage = Stage([ResBlock(width + skips.pop(), embedding, multiplier * c.channels)])
                width = multiplier * c.channels
                if size in c.attention_sizes:
                    stage.append(Attention(width, c.head_channels))
                if level and block == c.blocks:
                    stage.append(ResBlock(width, embedding, width, "up"))
                    size *= 2
                self.output_blocks.append(stage)
        self.out = nn.Sequential(nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, c.out_channels, 3, padding=1))

    def forward(self, x, timesteps, labels=None):
        embedding = self.time_embed(waves(timesteps, self.configuration.channels).to(x.dtype))
        if self.configuration.classes:
            embedding = embedding + self.label_emb(labels)
        skips = []
        for stage in self.input_blocks:
            x = stage(x, embedding)
            skips.append(x)
        x = self.middle_block(x, embedding)
        for stage in self.output_blocks:
            x = stage(torch.cat([x, skips.pop()], dim=1), embedding)
        return self.out(x)
