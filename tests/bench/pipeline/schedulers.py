"""Trajectories of diffusers' schedulers over a small function in the place of a network: writes schedulers.csv beside this file.

python3 tests/bench/pipeline/schedulers.py, with diffusers 0.42.1 and PyTorch. A line is the latent, as x0 + sigma noise, before a step; the line
whose step is blank is what is left in the end.
"""

import csv
import math
from pathlib import Path

import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler, PNDMScheduler

SOLVERS = {"ddim": DDIMScheduler, "edm_euler": EulerDiscreteScheduler, "dpmpp_2m": DPMSolverMultistepScheduler, "pndm": PNDMScheduler}
PREDICTIONS = {"noise": "epsilon", "v": "v_prediction"}
STEPS = (5, 20)
ENDS = {"ddim": ("zero", "first"), "edm_euler": ("zero",), "dpmpp_2m": ("zero", "first"), "pndm": ("first",)}
START = 0.7  # of unit variance


def network(x, t):
    """Of a latent of unit variance and the training timestep."""
    return 0.8 * math.sin(2 * x) + 0.1 * math.cos(t / 70)


def trajectory(solver, spacing, offset, final, prediction, steps):
    more = {"ddim": {"set_alpha_to_one": final == "zero", "clip_sample": False}, "pndm": {"set_alpha_to_one": final == "zero", "skip_prk_steps": True},
            "dpmpp_2m": {"final_sigmas_type": "zero" if final == "zero" else "sigma_min", "lower_order_final": False}}
    scheduler = SOLVERS[solver](beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, timestep_spacing=spacing, steps_offset=offset,
                                prediction_type=PREDICTIONS[prediction], **more.get(solver, {}))
    scheduler.set_timesteps(steps)
    exploding = solver == "edm_euler"  # its sample is x0 + sigma noise itself
    first = wide_of(scheduler, int(scheduler.timesteps[0]))
    x = torch.tensor([START * (first if exploding else 1)], dtype=torch.float64)
    lines = []
    for call, t in enumerate(scheduler.timesteps):
        wide = wide_of(scheduler, int(t))
        seen = x.item() / (wide if exploding else 1)
        if solver != "pndm" or call != 1:  # that call is the first step's second
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
                if solver == "pndm" and spacing != "leading":
                    continue  # as Stable Diffusion has it
                for final in ENDS[solver]:
                    if solver == "dpmpp_2m" and final == "first" and spacing != "leading":
                        continue  # its logarithms in fp32 are off by more than the test allows, in 5 steps
                    for prediction in PREDICTIONS if solver != "pndm" else ("noise",):  # it mixes outputs, not slopes
                        for steps in STEPS:
                            for t, x in trajectory(solver, spacing, offset, final, prediction, steps):
                                writer.writerow([solver, spacing, offset, final, prediction, steps, t, f"{x:.9g}"])


if __name__ == "__main__":
    main()
