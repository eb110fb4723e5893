"""Whole sampling loops, 50 deterministic steps, held to PyTorch's from the same noise: digits with its weights on any machine, the large
networks with random ones where there is a GPU. The reference runs in double (digits) or in fp32 without TF32. `-rP` shows the numbers."""

import math
import subprocess

import pytest

from tests.cli.program import PROGRAM, WEIGHTS, needs_program

try:
    import numpy as np
    import torch
    from safetensors.torch import load_file, save_file

    from baselines.pytorch import networks
    from tests.cli.test_networks import random_network
except ImportError:
    torch = None

pytestmark = [needs_program, pytest.mark.skipif(torch is None, reason="needs PyTorch")]
STEPS = 50
LIMITS = {"fp32": 1e-3, "bf16": 5e-2}  # relative L2 of the pictures


def drawn(folder, name, weights, dtype, count, *arguments):
    """What the program draws: images and their noise [count, channels, size, size], labels."""
    result = subprocess.run([PROGRAM, "sample", name, "--weights", weights, "--dtype", dtype, "--steps", str(STEPS), "--count", str(count),
                             "--seed", "5", "--out", folder / "grid.png", "--tensor", folder / "drawn.safetensors", *arguments],
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    tensors = load_file(folder / "drawn.safetensors")
    return tensors["images"], tensors["noise"], tensors["labels"]


def alphas_bar(schedule):
    """[1000] float64: how much of the signal's variance is left at each training step."""
    if schedule == "linear":
        beta = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    else:
        bar = torch.cos((torch.arange(1001, dtype=torch.float64) / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = (1 - bar[1:] / bar[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - beta, 0)


def ddim(predict_noise, x, schedule, clamp):
    """Song et al. 2021, eq. 12, with eta 0; predict_noise(x, t) with t the training timestep."""
    bars = alphas_bar(schedule)
    times = torch.linspace(999, 0, STEPS, dtype=torch.float64).round().long()
    for t, following in zip(times, [*times[1:], None]):
        bar, bar_next = bars[t].item(), 1.0 if following is None else bars[following].item()
        epsilon = predict_noise(x, t.item())
        x0 = (x - math.sqrt(1 - bar) * epsilon) / math.sqrt(bar)
        if clamp:
            x0 = x0.clamp(-clamp, clamp)
            epsilon = (x - math.sqrt(bar) * x0) / math.sqrt(1 - bar)
        x = math.sqrt(bar_next) * x0 + math.sqrt(1 - bar_next) * epsilon
    return x


def edm_heun(denoise, x, sigma_min=0.002, sigma_max=80.0, rho=7.0):
    """Karras et al. 2022, algorithm 2 without churn; x has standard deviation sigma_max already."""
    ramp = torch.linspace(0, 1, STEPS, dtype=torch.float64)
    sigmas = [*((sigma_max ** (1 / rho) + ramp * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))) ** rho).tolist(), 0.0]
    for sigma, following in zip(sigmas, sigmas[1:]):
        slope = (x - denoise(x, sigma)) / sigma
        proposal = x + (following - sigma) * slope
        if following > 0:
            slope = (slope + (proposal - denoise(proposal, following)) / following) / 2
            proposal = x + (following - sigma) * slope
        x = proposal
    return x


def edm_denoiser(network, labels):
    one_hot = torch.eye(10, device=labels.device)[labels]
    return lambda x, sigma: network(x, torch.full((len(x),), sigma, dtype=torch.float64, device=x.device), one_hot)


def noise_of_edm(denoise, schedule):
    """A denoiser of x0 + sigma noise as a predictor of the noise in sqrt(bar) x0 + sqrt(1 - bar) noise."""
    bars = alphas_bar(schedule)

    def predict(x, t):
        bar = bars[t].item()
        sigma, wide = ((1 - bar) / bar) ** 0.5, x / bar**0.5
        return (wide - denoise(wide, sigma)) / sigma

    return predict


def cosine_timestep(t, schedule):
    """The timestep of the cosine schedule, which adm64 was trained with, at the noise level that `schedule` has at t: linear in log sigma."""
    bars = alphas_bar("cosine")
    bar = alphas_bar(schedule)[t]
    return np.interp(np.log((1 - bar) / bar), np.log((1 - bars) / bars), np.arange(len(bars)))


def reference(name, network, sampler, schedule, clamp, noise, labels):
    if name == "adm64":
        def predict(x, t):
            return network(x, torch.full((len(x),), float(cosine_timestep(t, schedule)), device=x.device), labels)[:, :3]
        return ddim(predict, noise, schedule, clamp)
    denoise = edm_denoiser(network, labels)
    if sampler == "edm_heun":
        return edm_heun(denoise, noise * 80)
    return ddim(noise_of_edm(denoise, schedule), noise, schedule, clamp)


def digits():
    network = networks.build("digits").eval().double()
    network.load_state_dict(load_file(WEIGHTS))
    return network


def compare(folder, name, network, weights, count, sampler, schedule, clamp):
    parameter = next(network.parameters())
    # Of a schedule of timesteps all, also those noisier than the network was trained at.
    arguments = ("--sampler", f"{sampler},schedule={schedule},clamp={clamp}" + ("" if schedule == "karras" else ",sigma_max=1e5"))
    expected = None
    for dtype, limit in LIMITS.items():
        images, noise, labels = drawn(folder, name, weights, dtype, count, *arguments)
        if expected is None:  # the noise does not depend on the dtype
            start = noise
            with torch.no_grad():
                expected = reference(name, network, sampler, schedule, clamp, noise.to(parameter), labels.to(parameter.device)).cpu().double()
        assert torch.equal(noise, start)
        assert noise.std() == pytest.approx(1, abs=0.1)
        error = ((images.double() - expected).norm() / expected.norm()).item()
        print(f"{name} {sampler} {schedule} {dtype}: relative L2 {error:.2e}")
        assert error <= limit, (dtype, error)


@pytest.mark.parametrize("sampler, schedule, clamp", [("edm_heun", "karras", 0), ("ddim", "linear", 0), ("ddim", "cosine", 1)])
def test_digits_are_what_pytorch_draws(tmp_path, sampler, schedule, clamp):
    compare(tmp_path, "digits", digits(), WEIGHTS, 4, sampler, schedule, clamp)


# Noise levels that a network is asked at and the way back follow the sampler, so that a sampler which goes another way is far off.
def test_another_sampler_is_not_within_the_limits(tmp_path):
    images, noise, labels = drawn(tmp_path, "digits", WEIGHTS, "fp32", 4, "--sampler", "edm_euler")
    with torch.no_grad():
        expected = reference("digits", digits(), "edm_heun", "karras", 0, noise.double(), labels)
    assert (images - expected).norm() > 2 * LIMITS["fp32"] * expected.norm()


# No clamp with random weights: what they predict is not noise, so x0 is far outside the clamp early on, where a rounding flips whole pixels
# (rounding adm64's weights to bf16 moves its pictures by 1.5e-3 along this loop, by 3.1e-2 along ddim, cosine, clamp 1).
@pytest.mark.parametrize("name, sampler, schedule, clamp",
                         [("edm-cifar", "edm_heun", "karras", 0), ("edm-cifar", "ddim", "linear", 0), ("adm64", "ddim", "linear", 0)])
def test_large_networks_on_a_gpu_are_what_pytorch_draws(tmp_path, monkeypatch, name, sampler, schedule, clamp):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU: 50 steps take minutes to hours on a host")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    network = random_network(name)
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, tmp_path / "weights.safetensors")
    compare(tmp_path, name, network.cuda(), tmp_path / "weights.safetensors", 2, sampler, schedule, clamp)
