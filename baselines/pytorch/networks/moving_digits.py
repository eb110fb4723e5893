"""`moving-digits`, a small class-conditional video network of our own: the modules of Stable Video Diffusion (residual blocks and attention,
each with one along the frames behind it, and a learnt blend) at the size of a digit, under EDM's preconditioning. Frames are NCHW.
"""

import torch
import torch.nn.functional as F
from torch import nn

from baselines.pytorch.networks import edm
from baselines.pytorch.networks.edm import waves


CHANNELS = (16, 32, 96)  # of the levels, each half as large as the one before; attention on all but the first
CLASSES, SIGMA_DATA = 10, 0.5
GROUPS = 8
HEAD = 32  # channels


def norm(channels, eps=1e-5):
    return nn.GroupNorm(GROUPS, channels, eps=eps)


def of_videos(x, frames):
    """Frames [n frames, c, h, w] as videos [n, c, frames, h w]: a view where x lies channels-last."""
    _, c, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(-1, frames, h * w, c).permute(0, 3, 1, 2)


def of_frames(x, like):
    n, c, h, w = like.shape
    return x.permute(0, 2, 3, 1).reshape(n, h, w, c).permute(0, 3, 1, 2)


class TemporalConv(nn.Conv3d):
    """Along the frames; written as the convolution of a picture of frames by pixels."""

    def __init__(self, channels):
        super().__init__(channels, channels, (3, 1, 1), padding=(1, 0, 0))

    def forward(self, x):
        return F.conv2d(x, self.weight[..., 0], self.bias, padding=(1, 0))


class SpatialResBlock(nn.Module):
    def __init__(self, channels, out, embedding):
        super().__init__()
        self.norm1, self.conv1 = norm(channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time_emb_proj = nn.Linear(embedding, out)
        self.norm2, self.conv2 = norm(out), nn.Conv2d(out, out, 3, padding=1)
        self.conv_shortcut = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x, embedding):
        h = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(embedding)[:, :, None, None]
        return self.conv_shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class TemporalResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm1, self.conv1 = norm(channels), TemporalConv(channels)
        self.norm2, self.conv2 = norm(channels), TemporalConv(channels)

    def forward(self, x):
        return self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class Mixer(nn.Module):
    """How much of what runs along the frames is added."""

    def __init__(self):
        super().__init__()
        self.mix_factor = nn.Parameter(torch.zeros(1))

    def forward(self, x, h):
        return x + (1 - self.mix_factor.sigmoid()) * h


class ResBlock(nn.Module):
    def __init__(self, channels, out, embedding):
        super().__init__()
        self.spatial_res_block = SpatialResBlock(channels, out, embedding)
        self.temporal_res_block = TemporalResBlock(out)
        self.time_mixer = Mixer()

    def forward(self, x, embedding, frames):
        x = self.spatial_res_block(x, embedding)
        return self.time_mixer(x, of_frames(self.temporal_res_block(of_videos(x, frames)), x))


class SelfAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.qkv, self.proj = norm(channels, 1e-6), nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x, frames=0):
        """Among the pixels of a frame, or along the frames, for each pixel by itself."""
        n, c, h, w = x.shape
        tokens = self.norm(x).permute(0, 2, 3, 1).reshape(n, h * w, c)
        qkv = self.qkv(tokens)
        if frames:
            qkv = qkv.reshape(-1, frames, h * w, 3 * c).transpose(1, 2).reshape(-1, frames, 3 * c)
        q, k, v = qkv.reshape(*qkv.shape[:2], 3, c // HEAD, HEAD).transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(*qkv.shape[:2], c)
        if frames:
            mixed = mixed.reshape(-1, h * w, frames, c).transpose(1, 2).reshape(n, h * w, c)
        return self.proj(mixed).reshape(n, h, w, c).permute(0, 3, 1, 2)


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.spatial, self.temporal, self.time_mixer = SelfAttention(channels), SelfAttention(channels), Mixer()

    def forward(self, x, frames):
        x = x + self.spatial(x)
        return self.time_mixer(x, self.temporal(x, frames))


class Level(nn.Module):
    def __init__(self, channels, out, embedding, attention):
        super().__init__()
        self.block = ResBlock(channels, out, embedding)
        self.attention = Attention(out) if attention else None

    def forward(self, x, embedding, frames):
        x = self.block(x, embedding, frames)
        return x if self.attention is None else self.attention(x, frames)


class UNet(nn.Module):
    """x [n, frames, 1, height, width], noise [n], labels [n, classes] (one-hot) -> as x"""

    def __init__(self):
        super().__init__()
        self.width = CHANNELS[0]
        embedding = 4 * self.width
        self.time_embedding = nn.ModuleDict({"linear_1": nn.Linear(self.width, embedding), "linear_2": nn.Linear(embedding, embedding)})
        self.class_embedding = nn.Linear(CLASSES, embedding, bias=False)
        self.frame_embedding = nn.Linear(self.width, embedding)
        self.conv_in = nn.Conv2d(1, self.width, 3, padding=1)
        levels = list(zip(CHANNELS, CHANNELS[1:]))
        self.down = nn.ModuleList(nn.Conv2d(above, above, 3, stride=2, padding=1) for above, _ in levels)
        self.encoder = nn.ModuleList(Level(above, below, embedding, True) for above, below in levels)
        self.middle = ResBlock(CHANNELS[-1], CHANNELS[-1], embedding)
        self.up = nn.ModuleList(nn.Conv2d(below, above, 3, padding=1) for above, below in reversed(levels))
        self.decoder = nn.ModuleList(Level(2 * above, above, embedding, above != self.width) for above, _ in reversed(levels))
        self.norm_out, self.conv_out = norm(self.width), nn.Conv2d(self.width, 1, 3, padding=1)

    def forward(self, x, noise, labels=None):
        n, frames = x.shape[:2]
        embedding = self.time_embedding["linear_2"](F.silu(self.time_embedding["linear_1"](waves(noise, self.width).to(x.dtype))))
        if labels is not None:
            embedding = embedding + self.class_embedding(labels.to(x.dtype))
        places = self.frame_embedding(waves(torch.arange(frames, device=x.device), self.width).to(x.dtype))
        embedding = F.silu(embedding[:, None] + places).flatten(0, 1)
        h = self.conv_in(x.flatten(0, 1).contiguous(memory_format=torch.channels_last))
        skips = [h]
        for down, level in zip(self.down, self.encoder):
            h = level(down(h), embedding, frames)
            skips.append(h)
        skips.pop()
        h = self.middle(h, embedding, frames)
        for up, level in zip(self.up, self.decoder):
            h = up(F.interpolate(h, scale_factor=2, mode="nearest"))
            h = level(torch.cat([h, skips.pop()], dim=1), embedding, frames)
        return self.conv_out(F.silu(self.norm_out(h))).reshape(x.shape)


class Preconditioned(edm.Preconditioned):
    """The denoiser D(x; sigma): x [n, frames, 1, height, width], sigma [n], labels [n, classes] -> the denoised videos."""

    def __init__(self):
        super().__init__(UNet(), SIGMA_DATA)
