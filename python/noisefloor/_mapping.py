"""Which problem of the catalogue a call of PyTorch's is. Nothing here imports PyTorch: it reads shapes, strides and names of element types.

Layouts are not compared: the catalogue's images are channels-last, its products have a second factor [n, k], and PyTorch may have either.
"""

import dataclasses
import math

from noisefloor import _core, _signatures

DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
NO_OP = "no op of the catalogue"


class Unmapped(Exception):
    """Why a call is no problem of the catalogue."""


@dataclasses.dataclass(frozen=True)
class Problem:
    op: str
    dtype: str
    text: str  # as the program prints it
    fields: dict = dataclasses.field(compare=False)  # those that are not at their default, as text


def problem(op, dtype, /, **values):
    """None stands for a field's default. Unmapped where the op does not take the values."""
    texts = (f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in values.items() if value is not None)
    try:
        return Problem(op, dtype, *_core.problem(op, ",".join(texts)))
    except ValueError as error:
        raise Unmapped(f"no {op}: {error}") from None


def need(holds, reason):
    if not holds:
        raise Unmapped(reason)


def dtype_of(*tensors):
    """Of all of them, None among them left out."""
    names = sorted({str(tensor.dtype) for tensor in tensors if tensor is not None})
    need(len(names) == 1, "tensors of " + " and ".join(names))
    need(names[0] in DTYPES, f"a tensor of {names[0]}")
    return DTYPES[names[0]]


def rows_by_channels(shape):
    """(rows, channels) of a pointwise call: images have their channels second."""
    channels = shape[1] if len(shape) >= 4 else shape[-1] if shape else 1
    return math.prod(shape) // channels, channels


# Each takes the call's arguments by the names of its schema, its output, and `tags`: what is known of tensors (kind, what, its call), for calls
# that are one problem together. It returns the problem, or (problem, the calls before that are part of it).


def linear(a, out, tags):
    """Under autocast the output's element type is the one that is computed in, as attention's is."""
    x, weight = a["input"], a["weight"]
    fields = {"m": math.prod(x.shape[:-1]), "n": math.prod(weight.shape[:-1]), "k": weight.shape[-1], "bias": a["bias"] is not None}
    tags[out] = "linear", fields, tags.call
    return problem("gemm", dtype_of(out), **fields)


def addmm(a, out, tags):
    (m, k), n, added = a["mat1"].shape, a["mat2"].shape[1], a["self"]
    need(a["beta"] == 1, "gemm adds with a factor of 1 only")
    row = tuple(added.shape) in ((n,), (1, n))
    need(row or tuple(added.shape) == (m, n), "gemm adds a row or a matrix of the product's shape only")
    return problem("gemm", dtype_of(added, a["mat1"], a["mat2"]), m=m, n=n, k=k, scale=float(a["alpha"]), bias=row, residual=not row)


def mm(a, out, tags):
    return problem("gemm", dtype_of(a["self"], a["mat2"]), m=a["self"].shape[0], n=a["mat2"].shape[1], k=a["self"].shape[1], bias=False)


def bmm(a, out, tags):
    """What one matrix for the whole batch makes of a linear layer."""
    x, y = a["self"], a["mat2"]
    need(y.shape[0] == 1 or y.stride(0) == 0, "gemm has no batch of matrices")
    return problem("gemm", dtype_of(x, y), m=x.shape[0] * x.shape[1], n=y.shape[2], k=x.shape[2], bias=False)


def attention(a, out, tags):
    q, k, v = a["query"], a["key"], a["value"]
    need(a.get("attn_mask") is None and a.get("attn_bias") is None, "attention takes no mask")
    need(not a.get("is_causal"), "attention is not causal")
    need(not a.get("dropout_p"), "attention drops nothing out")
    need(q.dim() in (3, 4), "attention is of batches of sequences, with heads or without")
    need(q.shape[:-2] == k.shape[:-2] == v.shape[:-2], "attention has a key and a value for each query's head")
    need(q.shape[-1] == v.shape[-1], "attention's values are as wide as its keys")
    scale = a.get("scale")
    standard = scale is None or math.isclose(scale, q.shape[-1] ** -0.5, rel_tol=1e-6)
    heads = q.shape[1] if q.dim() == 4 else 1
    return problem("attention", dtype_of(out), batch=q.shape[0], heads=heads, seq_q=q.shape[-2], seq_kv=k.shape[-2], dim=q.shape[-1],
                   scale=None if standard else float(scale))


