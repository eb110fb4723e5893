"""The gradients of the operators, each by other operators: what torch.autograd calls of `noisefloor.torch` and of patched modules.

A rule gets the problem, the inputs by name, and the gradients of the outputs by name; it gives gradients by the inputs' names. Those of weights are
summed in fp32. Rules know the plain forms of an op and say of others why they have none.
"""

from types import SimpleNamespace

import torch

from noisefloor import _signatures

ACTIVATIONS = ("silu", "relu", "gelu", "geglu")  # whose backward elementwise has


class Problem:
    """Its fields, with their defaults."""

    def __init__(self, op, text):
        self.op, self.fields = op, {name: field["default"] for name, field in _signatures.signature(op).fields.items()}
        self.fields |= dict(pair.split("=", 1) for pair in text.split(","))
        if op == "conv2d" and ",pad=" not in text:  # whose default moves
            self.fields["pad"] = f"{self['kernel'] // 2}"

    def __getitem__(self, name):
        text, kind = self.fields[name], _signatures.signature(self.op).fields[name]["type"]
        return int(text) if kind == "integer" else float(text) if kind == "real" else text == "1" if kind == "flag" else text

    def refuse_others(self, **plain):
        for name, values in plain.items():
            if self[name] not in (values if isinstance(values, tuple) else (values,)):
                raise ValueError(f"{self.op}: there is no gradient of {name}={self.fields[name]}: call it under torch.no_grad()")

    def of(self, *names):
        return {name: self[name] for name in names}


def pointwise(ops, op, x, dy):
    """Of activations, over the last axis."""
    rows = [one.reshape(1, -1, one.shape[-1]).contiguous() for one in (x, dy)]
    return ops["elementwise"](x=rows[0], dy=rows[1], op=f"{op}_backward").reshape(x.shape)


def gemm(ops, p, t, d):
    dy, a, b = d["d"], t["a"], t["b"]
    given, scale = {"residual": dy}, p["scale"]
    if p["act"] != "none":
        dy = pointwise(ops, p["act"], ops["gemm"](a, b, t["bias"], scale=scale), dy)
    summed = t["bias"] is not None and scale == 1
    products = ops["gemm"](dy, a, layout="tn", to="fp32", scale=scale, row_sums=summed)
    given["b"], bias = products if summed else (products, None)
    given["bias"] = dy.float().sum(0) if bias is None else bias
    given["a"] = ops["gemm"](dy, b, layout="nn", scale=scale)
    return given


def check_gemm(p):
    p.refuse_others(layout="nt", to="same", blend=False, part_columns=0, image_shift=False, act=("none", *ACTIVATIONS))


def conv2d(ops, p, t, d):
    dy, x, w, scale = d["y"], t["x"], t["w"], p["gain"]
    given = {"residual": dy * scale}
    shape = p.of("stride", "pad", "upsample")
    if p["act"] != "none":
        dy = pointwise(ops, p["act"], ops["conv2d"](x, w, t["bias"], image_shift=t["image_shift"], **shape), dy)
    bias, shift = t["bias"] is not None, t["image_shift"] is not None
    found = ops["conv2d_wgrad"](x, dy, kernel=p["kernel"], scale=scale, bias=bias, image_shift=shift, **shape)
    found = list(found) if bias or shift else [found]
    given["w"] = found.pop(0)
    for name, there in (("bias", bias), ("image_shift", shift)):
        if there:
            given[name] = found.pop(0)
    given["x"] = ops["conv2d_dgrad"](dy, w, h=p["h"], w=p["w"], scale=scale, **shape)
    return given


def check_conv2d(p):
    p.refuse_others(norm="none", affine=False, residual_upsample=False, side=0, stats=False, act=("none", *ACTIVATIONS))
    if p["act"] != "none":
        p.refuse_others(residual=False, gain=1.0)


