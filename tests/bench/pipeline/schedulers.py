"""Trajectories of diffusers' schedulers over a small function in the place of a network: writes schedulers.csv beside this file.

python3 tests/bench/pipeline/schedulers.py, with diffusers 0.42.1 and PyTorch. A line is a loop: the timesteps that the network is told (of a step that
asks twice, the first), and the latents, as x0 + sigma noise, before each step and in the end.
"""

import csv
import math
from pathlib import Path

import diffusers
import torch
from diffusers.schedulers import scheduling_ddpm

SOLVERS = {"ddpm": diffusers.DDPMScheduler, "ddim": diffusers.DDIMScheduler, "edm_euler": diffusers.EulerDiscreteScheduler,
           "edm_heun": diffusers.HeunDiscreteScheduler, "dpmpp_2m": diffusers.DPMSolverMultistepScheduler, "pndm": diffusers.PNDMScheduler}
PREDICTIONS = {"noise": "epsilon", "v": "v_prediction"}
STEPS = (2, 3, 5, 10, 20, 25, 50)
TRAINED = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}  # sd15 and sdxl
START = 0.7  # of unit variance
LEADING, LINSPACE, TRAILING = ("leading", 1), ("linspace", 0), ("trailing", 0)
# solver, karras or not, spacing with its offset, where the last step ends, prediction, eta
LOOPS = [
    *(("pndm", False, LEADING, final, prediction, 0) for final in ("zero", "first") for prediction in PREDICTIONS),
    ("pndm", False, TRAILING, "zero", "noise", 0),
    *(("dpmpp_2m", True, LINSPACE, "zero", prediction, 0) for prediction in PREDICTIONS),
    *(("dpmpp_2m", False, spacing, "zero", "noise", 0) for spacing in (LEADING, LINSPACE, TRAILING)),
    ("dpmpp_2m", False, LEADING, "first", "noise", 0),
    ("dpmpp_2m", False, LEADING, "zero", "v", 0),
    *(("edm_euler", True, LINSPACE, "zero", prediction, 0) for prediction in PREDICTIONS),
    *(("edm_euler", False, spacing, "zero", "noise", 0) for spacing in (LEADING, LINSPACE, TRAILING)),
    ("edm_euler", False, LEADING, "first", "v", 0),
    ("edm_heun", True, LINSPACE, "zero", "noise", 0),
    ("edm_heun", False, LINSPACE, "zero", "v", 0),
    ("edm_heun", False, LEADING, "zero", "noise", 0),
    *(("ddim", False, LEADING, final, prediction, 0) for final in ("zero", "first") for prediction in PREDICTIONS),
    ("ddim", False, TRAILING, "zero", "noise", 0),
    ("ddim", False, LEADING, "zero", "noise", 1),
    ("ddpm", False, LEADING, "zero", "noise", 0),
    ("ddpm", False, TRAILING, "zero", "noise", 0),
]


def network(x, t):
    """Of a latent of unit variance and the training timestep."""
    return 0.8 * math.sin(2 * x) + 0.1 * math.cos(t / 70)


def noise(step):
    """In the place of random numbers."""
    return math.cos(3 * step)


def scheduler_of(solver, karras, spacing, offset, final, prediction):
    zero = final == "zero"
    more = {"ddpm": {"clip_sample": False}, "ddim": {"set_alpha_to_one": zero, "clip_sample": False}, "pndm": {"set_alpha_to_one": zero, "skip_prk_steps": True},
            "edm_euler": {"use_karras_sigmas": karras, "final_sigmas_type": "zero" if zero else "sigma_min"}, "edm_heun": {"use_karras_sigmas": karras},
            "dpmpp_2m": {"use_karras_sigmas": karras, "final_sigmas_type": "zero" if zero else "sigma_min"}}
    return SOLVERS[solver](**TRAINED, timestep_spacing=spacing, steps_offset=offset, prediction_type=PREDICTIONS[prediction], **more[solver])


def trajectory(scheduler, solver, final, eta, steps):
    """Timesteps and latents of each step, and the last latents."""
    scheduler.set_timesteps(steps)
    exploding = solver in ("edm_euler", "edm_heun")  # its sample is x0 + sigma noise itself

    def wide_at(call):
        """sqrt(1 + sigma^2): a latent x0 + sigma noise over the one of unit variance."""
        if hasattr(scheduler, "sigmas"):
            return math.hypot(1, scheduler.sigmas[call].item())
        return scheduler.alphas_cumprod[int(scheduler.timesteps[call])].double().item() ** -0.5

    x = torch.tensor([[START * float(scheduler.init_noise_sigma)]], dtype=torch.float64)
    times, latents = [], []
    for call, t in enumerate(scheduler.timesteps):
        wide = wide_at(call)
        seen = x.item() / (wide if exploding else 1)
        second = call == 1 if solver == "pndm" else solver == "edm_heun" and call % 2 == 1
        if not second:
            times.append(float(t))
            latents.append(seen * wide)
        z = torch.tensor([[noise(len(times) - 1)]], dtype=torch.float64)
        scheduling_ddpm.randn_tensor = lambda *_, **__: z
        more = {"eta": eta, "variance_noise": z} if eta else {}
        x = scheduler.step(torch.tensor([[network(seen, float(t))]], dtype=torch.float64), t, x, **more).prev_sample
    last = 1 if final == "zero" else scheduler.alphas_cumprod[0].double().item() ** -0.5
    return times, [*latents, x.item() * (1 if exploding else last)]


def main():
    with open(Path(__file__).with_name("schedulers.csv"), "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["solver", "schedule", "spacing", "offset", "final", "prediction", "eta", "steps", "timesteps", "latents"])
        for solver, karras, (spacing, offset), final, prediction, eta in LOOPS:
            for steps in STEPS:
                if solver in ("ddim", "pndm") and spacing == "trailing" and 1000 % steps != 0:
                    continue  # its steps end at 1000 // steps below, where the next one does not begin: docs/pipelines.md
                times, latents = trajectory(scheduler_of(solver, karras, spacing, offset, final, prediction), solver, final, eta, steps)
                writer.writerow([solver, "karras" if karras else TRAINED["beta_schedule"], spacing, offset, final, prediction, eta, steps,
                                 " ".join(f"{t:.7g}" for t in times), " ".join(f"{x:.9g}" for x in latents)])


if __name__ == "__main__":
    main()
