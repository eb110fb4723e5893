"""The networks of networks/ in PyTorch, by the original checkpoints' names: what ours is held to, and its baseline. Ours and those of papers
without a library are written out here; those of diffusers are its own modules, where it is installed.

`build(name)` gives a module that takes the inputs in the order of the program's; its `one_hot` says how it takes labels, its `numbers` which
drawn inputs stay in fp32. Each file has the networks that it builds, by name.
"""

from baselines.pytorch.errors import CannotRun
from baselines.pytorch.networks import adm, edm, moving_digits, stable_diffusion

NETWORKS = {name: (module, configuration)
            for module, configurations in ((adm.UNet, adm.CONFIGURATIONS), (edm.Preconditioned, edm.CONFIGURATIONS),
                                           (moving_digits.Preconditioned, moving_digits.CONFIGURATIONS),
                                           (stable_diffusion.UNet, stable_diffusion.UNETS), (stable_diffusion.VideoUNet, stable_diffusion.VIDEO_UNETS),
                                           (stable_diffusion.Decoder, stable_diffusion.DECODERS))
            for name, configuration in configurations.items()}


def build(name):
    """The network with fresh parameters."""
    if name not in NETWORKS:
        raise CannotRun(f"unknown network '{name}'; known: {', '.join(NETWORKS)}")
    module, configuration = NETWORKS[name]
    return module(configuration)
