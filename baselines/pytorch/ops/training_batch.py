"""The batch of a training step, drawn as PyTorch's users draw it. Its numbers are its own: judged by what they must be."""

import torch

from baselines.pytorch.ops import judge_noise

TIMESTEPS = 1000


def alpha_bars(schedule, device):
    if schedule == "cosine":
        u = torch.arange(TIMESTEPS + 1, dtype=torch.float64, device=device) / TIMESTEPS
        squares = torch.cos((u + 0.008) / 1.008 * torch.pi / 2) ** 2
        beta = (1 - squares[1:] / squares[:-1]).clamp(max=0.999)
    else:
        beta = torch.linspace(1e-4, 0.02, TIMESTEPS, dtype=torch.float64, device=device)
    return torch.cumprod(1 - beta, 0).float()


def arrange(problem, inputs):
    """With the schedule, which a user has on the device."""
    images = inputs["images"]
    return inputs | ({"alpha_bars": alpha_bars(problem.choice("schedule"), images.device)} if problem.choice("level") == "ddpm" else {})


def moved(images, shifted, flipped):
    batch, h, w, _ = images.shape
    device = images.device
    if flipped > 0:
        images = torch.where(torch.rand(batch, 1, 1, 1, device=device) < flipped, images.flip(2), images)
    if shifted > 0:
        padded = torch.nn.functional.pad(images, (0, 0, 1, 1, 1, 1), value=-1)
        offsets = torch.where(torch.rand(batch, 1, device=device) < shifted, torch.randint(0, 3, (batch, 2), device=device), 1)
        rows, columns = offsets[:, :1] + torch.arange(h, device=device), offsets[:, 1:] + torch.arange(w, device=device)
        images = padded[torch.arange(batch, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return images


def build(problem):
    batch, classes, dtype = problem.integer("batch"), problem.integer("classes"), problem.dtype
    shifted, flipped, unlabelled, mean, deviation = (problem.real(name) for name in ("shifted", "flipped", "unlabelled", "p_mean", "p_std"))

    def run(inputs):
        images = inputs["images"]
        chosen = torch.randint(0, len(images), (batch,), device=images.device)
        x0 = moved(images[chosen], shifted, flipped)
        noise = torch.randn_like(x0)
        if "alpha_bars" in inputs:
            level = torch.randint(0, TIMESTEPS, (batch,), device=images.device)
            alpha_bar = inputs["alpha_bars"][level][:, None, None, None]
            outputs = (x0, alpha_bar.sqrt() * x0 + (1 - alpha_bar).sqrt() * noise, noise, level.float())
        else:
            level = torch.exp(deviation * torch.randn(batch, device=images.device) + mean)
            outputs = (x0, x0 + level[:, None, None, None] * noise, level)
        if classes > 0:
            one_hot = torch.arange(classes, device=images.device) == inputs["labels"][chosen][:, None]
            outputs += ((one_hot & (torch.rand(batch, 1, device=images.device) >= unlabelled)).to(dtype),)
        return outputs

    return run


def reference(problem, inputs):
    return None


def check(problem, inputs, outputs):
    """The noise that was added must be standard normal, and a label that of one class at most."""
    ddpm, classes = problem.choice("level") == "ddpm", problem.integer("classes")
    if len(outputs) != 3 + ddpm + (classes > 0):
        return f"{len(outputs)} outputs"
    x0, x, level = outputs[0].double(), outputs[1].double(), outputs[2 + ddpm].double()
    if x.shape != (problem.integer("batch"), *inputs["images"].shape[1:]) or not all(torch.isfinite(one).all() for one in outputs):
        return f"images of shape {tuple(x.shape)}, or a number that is not finite"
    if ddpm:
        noise = outputs[2].double()
        alpha_bar = inputs["alpha_bars"].double()[level.long()][:, None, None, None]
        if not (x - alpha_bar.sqrt() * x0 - (1 - alpha_bar).sqrt() * noise).abs().max().item() <= 1e-5:
            return "the noise that is returned is not what was added"
    else:
        noise = (x - x0) / level[:, None, None, None]
        noise = noise[level > 0.01]  # below that, roundings of the image drown the noise
    if classes > 0 and not (((outputs[-1] == 0) | (outputs[-1] == 1)).all() and (outputs[-1].sum(1) <= 1).all()):
        return "a label that is not one class or none"
    return judge_noise(noise, 1e-4, 1e-4) if noise.numel() else ""
