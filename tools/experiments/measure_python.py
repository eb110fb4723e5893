#!/usr/bin/env python3
"""What a call from Python costs over its launch, and what `patch` makes of diffusers' U-Net. Run by hand, some minutes on an H200; no test.

usage: measure_python.py [--device cpu --size 8]     rehearses it without a GPU, where its figures say nothing

Needs PyTorch, diffusers and the package noisefloor (PYTHONPATH=build/cuda/python).

  calls  noisefloor.ops with out=, the torch operator, and noisefloor.torch's function around it, less the launch of the same variant from C++:
         medians over rounds of 100 calls each, launch and calls in turns, nothing waiting on the GPU (asked: at most 5, 12 and 12 us)
  patch  sd15's U-Net, two latents of 64x64, bf16, random weights: patched, eager and by torch.compile, each as one CUDA graph, replayed in turns
         (asked: patched is the fastest)

Every output is held to fp32 before it is timed: the network's may be off by at most 1.25 times as much as PyTorch's own in bf16.
Exit codes: 0 all that was asked holds; 1 something does not.
"""

import argparse
import copy
import functools
import gc
import statistics
import sys
import time

import diffusers
import noisefloor
import noisefloor.torch
import torch
from noisefloor import _signatures

CALLS, ROUNDS = 100, 200
ASKED = {"noisefloor.ops with out=": 5, "torch operator": 12, "noisefloor.torch's function": 12}  # us
missed = []


def ask(what, value, most, unit):
    good = value <= most  # not where it is NaN
    if not good:
        missed.append(what)
    print(f"{what}: {value:.3g}{unit}, at most {most:.3g}{unit}: {'holds' if good else 'MISSED'}", flush=True)


def off(got, wanted):
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def in_turns(blocks, rounds, wait):
    """Blocks are functions that give us each; every round calls all, in an order that turns around."""
    times = {name: [] for name in blocks}
    for i in range(rounds):
        for name in list(blocks)[:: 1 if i % 2 == 0 else -1]:
            wait()
            times[name].append(blocks[name]())
    return times


def timed_calls(call, calls=CALLS):
    def block():
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls * 1e6

    return block


def timed_launches(op, tensors, given):
    """What each launch adds to a call."""
    made = _signatures.signature(op)
    call = _signatures.bound(op).function([*(one.name for one in made.parameters()), "launches"], len(made.first), len(made.inputs), "")

    def block():
        times = []
        for launches in (1, CALLS + 1):
            start = time.perf_counter()
            call(*tensors, **given, launches=launches)
            times.append(time.perf_counter() - start)
        return (times[1] - times[0]) / CALLS * 1e6

    return block


def measure_calls(device, dtype, wait):
    """The queue stays short of what CUDA holds, so that no call waits for the GPU."""
    F = torch.nn.functional
    rand = lambda *shape: torch.randn(shape, device=device).to(dtype)  # noqa: E731
    x, ones, bias, a, w = rand(2, 64, 320), rand(320) * 0.1 + 1, rand(320), rand(64, 320), rand(320, 320) * 0.05
    cases = {
        "groupnorm": ((x, ones, bias), {"groups": 32, "fusion": "silu"}, lambda x, g, b: F.silu(F.group_norm(x.transpose(1, 2), 32, g, b).transpose(1, 2))),
        "layernorm": ((a,), {"gamma": ones, "beta": bias}, lambda a, gamma, beta: F.layer_norm(a, (320,), gamma, beta)),
        "gemm": ((a, w), {"bias": bias}, lambda a, w, bias: F.linear(a, w, bias)),
    }
    blocks = {}
    for op, (tensors, given, exact) in cases.items():
        functions = getattr(noisefloor.ops, op), getattr(torch.ops.noisefloor, op).default, getattr(noisefloor.torch, op)
        more = {name: value for name, value in given.items() if torch.is_tensor(value)}
        fields = ",".join(f"{name}={value}" for name, value in given.items() if name not in more)
        by_text = more | ({"fields": fields} if fields else {})
        wanted = exact(*(one.double() for one in tensors), **{name: one.double() for name, one in more.items()})
        out = torch.empty(wanted.shape, dtype=dtype, device=device)
        blocks[op, "launch"] = timed_launches(op, tensors, {**given, "out": out})
        for name, function, arguments in zip(ASKED, functions, ({**given, "out": out}, by_text, given)):
            call = functools.partial(function, *tensors, **arguments)
            [got] = found if isinstance(found := call(), list) else [found]
            ask(f"{op} by {name}, off fp64", off(got, wanted), 2e-2 if dtype != torch.float32 else 1e-5, "")
            blocks[op, name] = timed_calls(call)
    in_turns(blocks, 3, wait)
    times = in_turns(blocks, ROUNDS, wait)  # of all ops in turn: a slow spell of the host falls on all alike
    for op in cases:
        for name, most in ASKED.items():
            ask(f"{op}: {name} over the launch", statistics.median(b - a for a, b in zip(times[op, "launch"], times[op, name])), most, " us")


def graphed(call, device):
    """As one CUDA graph where there is a GPU: (a function that replays and gives us, its output)."""
    if device == "cpu":
        return timed_calls(call, 1), call()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def block():
        graph.replay()  # what another left in L2 is its own again
        begin.record()
        for _ in range(5):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 5 * 1e3

    block()
    return block, out


def measure_patch(device, dtype, wait, size):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True  # PyTorch's best
    with torch.device(device):
        net = diffusers.UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8).eval().to(dtype)
        for weight in net.parameters():  # of norms and biases too, so that none is forgotten unseen
            if weight.ndim == 1:
                weight.add_(torch.randn_like(weight), alpha=0.1)
        x, text = torch.randn(2, 4, size, size), torch.randn(2, 77, 768)
        given = x.to(dtype).to(memory_format=torch.channels_last), torch.tensor([700.0, 20.0]), text.to(dtype)
    exact = copy.deepcopy(net).float()(*(one.float() for one in given)).sample
    plain = copy.deepcopy(net).to(memory_format=torch.channels_last)
    report = noisefloor.torch.patch(net)
    print(f"patch replaced {len(report.replaced)} modules and left {len(report.left)} {sorted(set(report.left.values()))}")
    most, blocks = float("inf"), {}
    for name, one in (("eager", plain), ("patched", net), ("torch.compile, mode default", torch.compile(plain))):
        blocks[name], out = graphed(lambda one=one: one(*given).sample, device)
        error = off(out, exact)
        ask(f"output of {name}, off fp32", error, most, "")
        most = min(most, 1.25 * error + 1e-6)
    whole = {name: statistics.median(values) for name, values in in_turns(blocks, ROUNDS // 10, wait).items()}
    print("one CUDA graph: " + ", ".join(f"{name} {value:,.0f} us" for name, value in whole.items()))
    ask("patched against the best of PyTorch", whole.pop("patched") / min(whole.values()), 1, "x")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    dtype, wait = (torch.float32, lambda: None) if options.device == "cpu" else (torch.bfloat16, torch.cuda.synchronize)
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name() if options.device == 'cuda' else 'the CPU'}, PyTorch {torch.__version__}, diffusers {diffusers.__version__}")
    gc.disable()
    with torch.no_grad():
        measure_calls(options.device, dtype, wait)
        gc.collect()
        measure_patch(options.device, dtype, wait, options.size)
    print(f"missed: {'; '.join(missed)}" if missed else "all that was asked holds")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