def convolution(a, out, tags):
    x, weight = a["input"], a["weight"]
    kernel, stride, pad = tuple(weight.shape[2:]), tuple(a["stride"]), tuple(a["padding"])
    form = f"{len(kernel)}-D, kernel {'x'.join(map(str, kernel))}, stride {stride[0]}, pad {pad[0]}"
    need(a["groups"] == 1, f"convolutions have no groups, and it has {a['groups']}")
    need(set(a["dilation"]) == {1}, "convolutions have no dilation")
    dtype, bias = dtype_of(x, weight, a["bias"]), a["bias"] is not None
    if len(kernel) == 3 and not a["transposed"]:
        need((kernel, stride, pad) == ((3, 1, 1), (1, 1, 1), (1, 0, 0)), f"conv3d_temporal has a kernel of 3x1x1 and keeps the shape; it is {form}")
        return problem("conv3d_temporal", dtype, batch=x.shape[0], frames=x.shape[2], hw=x.shape[3] * x.shape[4], cin=x.shape[1],
                       cout=weight.shape[0], bias=bias)
    need(len(kernel) == 2 and len(set(kernel)) == len(set(stride)) == len(set(pad)) == 1, f"conv2d is square; it is {form}")
    if (kernel, stride, pad, a["transposed"]) == ((1, 1), (1, 1), (0, 0), False):  # of pixels by channels
        return problem("gemm", dtype, m=x.shape[0] * x.shape[2] * x.shape[3], n=weight.shape[0], k=x.shape[1], bias=bias)
    sizes = {"n": x.shape[0], "h": x.shape[2], "w": x.shape[3], "cin": x.shape[1], "kernel": kernel[0], "bias": bias}
    if a["transposed"]:
        need(stride[0] == 2 and (kernel[0], pad[0]) in ((2, 0), (4, 1)) and not any(a["output_padding"]),
             f"conv_transpose2d has a stride of 2, and a kernel of 2 without pad or of 4 with a pad of 1; it is {form}")
        return problem("conv_transpose2d", dtype, cout=weight.shape[1], **sizes)
    need(kernel[0] % 2 == 1 or (kernel[0], stride[0], pad[0]) in ((2, 2, 0), (4, 2, 1)),
         f"conv2d has odd kernels, or with a stride of 2 one of 2 without pad or of 4 with a pad of 1; it is {form}")
    return problem("conv2d", dtype, cout=weight.shape[0], stride=stride[0], pad=pad[0], **sizes)


def group_norm(a, out, tags):
    need(a["weight"] is not None and a["bias"] is not None, "groupnorm has a weight and a bias")
    return problem("groupnorm", dtype_of(a["input"], a["weight"], a["bias"]), n=a["N"], hw=a["HxW"], channels=a["C"], groups=a["group"], eps=a["eps"])


