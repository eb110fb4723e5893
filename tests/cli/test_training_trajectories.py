"""Training held to PyTorch's from the same weights and batches: the first step's gradients, and the losses of all steps, each beside PyTorch in
fp64. `-rP` shows the numbers."""


import numpy as np
import pytest

from tests.cli.program import WEIGHTS, needs_program, read_table, run

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
EDM = {"classes": 10, "level": "edm", "p_mean": -0.4, "unlabelled": 0.1}
# Batch, frames of each (0: no video), channels, side, and what a batch is drawn by.
NETWORKS = {"digits": (BATCH, 0, 1, 8, EDM | {"p_std": 1.2, "shifted": 0.1}), "mnist-unet": (3, 0, 1, 32, EDM | {"p_std": 1.4}),
            "moving-digits": (2, 16, 1, 16, EDM | {"p_mean": 0.4, "p_std": 1.4}), "unetcu": (1, 0, 3, 64, {"level": "ddpm", "schedule": "linear"})}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Of each network images, and weights to begin with."""
    folder = tmp_path_factory.mktemp("trajectory")
    generator = torch.Generator().manual_seed(0)
    for name, (_, frames, channels, side, _) in NETWORKS.items():
        images = torch.rand(IMAGES, *([frames] if frames else []), channels, side, side, generator=generator) * 2 - 1
        save_file({"images": images, "labels": torch.arange(IMAGES) % 10}, folder / name)
        if name != "digits":
            torch.manual_seed(0)
            network = networks.build(name)
            with torch.no_grad():
                for key, parameter in network.named_parameters():
                    if key.endswith("mix_factor"):
                        parameter.normal_()
            save_file(network.state_dict(), folder / f"{name}-weights")
    # As train_unet.py writes them.
    header = np.zeros(256, np.int32)
    header[:8] = 12345678, 32, 3, 64, 3, 64, 64, 1000
    with open(folder / "unetcu.bin", "wb") as file:
        file.write(header.tobytes())
        for parameter in network.parameters():
            file.write(parameter.detach().numpy().tobytes())
    return folder


def weights_of(data, name):
    return WEIGHTS if name == "digits" else data / f"{name}-weights"


@pytest.fixture(scope="module")
def trained(data):
    """Ours: losses, and a checkpoint behind the first step. The learning rate is the same in each."""
    result = run("train", "digits", "--device", "host", "--dtype", "fp32", "--data", data / "digits", "--weights", WEIGHTS, "--out", data / "out", "--losses",
                 data / "losses", "--batch", BATCH, "--steps", STEPS, "--rate", RATE, "--warm-up", 0, "--final-rate", 1, "--seed", SEED)
    assert result.returncode == 0, result.stderr
    return read_table(data / "losses")


def batch_of(data, name, step):
    """What our step draws, by the op alone: its tensors by their names."""
    batch, frames, channels, side, options = NETWORKS[name]
    tensors, height = load_file(data / name), max(1, frames) * side
    inputs = {"images": tensors["images"].movedim(-3, -1).reshape(IMAGES, height, side, channels).contiguous(), "step": torch.tensor([step % 65536, step // 65536], dtype=torch.float32)}
    if "classes" in options:
        inputs["labels"] = tensors["labels"].float()
    save_file(inputs, data / "in")
    problem = {"batch": batch, "h": height, "w": side, "channels": channels, "dataset": IMAGES, "seed": SEED, **options}
    result = run("run", "training_batch", "--device", "host", "--variant", "host", "--dtype", "fp32", "--counters", "off", "--input", data / "in", "--output",
                 data / "drawn", "--problem", ",".join(f"{name}={value}" for name, value in problem.items()))
    assert result.returncode == 0, result.stderr
    drawn = load_file(data / "drawn")
    for key in ("x0", "x", "noise"):
        if key in drawn:
            drawn[key] = drawn[key].reshape(tensors["images"].movedim(-3, -1)[:batch].shape).movedim(-1, -3)
    return drawn


def loss_of(network, batch, dtype):
    drawn = {key: tensor.to(dtype) for key, tensor in batch.items()}
    if "noise" in drawn:
        return ((network(drawn["x"], drawn["level"]) - drawn["noise"]) ** 2).mean()
    sigma = drawn["level"]
    weight = (sigma**2 + network.sigma_data**2) / (sigma * network.sigma_data) ** 2
    return (weight.reshape(-1, *[1] * (drawn["x"].dim() - 1)) * (network(drawn["x"], sigma, drawn["one_hot"]) - drawn["x0"]) ** 2).mean()


def network_of(data, name, dtype):
    network = networks.build(name).to(dtype)
    network.load_state_dict({key: tensor.to(dtype) for key, tensor in load_file(weights_of(data, name)).items()})
    return network


def test_losses_follow_pytorch(trained, data):
    batches = [batch_of(data, "digits", step) for step in range(1, STEPS + 1)]

    def losses(dtype):
        network = network_of(data, "digits", dtype)
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


def share_of(weights, key):
    """What a blend takes of a weight, which ours trains with that factor in it."""
    for last in (".temporal_res_block.conv2.", ".temporal.proj."):
        if last in key:
            return 1 - weights[key.split(last)[0] + ".time_mixer.mix_factor"].double().sigmoid()
    return 1


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_pytorchs(data, name):
    """A checkpoint's first moment behind one step is the gradient, where beta1 is 0."""
    (data / "checkpoint").unlink(missing_ok=True)
    result = run("train", name, "--device", "host", "--dtype", "fp32", "--data", data / name, "--out", data / "one", "--weights",
                 data / "unetcu.bin" if name == "unetcu" else weights_of(data, name), "--batch", NETWORKS[name][0], "--steps", 1, "--betas", "0,0.99", "--seed", SEED, "--checkpoint", data / "checkpoint")
    assert result.returncode == 0, result.stderr
    with safe_open(data / "checkpoint", "pt") as file:
        m, layout = file.get_tensor("m"), file.metadata()["layout of the states"]
    network = network_of(data, name, torch.float64)
    loss_of(network, batch_of(data, name, 1), torch.float64).backward()
    state = network.state_dict()
    expected = {key: parameter.grad / share_of(state, key) for key, parameter in network.named_parameters() if not key.endswith("mix_factor")}
    worst, scale = {}, max(gradient.abs().max().item() for gradient in expected.values())
    for line in layout.splitlines():
        key, first, shape = line.split("\t")
        shape = [int(extent) for extent in shape.split(",")]
        if key.endswith("mix_factor"):  # of a blend: decay alone moves it
            assert m[int(first)] == 0
            continue
        ours, gradient = m[int(first):int(first) + int(np.prod(shape))].reshape(shape).double(), expected.pop(key)
        if name == "digits" and ".qkv." in key:  # channel-wise q, k, v there; all q, all k, all v here
            gradient = gradient.reshape(-1, 3, *gradient.shape[1:]).transpose(0, 1).reshape(gradient.shape)
        if gradient.dim() == 4:
            gradient = gradient.permute((1, 2, 3, 0) if ".up." in key and name != "moving-digits" else (0, 2, 3, 1))  # of a transposed convolution
        if gradient.dim() == 5:
            gradient = gradient.movedim(1, -1)
        error = ((ours - gradient.reshape(shape)).norm() / (gradient.norm() + 1e-6 * scale)).item()
        worst[key] = error
    assert not expected, "each parameter has a gradient"
    key = max(worst, key=worst.get)
    print(f"{name}: largest relative L2 error of a gradient: {worst[key]:.3g}, of {key}")
    assert worst[key] < 1e-4
