"""The DDPM++ U-Net as Karras et al. train it, "Elucidating the Design Space of Diffusion-Based Generative Models" (NeurIPS 2022), with
their preconditioning and the parameter names of NVlabs' EDM checkpoints. NCHW, as PyTorch has it.
"""

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn


CLASSES = 10
EPS = 1e-6
SKIP_SCALE = math.sqrt(0.5)


def waves(t, channels, ends=0, period=10000):
    """[n] -> [n, channels]: cosines, then sines, of frequencies from 1 down to 1/period, which itself is there where `ends` is 1."""
    half = channels // 2
    angles = t.double()[:, None] * torch.exp(-math.log(period) * torch.arange(half, dtype=torch.float64, device=t.device) / (half - ends))
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def norm(channels):
    return nn.GroupNorm(min(32, channels // 4), channels, eps=EPS)


def resample(x, direction):
    if direction == "up":
        return F.interpolate(x, scale_factor=2, mode="nearest")
    if direction == "down":
        return F.avg_pool2d(x, 2)
    return x


class Block(nn.Module):
    def __init__(self, channels, out, embedding, direction=None, attention=False, dropout=0.0):
        super().__init__()
        self.in_channels, self.direction, self.dropout = channels, direction, dropout
        self.norm0 = norm(channels)
        self.conv0 = nn.Conv2d(channels, out, 3, padding=1)
        self.affine = nn.Linear(embedding, out)
        self.norm1 = norm(out)
        self.conv1 = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if direction or channels != out else None
        if attention:
            self.norm2 = norm(out)
            self.qkv = nn.Conv2d(out, 3 * out, 1)
            self.proj = nn.Conv2d(out, out, 1)
        self.attention = attention

    def forward(self, x, embedding):
        h = self.conv0(resample(F.silu(self.norm0(x)), self.direction))
        h = F.silu(self.norm1(h + self.affine(embedding)[:, :, None, None]))
        h = self.conv1(F.dropout(h, self.dropout, self.training))
        x = resample(x, self.direction)
        x = (h + (x if self.skip is None else self.skip(x))) * SKIP_SCALE
        if self.attention:
            n, channels, height, width = x.shape
            # Channel c of q, k and v is channel 3 c, 3 c + 1 and 3 c + 2 of the projection.
            q, k, v = self.qkv(self.norm2(x)).reshape(n, 1, channels, 3, -1).permute(3, 0, 1, 4, 2)
            h = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(n, channels, height, width)
            x = (x + self.proj(h)) * SKIP_SCALE
        return x


class UNet(nn.Module):
    """x [n, image_channels, size, size], noise [n], labels [n, classes] (one-hot) -> [n, image_channels, size, size]

    Attention, of one head, stands at the heights `attention_sizes`. `augmentations` is the length of the augmentation label that a checkpoint was
    trained with; sampling gives zeros.
    """

    def __init__(self, image_size, image_channels, channels, multipliers, blocks, attention_sizes, augmentations=0, dropout=0.0):
        super().__init__()
        self.channels = channels
        embedding = 4 * channels
        self.map_label = nn.Linear(CLASSES, channels)
        if augmentations:
            self.map_augment = nn.Linear(augmentations, channels, bias=False)
        self.map_layer0 = nn.Linear(channels, embedding)
        self.map_layer1 = nn.Linear(embedding, embedding)

        block = functools.partial(Block, embedding=embedding, dropout=dropout)
        self.enc, self.dec = nn.ModuleDict(), nn.ModuleDict()
        width = channels
        sizes = [image_size >> level for level in range(len(multipliers))]
        skips = []
        for level, (size, multiplier) in enumerate(zip(sizes, multipliers)):
            if level == 0:
                self.enc[f"{size}x{size}_conv"] = nn.Conv2d(image_channels, width, 3, padding=1)
            else:
                self.enc[f"{size}x{size}_down"] = block(width, width, direction="down")
            skips.append(width)
            for index in range(blocks):
                self.enc[f"{size}x{size}_block{index}"] = block(width, multiplier * channels, attention=size in attention_sizes)
                width = multiplier * channels
                skips.append(width)
        for level, (size, multiplier) in reversed(list(enumerate(zip(sizes, multipliers)))):
            if level + 1 == len(sizes):
                self.dec[f"{size}x{size}_in0"] = block(width, width, attention=True)
                self.dec[f"{size}x{size}_in1"] = block(width, width)
            else:
                self.dec[f"{size}x{size}_up"] = block(width, width, direction="up")
            for index in range(blocks + 1):
                self.dec[f"{size}x{size}_block{index}"] = block(
                    width + skips.pop(), multiplier * channels, attention=index == blocks and size in attention_sizes)
                width = multiplier * channels
        self.dec[f"{image_size}x{image_size}_aux_norm"] = norm(width)
        self.dec[f"{image_size}x{image_size}_aux_conv"] = nn.Conv2d(width, image_channels, 3, padding=1)

    def forward(self, x, noise, labels=None):
        embedding = waves(noise, self.channels, ends=1).roll(self.channels // 2, 1).to(x.dtype)  # sines first
        if labels is not None:
            embedding = embedding + self.map_label(labels.to(x.dtype) * math.sqrt(labels.shape[1]))
        embedding = F.silu(self.map_layer1(F.silu(self.map_layer0(embedding))))
        skips = []
        for layer in self.enc.values():
            x = layer(x, embedding) if isinstance(layer, Block) else layer(x)
            skips.append(x)
        for name, layer in self.dec.items():
            if name.endswith("aux_norm"):
                x = F.silu(layer(x))
            elif name.endswith("aux_conv"):
                x = layer(x)
            else:
                if layer.in_channels != x.shape[1]:
                    x = torch.cat([x, skips.pop()], dim=1)
                x = layer(x, embedding)
        return x


class Preconditioned(nn.Module):
    """The denoiser D(x; sigma): x [n, channels, size, size], sigma [n], labels [n, classes] -> the denoised images."""

    one_hot, numbers = True, ()

    def __init__(self, model, sigma_data=0.5):
        super().__init__()
        self.model, self.sigma_data = model, sigma_data

    def forward(self, x, sigma, labels=None):
        data = self.sigma_data
        noise = sigma.double().reshape(-1, *[1] * (x.dim() - 1))
        variance = noise**2 + data**2
        inner = self.model((x / variance.sqrt()).to(x.dtype), sigma.double().log() / 4, labels)
        return (data**2 / variance * x + noise * data / variance.sqrt() * inner).to(x.dtype)


def cifar():
    return Preconditioned(UNet(image_size=32, image_channels=3, channels=128, multipliers=(2, 2, 2), blocks=4, attention_sizes=(16,), augmentations=9))


def digits(dropout=0.0):
    return Preconditioned(UNet(image_size=8, image_channels=1, channels=64, multipliers=(1, 1), blocks=1, attention_sizes=(4,), dropout=dropout), 0.75)
