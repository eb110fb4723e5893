"""The networks of networks/, written in plain PyTorch from the same checkpoints: what ours is held to, and its baseline.

`build(name)` gives a module whose parameters have the original checkpoint's names; its `one_hot` says how it takes labels. Each file has the
networks that it builds, by name.
"""

from baselines.pytorch.errors import CannotRun
from baselines.pytorch.networks import adm, edm, moving_digits

NETWORKS = {name: (module, configuration)
            for module, configurations in ((adm.UNet, adm.CONFIGURATIONS), (edm.Preconditioned, edm.CONFIGURATIONS),
                                           (moving_digits.Preconditioned, moving_digits.CONFIGURATIONS))
            for name, configuration in configurations.items()}


def build(name):
    """The network with fresh parameters."""
    if name not in NETWORKS:
        raise CannotRun(f"unknown network '{name}'; known: {', '.join(NETWORKS)}")
    module, configuration = NETWORKS[name]
    return module(configuration)
