"""`unetcu`, the U-Net that unet.cu trains: ADM's without labels, whose embedding shifts and does not scale, with pooling and repeating between the
levels. Parameters have the names, and the order, of its train_unet.py. NCHW, as PyTorch has it.
"""

import torch.nn.functional as F
from torch import nn

from baselines.pytorch.networks.adm import Plain, Stage, StagedUNet, attention
from baselines.pytorch.networks.edm import waves

SIZE, CHANNELS, IMAGE_CHANNELS, LEVELS, BLOCKS = 64, 64, 3, 4, 2
FIRST_ATTENTION, HEAD_CHANNELS, GROUPS = 2, 32, 32
MAX_PERIOD = 1000


class ResBlock(nn.Module):
    def __init__(self, channels, embedding, out):
        super().__init__()
        self.gn1 = nn.GroupNorm(GROUPS, channels)
        self.cv3_1 = nn.Conv2d(channels, out, 3, padding=1)
        self.l_emb = nn.Linear(embedding, out)
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


class Pool(nn.Module):
    def forward(self, x, embedding):
        return F.avg_pool2d(x, 2)


class Repeat(nn.Module):
    def forward(self, x, embedding):
        return F.interpolate(x, scale_factor=2, mode="nearest")


class UNet(StagedUNet):
    """x [n, 3, 64, 64], timesteps [n] -> [n, 3, 64, 64]"""

    def __init__(self):
        super().__init__()
        embedding = 4 * CHANNELS
        self.time_embed = nn.Sequential(nn.Linear(CHANNELS, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        width, skips = CHANNELS, [CHANNELS]
        self.input_blocks = nn.ModuleList([Stage([Plain(IMAGE_CHANNELS, width, 3, padding=1)])])

        def stage(level, channels):
            out = (level + 1) * CHANNELS
            return Stage([ResBlock(channels, embedding, out)] + ([Attention(out)] if level >= FIRST_ATTENTION else []))

        for level in range(LEVELS):
            for _ in range(BLOCKS):
                self.input_blocks.append(stage(level, width))
                width = (level + 1) * CHANNELS
                skips.append(width)
            if level + 1 < LEVELS:
                self.input_blocks.append(Stage([Pool()]))
                skips.append(width)
        self.middle_block = Stage([ResBlock(width, embedding, width), Attention(width), ResBlock(width, embedding, width)])
        self.output_blocks = nn.ModuleList()
        for level in reversed(range(LEVELS)):
            for block in range(BLOCKS + 1):
                self.output_blocks.append(stage(level, width + skips.pop()))
                width = (level + 1) * CHANNELS
                if level > 0 and block == BLOCKS:
                    self.output_blocks[-1].append(Repeat())
        self.out = nn.Sequential(nn.GroupNorm(GROUPS, width), nn.SiLU(), nn.Conv2d(width, IMAGE_CHANNELS, 3, padding=1))

    def forward(self, x, timesteps):
        return self.through_blocks(x, self.time_embed(waves(timesteps, CHANNELS, period=MAX_PERIOD).to(x.dtype)))
