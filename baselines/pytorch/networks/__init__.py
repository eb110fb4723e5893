"""The networks of bench/pipeline/networks, written in plain PyTorch from the same checkpoints: what ours is held to, and its baseline.

`build(name, ...)` gives a module whose parameters have the original checkpoint's names.
"""

from baselines.pytorch.errors import CannotRun
from baselines.pytorch.networks import adm, edm

NETWORKS = ("adm64", "edm-cifar", "digits")


def build(name):
    """The network with fresh parameters."""
    if name == "adm64":
        return adm.UNet(adm.ADM64)
    if name in edm.CONFIGURATIONS:
        return edm.Preconditioned(edm.CONFIGURATIONS[name])
    raise CannotRun(f"unknown network '{name}'; known: {', '.join(NETWORKS)}")
