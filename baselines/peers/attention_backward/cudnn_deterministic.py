"""cuDNN's backward of SDPA in its deterministic mode, by its Python front end; PyTorch's `torch_cudnn` has the other mode alone."""

PACKAGE, VERSIONS = "nvidia-cudnn-frontend", ("1.32.",)
CALL = "torch.ops.cudnn.sdpa_bwd(dout, q, k, v, o, lse, scale, is_deterministic=True), behind import cudnn.sdpa.fwd.torch_op; heads before rows"


def build(problem):
    import cudnn.sdpa.fwd.torch_op  # noqa: F401 - defines the operator
    import torch

    from baselines.pytorch.ops.attention_backward import of_layout

    scale, heads_first = problem.real("scale") or problem.integer("dim") ** -0.5, ("dout", "q", "k", "v", "o")

    def run(t):
        found = torch.ops.cudnn.sdpa_bwd(*(t[name].transpose(1, 2) for name in heads_first), t["lse"], scale, is_deterministic=True)
        return of_layout(problem, (one.transpose(1, 2) for one in found))

    return run
