"""Latents that diffusers' loops draw of a checkpoint whose folder says other than the published ones' do: writes checkpoint_settings.json, the
schedulers' configurations, and checkpoint_settings.safetensors, the latents, beside this file. checkpoint_settings_test.cpp draws the same.

usage: python3 -m tests.bench.pipeline.checkpoint_settings, with diffusers 0.42.1 and PyTorch

Networks, first noise and text are those of diffusers_pipeline.py, of the first picture; the networks compute in fp64.
"""

import json

import diffusers
import torch
from safetensors.torch import load_file

from tests.bench.pipeline.diffusers_pipeline import LATENT, draw
from tests.bench.pipeline.diffusers_unet import FOLDER, SMALL, SMALL_XL, loaded, require_pinned, save

STEPS, GUIDANCE = 5, 2
V = {"prediction_type": "v_prediction"}
ZERO_SNR = {**LATENT, **V, "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
NO_CLIP = {"clip_sample": False}
BETAS = [round(0.0005 + 0.012 * (t / 999) ** 3, 6) for t in range(1000)]
# Network, class, configuration. The first three are the published ones' but for what they predict.
CASES = {
    "sd15-v": ("sd15", "PNDM", {**LATENT, **V, "skip_prk_steps": True, "steps_offset": 1}),
    "sdxl-v": ("sdxl", "EulerDiscrete", {**LATENT, **V, "timestep_spacing": "leading", "steps_offset": 1}),
    "v-to-one": ("sd15", "PNDM", {**LATENT, **V, "skip_prk_steps": True, "steps_offset": 1, "set_alpha_to_one": True}),
    "v-ddim": ("sd15", "DDIM", {**LATENT, **V, **NO_CLIP, "set_alpha_to_one": False, "steps_offset": 1}),
    "v-dpm": ("sd15", "DPMSolverMultistep", {**LATENT, **V}),
    "v-heun": ("sd15", "HeunDiscrete", {**LATENT, **V}),
    "zero-snr-ddim": ("sd15", "DDIM", {**ZERO_SNR, **NO_CLIP}),
    "zero-snr-euler": ("sd15", "EulerDiscrete", ZERO_SNR),
    "zero-snr-dpm": ("sd15", "DPMSolverMultistep", ZERO_SNR),
    "zero-snr-sdxl": ("sdxl", "EulerDiscrete", ZERO_SNR),
    "x0": ("sd15", "DDIM", {**LATENT, **NO_CLIP, "prediction_type": "sample"}),
    "betas": ("sd15", "EulerDiscrete", {"beta_start": 0.0015, "beta_end": 0.0195}),  # linear, linspace
    "trained-betas": ("sd15", "DDIM", {**NO_CLIP, "trained_betas": BETAS, "timestep_spacing": "trailing"}),
    "cosine": ("sd15", "DDIM", {**V, **NO_CLIP, "beta_schedule": "squaredcos_cap_v2", "timestep_spacing": "trailing"}),
    "karras-dpm": ("sd15", "DPMSolverMultistep", {**LATENT, "use_karras_sigmas": True}),
    "karras-euler": ("sdxl", "EulerDiscrete", {**LATENT, "use_karras_sigmas": True, "timestep_spacing": "leading", "steps_offset": 1}),
    "karras-range": ("sd15", "EulerDiscrete", {**LATENT, "use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 10.0}),
}


def network_of(name):
    unet, recorded = {"sd15": (loaded(SMALL, "small_unet"), "small_pipeline"), "sdxl": (loaded(SMALL_XL, "small_sdxl"), "small_sdxl_pipeline")}[name]
    return unet.double(), {key: tensor[:1].double() for key, tensor in load_file(FOLDER / f"{recorded}.safetensors").items()}


def main():
    require_pinned()
    networks = {name: network_of(name) for name in ("sd15", "sdxl")}
    latents, cases = {}, {}
    for name, (network, kind, configuration) in CASES.items():
        scheduler = getattr(diffusers, f"{kind}Scheduler")(**configuration)
        with torch.no_grad():
            latents[name] = draw(*networks[network], scheduler, GUIDANCE, STEPS).float()
        # As it is saved: every setting, the class's defaults too.
        cases[name] = {"network": network, "scheduler": json.loads(scheduler.to_json_string())}
    save("checkpoint_settings", latents)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    text = f'{{\n  "steps": {STEPS}, "guidance": {GUIDANCE},\n{lines}\n}}\n'
    (FOLDER / "checkpoint_settings.json").write_text(text)


if __name__ == "__main__":
    main()
