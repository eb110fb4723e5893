"""Writes what test_forward.py holds the shipped weights of moving-digits to: inputs, and the plain PyTorch network's output in fp32 on the CPU.

usage: python3 -m tests.cli.record_forward      after a training; needs PyTorch
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from baselines.pytorch import networks

ROOT = Path(__file__).resolve().parents[2]


def main():
    network = networks.build("moving-digits").eval()
    network.load_state_dict(load_file(ROOT / "bench/pipeline/weights/moving-digits.safetensors"))
    inputs = {"x": torch.randn(2, 6, 1, 12, 16, generator=torch.Generator().manual_seed(0)), "sigma": torch.tensor([0.3, 4.0]),
              "labels": torch.tensor([3, 9])}
    with torch.no_grad():
        output = network(inputs["x"], inputs["sigma"], torch.eye(10)[inputs["labels"]])
    save_file({**inputs, "output": output.contiguous()}, Path(__file__).with_name("moving_digits_forward.safetensors"))


if __name__ == "__main__":
    main()