def conv_transpose2d(ops, p, t, d):
    """It is itself the gradient of a convolution of stride 2, whose weights are turned."""
    dy, x, w = d["y"], t["x"], t["w"]
    if p["act"] != "none":
        dy = pointwise(ops, p["act"], ops["conv_transpose2d"](x, w, t["bias"]), dy)
    shape = {"stride": 2, "pad": p["kernel"] // 4}
    dw = ops["conv2d_wgrad"](dy, x, kernel=p["kernel"], bias=False, **shape)
    return {"x": ops["conv2d"](dy, w.transpose(0, 3).contiguous(), **shape), "w": dw.transpose(0, 3), "bias": dy.float().sum((0, 1, 2))}


def groupnorm(ops, p, t, d):
    """mean and rstd once more, without y."""
    shifts = {name: t[name] for name in ("scale_shift", "scale", "shift") if t[name] is not None}
    names = ("x", "gamma", "beta", *shifts)
    mean, rstd = ops["groupnorm"](t["x"], t["gamma"], t["beta"], coefficients=True, stats=True, **p.of("groups", "eps", "fp32_affine"))[1:]
    return dict(zip(names, ops["groupnorm_backward"](t["x"], d["y"], t["gamma"], t["beta"], mean, rstd, **shifts, **p.of("fusion", "fp32_affine"))))


def check_groupnorm(p):
    p.refuse_others(slab_stats="none", coefficients=False, skip_channels=0, down_w=0, stats=False)


def layernorm(ops, p, t, d):
    x = t["x"] if t["residual"] is None else t["x"] + t["residual"]
    shifts = {} if t["scale"] is None else {"scale": t["scale"]}
    found = ops["layernorm_backward"](x, d["y"], t["gamma"], t["beta"], residual=d.get("sum"), **shifts, **p.of("images", "fusion", "eps"))
    names = ("x", *(("gamma", "beta") if p["affine"] else ()), *(("scale", "shift") if shifts else ()))
    given = dict(zip(names, found if len(names) > 1 else (found,)))
    return {**given, "residual": given["x"]}


def attention(ops, p, t, d):
    """Once more, for the log-sum-exp of each row."""
    tensors, fields = {name: t[name] for name in ("q", "k", "v", "qkv") if t[name] is not None}, p.of("layout", "scale")
    out, lse = ops["attention"](**tensors, lse=True, **fields)
    if "qkv" in tensors:
        return {"qkv": ops["attention_backward"](None, None, None, out, lse, d["out"], **tensors, **fields)}
    return dict(zip(tensors, ops["attention_backward"](*tensors.values(), out, lse, d["out"], **fields)))


def check_attention(p):
    p.refuse_others(lse=False)


def temporal_attention(ops, p, t, d):
    """As attention over frames, of each pixel's heads as heads of their own."""
    packed = {"packed_3hd": 3, "packed_h3d": 4, "packed_hd3": 5}.get(p["layout"])  # the axis of q, k and v
    tensors = (t["q"], t["k"], t["v"]) if packed is None else t["qkv"].unbind(packed)
    *tensors, dout = [one.flatten(2, 3).contiguous() for one in (*tensors, d["out"])]
    out, lse = ops["attention"](*tensors, lse=True, scale=p["scale"])
    found = [one.unflatten(2, (p["hw"], p["heads"])) for one in ops["attention_backward"](*tensors, out, lse, dout, scale=p["scale"])]
    return dict(zip("qkv", found)) if packed is None else {"qkv": torch.stack(found, packed)}


def elementwise(ops, p, t, d):
    dy, op = d["y"], p["op"]
    if op == "add":
        return {"a": dy * p["scale"], "b": dy * p["scale"]}
    if op == "scale":
        return {"x": dy * p["scale"]}
    if op == "cast":
        return {"x": dy}
    if op in ACTIVATIONS:
        return {"x": ops["elementwise"](x=t["x"], dy=dy, op=f"{op}_backward")}
    return {"x": dy.transpose(1, 2).reshape(t["x"].shape)}


def check_elementwise(p):
    p.refuse_others(op=("add", "scale", "cast", *ACTIVATIONS, "nchw_to_nhwc", "nhwc_to_nchw"))


def resample(ops, p, t, d):
    if p["op"] == "concat":
        return dict(zip(("x", "skip"), ops["resample"](d["y"], op="split", channels=p["channels"], skip_channels=p["skip_channels"])))
    if p["op"] == "split":
        return {"x": ops["resample"](d["y"], d["skip"], op="concat")}
    back, factor = {"nearest_up2": ("average_down2", 4), "average_down2": ("nearest_up2", 0.25)}[p["op"]]
    return {"x": ops["resample"](d["y"], op=back, scale=factor * p["scale"])}


RULES = {"gemm": (gemm, check_gemm), "conv2d": (conv2d, check_conv2d), "groupnorm": (groupnorm, check_groupnorm), "layernorm": (layernorm, None),
         "attention": (attention, check_attention), "temporal_attention": (temporal_attention, None), "conv_transpose2d": (conv_transpose2d, None),
         "elementwise": (elementwise, check_elementwise), "resample": (resample, None)}  # fmt: skip


class AtAnyAddress:
    """Functions by name, for tensors of autograd's making: these begin anywhere, where an operator wants a multiple of 16 bytes."""

    def __init__(self, functions):
        self.functions = functions

    def __getitem__(self, name):
        function = self.functions[name]
        return lambda *tensors, **named: function(*map(placed, tensors), **{key: placed(value) for key, value in named.items()})


def placed(value):
    if not isinstance(value, torch.Tensor):
        return value
    try:
        return value.clone() if value.data_ptr() % 16 else value
    except RuntimeError:  # one without memory, while PyTorch compiles
        return value


def register(op, operator, order, library, functions):
    """`functions`: the operators by their ops' names, complete when a gradient is asked for."""
    rule, check = RULES[op]
    functions = AtAnyAddress(functions)
    made = _signatures.signature(op)

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        by_name = dict.fromkeys(order) | dict(zip(order, inputs))
        given = keyword_only_inputs
        text, outputs, *_ = _signatures.described(op, [by_name[name] for name in made.names], given["fields"], given["dtype"])
        problem = Problem(op, text)
        if check is not None:
            check(problem)
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        ctx.known = SimpleNamespace(problem=problem, outputs=[name for name, *_ in outputs], like=[(one.shape, one.dtype, one.device) for one in output])

    def backward(ctx, gradients):
        tensors, known = dict.fromkeys(order) | dict(zip(order, ctx.saved_tensors)), ctx.known
        of_outputs = {}
        for name, gradient, (shape, dtype, device) in zip(known.outputs, gradients, known.like):
            of_outputs[name] = torch.zeros(shape, dtype=dtype, device=device) if gradient is None else gradient.contiguous()
        found = rule(functions, known.problem, tensors, of_outputs)
        given = [found[name].reshape(tensors[name].shape).to(tensors[name].dtype) if wanted and tensors[name] is not None else None
                 for name, wanted in zip(order, ctx.needs_input_grad)]
        return (*given, *[None] * (len(order) + 1 - len(given)))  # also of what is prepared

    torch.library.register_autograd(operator, backward, setup_context=setup_context, lib=library)


def register_products(operator, library, functions):
    """Of [layers, rows, columns], products that share a."""
    functions = AtAnyAddress(functions)

    def setup_context(ctx, inputs, output):
        a, weights = inputs
        ctx.save_for_backward(a, *weights)

    def backward(ctx, gradient):
        a, *weights = ctx.saved_tensors
        da, of_weights = None, []
        for dy, weight in zip(gradient.contiguous(), weights):
            da = functions["gemm"](dy, weight, layout="nn", **({} if da is None else {"residual": da}))
            of_weights.append(functions["gemm"](dy, a, layout="tn", to="fp32").to(weight.dtype))
        return da, of_weights

    torch.library.register_autograd(operator, backward, setup_context=setup_context, lib=library)
