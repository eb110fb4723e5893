"""`unetcu`, the U-Net that unet.cu trains: ADM's without labels, whose embedding shifts and does not scale, with pooling and repeating between the
levels. Parameters have the names, and the order, of its train_unet.py. NCHW, as PyTorch has it.
"""

import torch.nn.functional as F
from torch import nn

from baselines.pytorch.networks.adm import GROUPS, IMAGE_CHANNELS, StagedUNet, attention
from baselines.pytorch.networks.edm import resample, waves

CHANNELS, BLOCKS, FIRST_ATTENTION, HEAD_CHANNELS = 64, 2, 2, 32
MAX_PERIOD = 1000


class ResBlock(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.gn1 = nn.GroupNorm(GROUPS, channels)
        self.cv3_1 = nn.Conv2d(channels, out, 3, padding=1)
        self.l_emb = nn.Linear(4 * CHANNELS, out)
        self.gn2 = nn.GroupNorm(GROUPS, out)
        self.cv3_2 = nn.Conv2d(out, out, 3, padding=1)
        self.skip_connection = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x, embedding):
        h = self.cv3_1(F.silu(self.gn1(x))) + self.l_emb(F.silu(embedding))[:, :, None, None]
        return self.skip_connection(x) + self.cv3_2(F.silu(self.gn2(h)))


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gn = nn.GroupNorm(GROUPS, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj = nn.Conv1d(channels, channels, 1)

    def forward(self, x, embedding):
        return attention(x, self.gn, self.qkv, self.proj, x.shape[1] // HEAD_CHANNELS)


class Resampling(nn.Module):
    def __init__(self, channels, direction):
        super().__init__()
        self.direction = direction

    def forward(self, x, embedding):
        return resample(x, self.direction)


class UNet(StagedUNet):
    """x [n, 3, 64, 64], timesteps [n] -> [n, 3, 64, 64]"""

    def __init__(self):
        super().__init__(CHANNELS, IMAGE_CHANNELS, BLOCKS, FIRST_ATTENTION, ResBlock, Attention, Resampling)

    def forward(self, x, timesteps):
        return self.through_blocks(x, self.time_embed(waves(timesteps, CHANNELS, period=MAX_PERIOD).to(x.dtype)))
