"""Trajectories of diffusers' schedulers over a small function in the place of a network: writes schedulers.csv beside this file.

python3 tests/bench/pipeline/schedulers.py, with diffusers 0.42.1 and PyTorch. A line is the latent, as x0 + sigma noise, before a step; the line
whose step is blank is what is left in the end.
"""

import csv
import math
from pathlib import Path

import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler

SOLVERS = {"ddim": DDIMScheduler, "edm_euler": EulerDiscreteScheduler, "dpmpp_2m": DPMSolverMultistepScheduler}
PREDICTIONS = {"noise": "epsilon", "v": "v_prediction"}
STEPS = (5, 20)
START = 0.7  # of unit variance


def network(x, t):
    """Of a latent of unit variance and the training timestep."""
    return 0.8 * math.sin(2 * x) + 0.1 * math.cos(t / 70)


def trajectory(solver, spacing, offset, final, prediction, steps):
    more = {"set_alpha_to_one": final == "zero", "clip_sample": False} if solver == "ddim" else {}
    scheduler = SOLVERS[solver](beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, timestep_spacing=spacing, steps_offset=offset,
                                prediction_type=PREDICTIONS[prediction], **more)
    scheduler.set_timesteps(steps)
    exploding = solver == "edm_euler"  # its sample is x0 + sigma noise itself
    first = wide_of(scheduler, int(scheduler.timesteps[0]))
    x = torch.tensor([START * (first if exploding else 1)], dtype=torch.float64)
    lines = []
    for t in scheduler.timesteps:
        wide = wide_of(scheduler, int(t))
        seen = x.item() / (wide if exploding else 1)
        lines.append((int(t), seen * wide))
        x = scheduler.step(torch.tensor([network(seen, int(t))], dtype=torch.float64), t, x).prev_sample
    last = 1 if final == "zero" else wide_of(scheduler, 0)
    return [*lines, ("", x.item() * (1 if exploding else last))]


def wide_of(scheduler, t):
    """sqrt(1 + sigma^2): a latent x0 + sigma noise over the one of unit variance."""
    return scheduler.alphas_cumprod[t].double().item() ** -0.5


def main():
    with open(Path(__file__).with_name("schedulers.csv"), "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["solver", "spacing", "offset", "final", "prediction", "steps", "timestep", "x"])
        for solver in SOLVERS:
            for spacing, offset in (("linspace", 0), ("leading", 1), ("trailing", 0)):
                if spacing == "linspace" and solver != "dpmpp_2m":
                    continue  # Euler's timesteps there are no whole numbers, and a step of DDIM does not end at the next one's
                for final in ("zero", "first") if solver == "ddim" else ("zero",):
                    for prediction in PREDICTIONS:
                        for steps in STEPS:
                            for t, x in trajectory(solver, spacing, offset, final, prediction, steps):
                                writer.writerow([solver, spacing, offset, final, prediction, steps, t, f"{x:.9g}"])


if __name__ == "__main__":
    main()
