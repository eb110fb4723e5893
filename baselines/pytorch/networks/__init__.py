"""The networks of networks/ in PyTorch, by the original checkpoints' names: what ours is held to, and its baseline. Ours and those of papers
without a library are written out here; those of diffusers are its own modules, where it is installed.

`build(name)` gives a module that takes the inputs in the order of the program's; its `one_hot` says how it takes labels, its `numbers` which
drawn inputs stay in fp32.
"""

import functools

from baselines.pytorch.errors import CannotRun
from baselines.pytorch.networks import adm, edm, mnist_unet, moving_digits, stable_diffusion, unetcu

NETWORKS = {"adm64": adm.UNet, "edm-cifar": edm.cifar, "digits": edm.digits, "moving-digits": moving_digits.Preconditioned,
            "mnist-unet": mnist_unet.build, "unetcu": unetcu.UNet}
for module, configurations in ((stable_diffusion.UNet, stable_diffusion.UNETS), (stable_diffusion.VideoUNet, stable_diffusion.VIDEO_UNETS),
                               (stable_diffusion.Decoder, stable_diffusion.DECODERS)):
    NETWORKS |= {name: functools.partial(module, configuration) for name, configuration in configurations.items()}


def build(name):
    """The network with fresh parameters."""
    if name not in NETWORKS:
        raise CannotRun(f"unknown network '{name}'; known: {', '.join(NETWORKS)}")
    return NETWORKS[name]()
