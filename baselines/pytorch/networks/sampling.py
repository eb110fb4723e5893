"""The samplers written as their papers have them, in double where only numbers of the schedule are concerned.

`denoise(x, level)` gives the denoised image at a noise level; `vp_denoiser` and the preconditioned network itself are such functions.
"""

import math

import torch

TRAINING_STEPS = 1000


def alphas_bar(schedule):
    """[1000] float64: how much of the signal's variance is left at each training step."""
    t = torch.arange(TRAINING_STEPS, dtype=torch.float64)
    if schedule == "linear":
        beta = torch.linspace(1e-4, 0.02, TRAINING_STEPS, dtype=torch.float64)
    elif schedule == "scaled_linear":
        beta = torch.linspace(0.00085**0.5, 0.012**0.5, TRAINING_STEPS, dtype=torch.float64) ** 2
    elif schedule == "cosine":
        def bar(u):
            return torch.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = (1 - bar((t + 1) / TRAINING_STEPS) / bar(t / TRAINING_STEPS)).clamp(max=0.999)
    else:
        raise ValueError(f"unknown schedule '{schedule}'")
    return torch.cumprod(1 - beta, 0)


def spaced_timesteps(steps):
    return torch.linspace(TRAINING_STEPS - 1, 0, steps, dtype=torch.float64).round().long()


def karras_sigmas(steps, sigma_min=0.002, sigma_max=80.0, rho=7.0):
    ramp = torch.linspace(0, 1, steps, dtype=torch.float64)
    sigmas = (sigma_max ** (1 / rho) + ramp * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))) ** rho
    return torch.cat([sigmas, torch.zeros(1, dtype=torch.float64)])


def ddim(predict_noise, x, steps, schedule, eta=0.0, noise=None, clamp=0.0):
    """Song et al. 2021, eq. 12; predict_noise(x, t) with t the training timestep; noise(step, x) for eta > 0."""
    bars = alphas_bar(schedule)
    times = spaced_timesteps(steps)
    for step, t in enumerate(times):
        bar = bars[t].item()
        bar_next = bars[times[step + 1]].item() if step + 1 < steps else 1.0
        epsilon = predict_noise(x, t.item())
        x0 = (x - math.sqrt(1 - bar) * epsilon) / math.sqrt(bar)
        if clamp:
            x0 = x0.clamp(-clamp, clamp)
            epsilon = (x - math.sqrt(bar) * x0) / math.sqrt(1 - bar)
        sigma = eta * math.sqrt((1 - bar_next) / (1 - bar) * (1 - bar / bar_next))
        x = math.sqrt(bar_next) * x0 + math.sqrt(max(1 - bar_next - sigma**2, 0)) * epsilon
        if sigma:
            x = x + sigma * noise(step, x)
    return x


def edm_heun(denoise, x, steps, second_order=True, churn=0.0, noise=None):
    """Karras et al. 2022, algorithm 2 with S_min = 0, S_max = infinity, S_noise = 1; x has standard deviation sigma_max already."""
    sigmas = karras_sigmas(steps)
    gamma = min(churn / steps, math.sqrt(2) - 1)
    for step in range(steps):
        sigma, following = sigmas[step].item(), sigmas[step + 1].item()
        if gamma:
            raised = sigma * (1 + gamma)
            x = x + math.sqrt(raised**2 - sigma**2) * noise(step, x)
            sigma = raised
        slope = (x - denoise(x, sigma)) / sigma
        proposal = x + (following - sigma) * slope
        if second_order and following > 0:
            slope = (slope + (proposal - denoise(proposal, following)) / following) / 2
            proposal = x + (following - sigma) * slope
        x = proposal
    return x


def dpmpp_2m(denoise, x, steps):
    """Lu et al. 2022, algorithm 2, on x0 + sigma noise, sigmas of Karras et al.; first order first and last."""
    sigmas = karras_sigmas(steps)
    before = None
    for step in range(steps):
        sigma, following = sigmas[step].item(), sigmas[step + 1].item()
        x0 = denoise(x, sigma)
        if following == 0:
            x = x0
        else:
            h = math.log(sigma / following)
            target = x0
            if before is not None:
                h_before = math.log(sigmas[step - 1].item() / sigma)
                target = x0 + h / (2 * h_before) * (x0 - before)
            x = following / sigma * x - math.expm1(-h) * target
        before = x0
    return x
