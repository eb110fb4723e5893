"""A step of AdamW over one flat tensor. New tensors in the place of updated ones, of as many bytes: a launch can be repeated on the same inputs, and judged."""


def build(problem):
    beta1, beta2, eps, decay = (problem.real(name) for name in ("beta1", "beta2", "eps", "decay"))
    ema, copy, dtype = problem.flag("ema"), problem.flag("copy"), problem.dtype

    def run(inputs):
        rate, correct1, correct2, keep = inputs["step"].unbind()
        g = inputs["g"] * inputs["grad_scale"]
        m = beta1 * inputs["m"] + (1 - beta1) * g
        v = beta2 * inputs["v"] + (1 - beta2) * g * g
        p = inputs["p"]
        p = p - rate * (decay * p + correct1 * m / ((correct2 * v).sqrt() + eps))
        averaged = (keep * inputs["ema"] + (1 - keep) * p,) if ema else ()
        return (p, m, v, *averaged, *((p.to(dtype),) if copy else ()))

    return run
