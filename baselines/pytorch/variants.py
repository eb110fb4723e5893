"""Which rows each op has. Knows nothing of PyTorch."""

COMMON = ("torch_eager", "torch_compile")
# One row per backend of scaled_dot_product_attention, which would otherwise choose one of them by itself.
SDPA = ("torch_flash", "torch_cudnn", "torch_efficient")

OF_OP = {
    "attention": SDPA,
    "temporal_attention": SDPA,
    "gemm": COMMON,
    "conv2d": COMMON,
    "conv_transpose2d": COMMON,
    "conv3d_temporal": COMMON,
    "groupnorm": COMMON,
    "sampler_step": COMMON,
    "layernorm": COMMON,
    "elementwise": COMMON,
    "resample": COMMON,
    "timestep_embedding": COMMON,
    "q_sample": COMMON,
    "edm_precondition": COMMON,
    "network": COMMON,
}
OPS = tuple(OF_OP)
VARIANTS = (*COMMON, *SDPA)
