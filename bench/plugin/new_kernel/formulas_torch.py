"""Every op in PyTorch, for `noisefloor new-kernel`: of a problem and its tensors, the outputs in order. Two empty lines end each."""

import math

import torch
import torch.nn.functional as F


def activated(act, y):
    return {"none": lambda: y, "silu": lambda: F.silu(y), "relu": lambda: F.relu(y), "gelu": lambda: F.gelu(y),
            "gelu_tanh": lambda: F.gelu(y, approximate="tanh")}[act]()


def heads(problem, t):
    """q, k and v, each [..., heads, dim]; of a packed tensor taken apart."""
    if "qkv" not in t.inputs:
        return t.q, t.k, t.v
    return t.qkv.unbind({"packed_3hd": -3, "packed_h3d": -2, "packed_hd3": -1}[problem.layout])


def attention(problem, t):
    q, k, v = (part.transpose(1, 2) for part in heads(problem, t))
    return (F.scaled_dot_product_attention(q, k, v, scale=problem.scale or None).transpose(1, 2),)


def temporal_attention(problem, t):
    q, k, v = (part.permute(0, 2, 3, 1, 4) for part in heads(problem, t))  # [batch, hw, heads, frames, dim]
    return (F.scaled_dot_product_attention(q, k, v, scale=problem.scale or None).permute(0, 3, 1, 2, 4),)


def gemm(problem, t):
    y = F.linear(t.a, t.b, t.get("bias")) if problem.scale == 1 else problem.scale * (t.a @ t.b.T) + t.inputs.get("bias", 0)
    if "image_shift" in t.inputs:
        y = (y.unflatten(0, (problem.images, -1)) + t.image_shift[:, None]).flatten(0, 1)
    if problem.act == "geglu":
        value, gate = y.chunk(2, 1)
        y = value * F.gelu(gate)
    else:
        y = activated(problem.act, y)
    y = y.unflatten(1, (-1, problem.part_columns)).transpose(0, 1) if problem.part_columns else y
    y = y + t.inputs.get("residual", 0)
    return (torch.lerp(y.float(), t.blend.float(), t.share) if "blend" in t.inputs else y,)


def conv2d(problem, t):
    x = t.x
    if "norm_coefficients" in t.inputs:  # fp32
        x = x * t.norm_coefficients[:, 0, None, None] + t.norm_coefficients[:, 1, None, None]
        x = (F.silu(x) if problem.norm == "affine+silu" else x).to(t.x.dtype)
    x = x.permute(0, 3, 1, 2)  # channels-last in memory, as PyTorch has it
    x = F.interpolate(x, scale_factor=2) if problem.upsample else x
    y = F.conv2d(x, t.w.permute(0, 3, 1, 2), t.get("bias"), problem.stride, problem.pad).permute(0, 2, 3, 1)
    if "side" in t.inputs:
        y = y + F.linear(torch.cat([t.inputs[name] for name in ("side", "side_skip") if name in t.inputs], 3), t.w_side)
    y = y * t.scale + t.shift if "scale" in t.inputs else y
    y = y + t.image_shift[:, None, None] if "image_shift" in t.inputs else y
    residual = t.inputs.get("residual", 0)
    if problem.residual_upsample:
        residual = residual.repeat_interleave(2, 1).repeat_interleave(2, 2)
    return (problem.gain * (activated(problem.act, y) + residual),)


def conv_transpose2d(problem, t):
    y = F.conv_transpose2d(t.x.permute(0, 3, 1, 2), t.w.permute(3, 0, 1, 2), t.get("bias"), stride=2, padding=int(problem.kernel == 4))
    return (activated(problem.act, y[:, :, : 2 * problem.h, : 2 * problem.w].permute(0, 2, 3, 1)),)


def conv3d_temporal(problem, t):
    y = F.conv3d(t.x.permute(0, 3, 1, 2)[..., None], t.w.permute(0, 2, 1)[..., None, None], t.get("bias"), padding=(1, 0, 0))
    y = y[..., 0].permute(0, 2, 3, 1)
    y = y + t.image_shift[:, None, None] if "image_shift" in t.inputs else y
    return (y + t.inputs.get("residual", 0),)


