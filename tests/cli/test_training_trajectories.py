"""Training held to PyTorch's from the same weights and batches: the first step's gradients, and the losses of all steps, each beside PyTorch in
fp64. `-rP` shows the numbers."""

import csv

import numpy as np
import pytest

from tests.cli.program import WEIGHTS, needs_program, run

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    from baselines.pytorch import networks
except ImportError:
    torch = None

pytestmark = [needs_program, pytest.mark.skipif(torch is None, reason="needs PyTorch")]
BATCH, STEPS, IMAGES, SEED = 16, 12, 40, 3
RATE, BETAS = 1e-3, (0.9, 0.99)
OPTIONS = {"p_mean": -0.4, "p_std": 1.2, "shifted": 0.1, "flipped": 0, "unlabelled": 0.1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trajectory")
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(IMAGES, 1, 8, 8, generator=generator) * 2 - 1
    save_file({"images": images, "labels": torch.arange(IMAGES) % 10}, folder / "data")
    return folder


@pytest.fixture(scope="module")
def trained(data):
    """Ours: losses, and a checkpoint behind the first step. The learning rate is the same in each."""
    result = run("train", "digits", "--device", "host", "--dtype", "fp32", "--data", data / "data", "--weights", WEIGHTS, "--out", data / "out", "--losses",
                 data / "losses", "--batch", BATCH, "--steps", STEPS, "--rate", RATE, "--warm-up", 0, "--final-rate", 1, "--seed", SEED)
    assert result.returncode == 0, result.stderr
    with open(data / "losses", newline="") as file:
        return list(csv.DictReader(file))


def batch_of(data, step):
    """What our step draws, by the op alone: x0, x, sigma, one_hot."""
    tensors = load_file(data / "data")
    save_file({"images": tensors["images"].permute(0, 2, 3, 1).contiguous(), "labels": tensors["labels"].float(),
               "step": torch.tensor([step % 65536, step // 65536], dtype=torch.float32)}, data / "in")
    problem = {"batch": BATCH, "h": 8, "w": 8, "channels": 1, "classes": 10, "dataset": IMAGES, "seed": SEED, "level": "edm", **OPTIONS}
    result = run("run", "training_batch", "--device", "host", "--variant", "host", "--dtype", "fp32", "--counters", "off", "--input", data / "in", "--output",
                 data / "drawn", "--problem", ",".join(f"{name}={value}" for name, value in problem.items()))
    assert result.returncode == 0, result.stderr
    drawn = load_file(data / "drawn")
    return [drawn["x0"].permute(0, 3, 1, 2), drawn["x"].permute(0, 3, 1, 2), drawn["level"], drawn["one_hot"]]


def loss_of(network, batch, dtype):
    x0, x, sigma, one_hot = (tensor.to(dtype) for tensor in batch)
    weight = (sigma**2 + network.sigma_data**2) / (sigma * network.sigma_data) ** 2
    return (weight[:, None, None, None] * (network(x, sigma, one_hot) - x0) ** 2).mean()


def network_of(dtype):
    network = networks.build("digits").to(dtype)
    network.load_state_dict({name: tensor.to(dtype) for name, tensor in load_file(WEIGHTS).items()})
    return network


@pytest.fixture(scope="module")
def batches(data):
    return [batch_of(data, step) for step in range(1, STEPS + 1)]


def test_losses_follow_pytorch(trained, batches):
    def losses(dtype):
        network = network_of(dtype)
        optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, betas=BETAS, weight_decay=0)
        norms, taken = [], []
        for batch in batches:
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(network, batch, dtype)
            loss.backward()
            norms.append(torch.nn.utils.get_total_norm(p.grad for p in network.parameters()).item())
            optimizer.step()
            taken.append(loss.item())
        return np.array(taken), np.array(norms)

    exact, exact_norms = losses(torch.float64)
    theirs, _ = losses(torch.float32)
    ours = np.array([float(row["loss"]) for row in trained])
    norms = np.array([float(row["gradient_norm"]) for row in trained])
    distance, allowed = (np.sqrt(np.mean((one - exact) ** 2)) for one in (ours, theirs))
    print(f"{STEPS} losses from {exact[0]:.4f} to {exact[-1]:.4f}; distance from fp64: ours {distance:.3g}, PyTorch's {allowed:.3g}")
    assert abs(ours[0] / exact[0] - 1) < 1e-5 and abs(norms[0] / exact_norms[0] - 1) < 1e-4
    assert distance <= 2 * allowed + 1e-6 * exact.mean()


def test_gradients_are_pytorchs(data, batches):
    """A checkpoint's first moment behind one step is the gradient, where beta1 is 0."""
    result = run("train", "digits", "--device", "host", "--dtype", "fp32", "--data", data / "data", "--weights", WEIGHTS, "--out", data / "one", "--batch",
                 BATCH, "--steps", 1, "--betas", "0,0.99", "--seed", SEED, "--checkpoint", data / "checkpoint")
    assert result.returncode == 0, result.stderr
    with safe_open(data / "checkpoint", "pt") as file:
        m, layout = file.get_tensor("m"), file.metadata()["layout of the states"]
    network = network_of(torch.float64)
    loss_of(network, batches[0], torch.float64).backward()
    expected = {name: parameter.grad for name, parameter in network.named_parameters()}
    worst, scale = {}, max(gradient.abs().max().item() for gradient in expected.values())
    for line in layout.splitlines():
        name, first, shape = line.split("\t")
        shape = [int(extent) for extent in shape.split(",")]
        ours, gradient = m[int(first):int(first) + int(np.prod(shape))].reshape(shape).double(), expected.pop(name)
        if ".qkv." in name:  # channel-wise q, k, v there; all q, all k, all v here
            gradient = gradient.reshape(-1, 3, *gradient.shape[1:]).transpose(0, 1).reshape(gradient.shape)
        if gradient.dim() == 4:
            gradient = gradient.permute(0, 2, 3, 1)
        error = ((ours - gradient.reshape(shape)).norm() / (gradient.norm() + 1e-6 * scale)).item()
        worst[name] = error
    assert not expected, "each parameter has a gradient"
    name = max(worst, key=worst.get)
    print(f"largest relative L2 error of a gradient: {worst[name]:.3g}, of {name}")
    assert worst[name] < 1e-4
