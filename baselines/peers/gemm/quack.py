"""quack's GEMM in CuTe DSL, in its default configuration: its search compiles dozens of kernels for each problem."""

PACKAGE, VERSIONS = "quack-kernels", ("0.6.",)
CALL = "quack.gemm_interface.gemm(a, b.t(), bias=bias, tuned=False); gemm_act with an activation, gemm_add with a residual"
ACTIVATIONS = {"none": None, "silu": "silu", "gelu_tanh": "gelu_tanh_approx"}
ONLY = {"act": " ".join(ACTIVATIONS), "part_columns": "0", "layout": "nt", "to": "same", "image_shift": "0", "blend": "0"}


def can_run(problem):
    return "it adds a residual before the activation" if problem.flag("residual") and problem.choice("act") != "none" else ""


def build(problem):
    from quack.gemm_interface import gemm, gemm_act, gemm_add

    act, options = ACTIVATIONS[problem.choice("act")], {"alpha": problem.real("scale"), "tuned": False}

    def run(t):
        a, b, bias = t["a"], t["b"].t(), t.get("bias")
        if act:
            return (gemm_act(a, b, bias=bias, activation=act, store_preact=False, **options)[1],)
        return (gemm_add(a, b, t["residual"], bias=bias, **options) if "residual" in t else gemm(a, b, bias=bias, **options),)

    return run
