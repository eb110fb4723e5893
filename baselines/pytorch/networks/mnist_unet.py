"""`mnist-unet`, a plain U-Net of handwritten digits (Ronneberger et al., "U-Net", MICCAI 2015): two 3x3 convolutions with ReLU a level, convolutions of
stride 2 down, transposed ones up; under the preconditioning of Karras et al. NCHW, as PyTorch has it.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from baselines.pytorch.networks.edm import CLASSES, Preconditioned, waves


class Level(nn.Module):
    def __init__(self, channels, out, embedding):
        super().__init__()
        self.embed = nn.Linear(embedding, out)
        self.conv0 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv1 = nn.Conv2d(out, out, 3, padding=1)

    def forward(self, x, embedding):
        h = F.relu(self.conv0(x) + self.embed(embedding)[:, :, None, None])
        return F.relu(self.conv1(h))


class UNet(nn.Module):
    """x [n, image_channels, h, w], noise [n], labels [n, classes] (one-hot) -> [n, image_channels, h, w]"""

    def __init__(self, channels=(64, 128, 256), embedding=256, image_channels=1, classes=CLASSES):
        super().__init__()
        self.width = channels[0]
        self.map_label = nn.Linear(classes, self.width, bias=False)
        self.map_layer0 = nn.Linear(self.width, embedding)
        self.map_layer1 = nn.Linear(embedding, embedding)
        below = [image_channels, *channels]
        self.encoder = nn.ModuleList([Level(below[i], out, embedding) for i, out in enumerate(channels)])
        self.down = nn.ModuleDict({str(i): nn.Conv2d(channels[i - 1], channels[i - 1], 3, stride=2, padding=1) for i in range(1, len(channels))})
        self.up = nn.ModuleList([nn.ConvTranspose2d(channels[i + 1], channels[i], 2, stride=2) for i in range(len(channels) - 1)])
        self.decoder = nn.ModuleList([Level(2 * out, out, embedding) for out in channels[:-1]])
        self.out = nn.Conv2d(channels[0], image_channels, 3, padding=1)

    def forward(self, x, noise, labels=None):
        embedding = waves(noise, self.width).to(x.dtype)
        if labels is not None:
            embedding = embedding + self.map_label(labels.to(x.dtype) * math.sqrt(labels.shape[1]))
        embedding = F.silu(self.map_layer1(F.silu(self.map_layer0(embedding))))
        skips = []
        for i, level in enumerate(self.encoder):
            if i > 0:
                skips.append(x)
                x = self.down[str(i)](x)
            x = level(x, embedding)
        for i in reversed(range(len(self.decoder))):
            x = self.decoder[i](torch.cat([self.up[i](x), skips.pop()], dim=1), embedding)
        return self.out(x)


def build():
    return Preconditioned(UNet())
