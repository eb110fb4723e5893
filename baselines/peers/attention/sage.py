"""SageAttention: 8-bit integer products of queries and keys. It quantises in its time, and takes the mean off the keys in place."""

PACKAGE, VERSIONS = "sageattention", ("1.0.6", "2.")
CALL = 'sageattention.sageattn(q, k, v, tensor_layout="NHD")'
ONLY = {"layout": "separate packed_3hd packed_h3d", "dim": "64 96 128", "lse": "0"}
LOSSY = "queries and keys in int8, weights and values in fp16 or e4m3"
ALLOWED = {"max": 0.25, "l2": 0.05}  # e4m3 alone: 2.6 % of each term, and as much of each weight


def build(problem):
    from sageattention import sageattn

    scale = problem.real("scale") or None
    return lambda t: (sageattn(t["q"], t["k"], t["v"], tensor_layout="NHD", sm_scale=scale),)
