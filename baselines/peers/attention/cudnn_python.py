"""cuDNN's SDPA by its Python front end, which routes to cuDNN's engines or to its own kernels in CuTe DSL."""

PACKAGE, VERSIONS = "nvidia-cudnn-frontend", ("1.32.",)
CALL = "torch.ops.cudnn.sdpa_fwd(q, k, v, scale, return_lse=False)[0], behind import cudnn.sdpa.fwd.torch_op; heads before rows"
ONLY = {"layout": "separate packed_3hd packed_h3d", "lse": "0"}


def build(problem):
    import cudnn.sdpa.fwd.torch_op  # noqa: F401 - defines the operator
    import torch

    scale = problem.real("scale") or problem.integer("dim") ** -0.5
    return lambda t: (torch.ops.cudnn.sdpa_fwd(*(t[name].transpose(1, 2) for name in "qkv"), scale, return_lse=False)[0].transpose(1, 2),)