def layer_norm(a, out, tags):
    need((a["weight"] is None) == (a["bias"] is None), "layernorm has weight and bias, or neither")
    channels = math.prod(a["normalized_shape"])
    fields = {"rows": a["input"].numel() // channels, "channels": channels, "affine": a["weight"] is not None, "eps": a["eps"]}
    tags[out] = "norm", fields, [tags.call]
    return problem("layernorm", dtype_of(a["input"], a["weight"], a["bias"]), **fields)


def pointwise(op):
    def rule(a, out, tags):
        hw, channels = rows_by_channels(a["self"].shape)
        return problem("elementwise", dtype_of(a["self"]), op=op, hw=hw, channels=channels)

    return rule


def row_an_image(row, x):
    """Whether it is broadcast over what lies between the first and the last axis."""
    return row.dim() == x.dim() and row.shape[0] in (1, x.shape[0]) and row.shape[-1] == x.shape[-1] and set(row.shape[1:-1]) <= {1}


def add(a, out, tags):
    """Behind a layer normalisation times 1 + scale it is the shift."""
    if isinstance(a["other"], (int, float)) and a["other"] == 1:
        tags[out] = "one more", None, tags.call
    for scaled, shift in ((a["self"], a["other"]), (a["other"], a["self"])):
        kind, fields, calls = tags.of(scaled)
        if kind == "scaled" and row_an_image(shift, scaled) and shift.shape[0] == fields["images"]:
            return problem("layernorm", dtype_of(scaled, shift), fusion="scale_shift", **fields), calls
    need(hasattr(a["other"], "shape") and a["self"].shape == a["other"].shape and a["alpha"] == 1, "elementwise adds tensors of one shape only")
    dtype_of(a["other"], a["self"])
    return pointwise("add")(a, out, tags)


def gelu(a, out, tags):
    """Behind a linear layer it is the product's activation."""
    kind, fields, call = tags.of(a["self"])
    if kind == "linear":
        return problem("gemm", dtype_of(out), act="gelu" if a["approximate"] == "none" else "gelu_tanh", **fields), [call]
    if a["approximate"] == "none":
        tags[out] = ("gelu", tags.place(a["self"]), tags.call)
    raise Unmapped("elementwise has gelu in geglu only")


def mul(a, out, tags):
    """geglu: the first half of each row times gelu of the second; a layer normalisation times 1 + scale, before the shift."""
    for value, gate in ((a["self"], a["other"]), (a["other"], a["self"])):
        (kind, fields, calls), (other, _, call) = tags.of(value), tags.of(gate)
        if (kind, other) == ("norm", "one more") and row_an_image(gate, value):
            tags[out] = "scaled", fields | {"images": gate.shape[0]}, [*calls, call, tags.call]
        kind, gate_place, call = tags.of(gate)
        if kind == "gelu" and hasattr(value, "shape") and value.dim() >= 2:
            width, (storage, offset, shape, stride) = value.shape[-1], tags.place(value)
            if gate_place == (storage, offset + width, shape, stride) and stride[-2:] == (2 * width, 1):
                return problem("elementwise", dtype_of(value), op="geglu", hw=value.numel() // width, channels=width), [call]
    raise Unmapped("elementwise has no product")


def wave(kind):
    def rule(a, out, tags):
        tags[out] = (kind, tags.place(a["self"]), tags.call)
        raise Unmapped(NO_OP)

    return rule


def cat(a, out, tags):
    tensors = a["tensors"]
    need(len(tensors) == 2, f"resample puts two tensors together, not {len(tensors)}")
    dtype, (first, second), axis = dtype_of(*tensors), tensors, a["dim"] % out.dim()
    (kind, what, call), (other_kind, other, other_call) = tags.of(first), tags.of(second)
    order, parts = None, []
    if {kind, other_kind} == {"sin", "cos"} and what == other and out.dim() == 2 and axis == 1:
        order, parts = (kind, other_kind), [call, other_call]
    elif kind == other_kind == "half of waves" and call is other_call and what[1] and not other[1]:  # put the other way round
        order, parts = what[0][::-1], [call]
    if order:
        tags[out] = "waves", order, tags.call
        return problem("timestep_embedding", dtype, batch=out.shape[0], channels=out.shape[1], order="_".join(order)), parts
    # Behind the axis all is one pixel, which has the channels; images have theirs before rows and columns.
    images = out.dim() >= 4 and axis == out.dim() - 3
    inner = 1 if images else math.prod(out.shape[axis + 1 :])
    n, (h, w) = math.prod(out.shape[:axis]), out.shape[axis + 1 :] if images else (1, 1)
    return problem("resample", dtype, op="concat", n=n, h=h, w=w, channels=first.shape[axis] * inner, skip_channels=second.shape[axis] * inner)


def upsample(a, out, tags):
    n, channels, h, w = a["input" if "input" in a else "self"].shape
    need(tuple(out.shape[2:]) == (2 * h, 2 * w), "resample doubles images")
    return problem("resample", dtype_of(out), op="nearest_up2", n=n, h=h, w=w, channels=channels)


def average(a, out, tags):
    x = a["self"]
    need(x.dim() == 4 and (a["kernel_size"], a["stride"] or a["kernel_size"], a["padding"]) == ([2, 2], [2, 2], [0, 0])
         and x.shape[2] % 2 == x.shape[3] % 2 == 0 and not a["divisor_override"], "resample averages 2x2 pixels of images of even sides")
    return problem("resample", dtype_of(x), op="average_down2", n=x.shape[0], h=x.shape[2], w=x.shape[3], channels=x.shape[1])


def copy(a, out, tags):
    """A cast, or one of the two changes of an image's layout."""
    x = a["src"] if "src" in a else a["self"]
    if x.dtype != out.dtype:
        need(x.shape == out.shape, "a cast that repeats rows")
        need(str(out.dtype) in DTYPES, f"a cast to {out.dtype}")
        hw, channels = rows_by_channels(x.shape)
        return problem("elementwise", dtype_of(x), op="cast", hw=hw, channels=channels, to=DTYPES[str(out.dtype)])
    need(x.dim() in (3, 4) and x.shape == out.shape, "elementwise copies from one layout of images to the other only")
    first = x.permute(0, -1, *range(1, x.dim() - 1)).is_contiguous()  # the last axis is the second in memory
    last = [t.permute(0, *range(2, t.dim()), 1).is_contiguous() for t in (x, out)]  # the second is the last
    if out.is_contiguous() and not x.is_contiguous() and (first or last[0]):
        op, channels = ("nchw_to_nhwc", x.shape[-1]) if first else ("nhwc_to_nchw", x.shape[1])
    else:
        need(x.is_contiguous() and last[1] and not out.is_contiguous(), "elementwise copies from one layout of images to the other only")
        op, channels = "nchw_to_nhwc", x.shape[1]
    return problem("elementwise", dtype_of(x), op=op, n=x.shape[0], hw=x.numel() // x.shape[0] // channels, channels=channels)


def sliced(a, out, tags):
    """A view, which is no call."""
    x = a["self"]
    kind, order, call = tags.of(x)
    if kind == "waves" and out.shape == x.shape:
        tags[out] = kind, order, call
    elif kind == "waves" and 2 * out.shape[1] == x.shape[1]:
        tags[out] = "half of waves", (order, bool(a["start"])), call


def ours(op):
    """A call of our own operator, with its FLOPs in the catalogue."""

    def rule(a, out, tags):
        text, _, _, dtype, tags.call.flops = _signatures.described(op, [a[name] for name in _signatures.signature(op).names], a["fields"], a["dtype"])
        return problem(op, dtype, **dict(pair.split("=") for pair in text.split(",")))

    return rule


def products(a, out, tags):
    """Of layers whose weights lie side by side: one product."""
    layers, (m, k), n = len(a["weights"]), a["a"].shape, a["weights"][0].shape[0]
    tags.call.flops = 2 * m * n * k * layers
    return problem("gemm", dtype_of(a["a"]), m=m, n=layers * n, k=k, bias=False, part_columns=n)


RULES = {
    "linear": linear, "addmm": addmm, "mm": mm, "bmm": bmm,
    "scaled_dot_product_attention": attention, "convolution": convolution, "native_group_norm": group_norm, "native_layer_norm": layer_norm,
    "silu": pointwise("silu"), "relu": pointwise("relu"), "add": add, "gelu": gelu, "mul": mul, "sin": wave("sin"), "cos": wave("cos"),
    "cat": cat, "upsample_nearest2d": upsample, "_upsample_nearest_exact2d": upsample, "avg_pool2d": average,
    "clone": copy, "copy": copy, "_to_copy": copy, "slice": sliced,
}  # fmt: skip
for backend in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu", "fused_attention_overrideable"):
    RULES[f"_scaled_dot_product_{backend}"] = attention
RULES |= {f"noisefloor::{op}": ours(op) for op in _signatures.CATALOGUE} | {"noisefloor::products_of_modules": products}