def groupnorm(problem, t):
    x = torch.cat((t.x, t.skip), 2) if "skip" in t.inputs else t.x
    y = torch.group_norm(x.transpose(1, 2), problem.groups, t.gamma, t.beta, problem.eps).transpose(1, 2)
    if problem.fusion == "silu+ss":
        scale, shift = t.scale_shift.chunk(2, 1) if "scale_shift" in t.inputs else (t.scale, t.shift)
        y = y * (1 + scale[:, None]) + shift[:, None]
    y = y if problem.fusion == "none" else F.silu(y)
    if not problem.down_w:
        return (y,)
    rows = (len(x), -1, problem.down_w, problem.channels)
    return tuple(F.avg_pool2d(of.reshape(rows).permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1).flatten(1, 2) for of in (y, x))


def layernorm(problem, t):
    x = t.x + t.residual if "residual" in t.inputs else t.x
    y = F.layer_norm(x, (problem.channels,), t.get("gamma"), t.get("beta"), problem.eps)
    if "scale" in t.inputs:
        images = y.view(problem.images, -1, problem.channels)
        y = (images * (1 + t.scale[:, None]) + t.shift[:, None]).view_as(y)
    return (x, y) if "residual" in t.inputs else (y,)


def elementwise(problem, t):
    if problem.fields["op"] == "silu_fma":
        a, c = (t[name][:, None] if problem.broadcast else t[name] for name in ("a", "c"))
        return (F.silu(a + t.b * c),)
    if problem.fields["op"] == "add":
        return ((t.a + t.b) * problem.scale,)
    if problem.fields["op"] == "geglu":
        value, gate = t.x.chunk(2, -1)
        return (value * F.gelu(gate),)
    return (t.x.transpose(1, 2) if "_to_" in problem.fields["op"] else t.x if problem.fields["op"] == "cast" else activated(problem.fields["op"], t.x),)


def resample(problem, t):
    if problem.fields["op"] == "concat":
        return (torch.cat((t.x, t.skip), 3),)
    x = t.x.permute(0, 3, 1, 2)
    return ((F.interpolate(x, scale_factor=2) if problem.fields["op"] == "nearest_up2" else F.avg_pool2d(x, 2)).permute(0, 2, 3, 1),)


def timestep_embedding(problem, t):
    half = problem.channels // 2
    steps = torch.arange(half, dtype=t.t.dtype, device=t.t.device) / max(half - problem.endpoint, 1)
    angles = torch.outer(t.t, 2 * math.pi * t.freqs if "freqs" in t.inputs else problem.max_period**-steps)
    parts = [angles.cos(), angles.sin()]
    y = torch.cat(parts if problem.order == "cos_sin" else parts[::-1], 1)
    if "w1" in t.inputs:
        y = F.linear(F.silu(F.linear(y.to(t.w1.dtype), t.w1, t.b1)), t.w2, t.b2)
        y = F.silu(y) if problem.final_silu else y
    return (y,)


def edm_precondition(problem, t):
    data, sigma = problem.sigma_data, t.sigma[:, None]
    deviation = (data**2 + sigma**2).sqrt()
    if problem.side == "input":
        return t.x / deviation, t.sigma.log() / 4
    return ((data / deviation) ** 2 * t.x + sigma * data / deviation * t.f,)


def q_sample(problem, t):
    return (t.levels[:, :1] * t.x0 + t.levels[:, 1:] * t.noise,)


def sampler_step(problem, t):
    """A row of coefficients is a step's: kernels/sampler_step/coefficients.h."""
    model_x, model, model_cond, limit, of_x, of_x0, history, noise, previous, history_x, history_x0, _ = t.coefficients[problem.step]
    x, output = (one.to(t.coefficients.dtype) for one in (t.x, t.model_output))
    guided = output[0] * model + output[1] * model_cond if output.ndim > x.ndim else output * model
    x0 = (model_x * x + guided).clamp(-limit, limit)
    y = of_x * x + of_x0 * x0 + history * t.inputs.get("history", 0) + noise * t.inputs.get("noise", 0) + previous * t.inputs.get("previous_frame", 0)
    return y, history_x * x + history_x0 * x0  # the second where the problem has it
