"""The norm of all gradients and the factor that clips them, as torch.nn.utils.clip_grad_norm_ finds them but for its 1e-6."""

import torch


def build(problem):
    clip = problem.real("clip")

    def run(inputs):
        norm = torch.linalg.vector_norm(inputs["g"])[None]
        scale = torch.where(norm > clip, clip / norm, torch.ones_like(norm)) if clip > 0 else torch.ones_like(norm)
        return norm, scale

    return run
