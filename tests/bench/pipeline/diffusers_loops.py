"""Latents that other schedulers of diffusers draw with the small U-Nets of diffusers_pipeline.py, from the inputs that it wrote: writes
small_loops.safetensors beside this file, which diffusers_pipeline_test.cpp holds ours to.

usage: python3 -m tests.bench.pipeline.diffusers_loops, with diffusers 0.42.1 and PyTorch
"""

import diffusers
import torch
from safetensors.torch import load_file, save_file

from tests.bench.pipeline.diffusers_pipeline import FOLDER, SCHEDULER, XL_SCHEDULER, draw, draw_xl
from tests.bench.pipeline.diffusers_unet import PINNED, SMALL, SMALL_XL


def loaded(configuration, name):
    unet = diffusers.UNet2DConditionModel(**configuration).eval()
    unet.load_state_dict({key: tensor.float() for key, tensor in load_file(FOLDER / f"{name}.safetensors").items()})
    return unet


def main():
    if diffusers.__version__ != PINNED:
        raise SystemExit(f"diffusers {diffusers.__version__} is here, not {PINNED}")
    unet, inputs = loaded(SMALL, "small_unet"), load_file(FOLDER / "small_pipeline.safetensors")
    unet_xl, inputs_xl = loaded(SMALL_XL, "small_sdxl"), load_file(FOLDER / "small_sdxl_pipeline.safetensors")
    karras = {**XL_SCHEDULER, "use_karras_sigmas": True}
    with torch.no_grad():
        tensors = {"sd15_pndm_zero": draw(unet, inputs, diffusers.PNDMScheduler(**{**SCHEDULER, "set_alpha_to_one": True})),
                   "sd15_dpmpp_2m_karras": draw(unet, inputs, diffusers.DPMSolverMultistepScheduler(**karras)),
                   "sdxl_dpmpp_2m_karras": draw_xl(unet_xl, inputs_xl, diffusers.DPMSolverMultistepScheduler(**karras))}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "small_loops.safetensors",
              {"diffusers": diffusers.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
