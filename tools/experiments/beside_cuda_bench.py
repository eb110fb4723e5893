#!/usr/bin/env python3
"""Ten kernels of ours timed by a sweep and by cuda-bench (NVIDIA's nvbench in Python), as a Markdown table. Run by hand, two minutes on a GPU; no test.

usage: beside_cuda_bench.py OUT

Needs PyTorch, cuda-bench, the package noisefloor of the same build (PYTHONPATH=build/cuda/python), and NOISEFLOOR_BINARY or a build.
Both time the same variant on the same problem; each draws its own numbers, of the same distribution.

  cold  cuda-bench: a call behind its blocking kernel, once its memset has written over L2: the median
  warm  cuda-bench: its batches of CUDA graphs of 100 calls: their mean, over 100; calls from Python would come too slowly
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import noisefloor
import torch

ROOT = Path(__file__).resolve().parents[2]
KERNELS = [
    ("gemm", "ptx_sm90a_small_m", "m=1,n=35712,k=768"),
    ("gemm", "ptx_sm90a", "m=1024,n=1152,k=384"),
    ("gemm", "ptx_sm90a", "m=4096,n=12288,k=3072,act=gelu_tanh"),
    ("gemm", "tensor_core_sm80", "m=4096,n=4096,k=4096"),
    ("attention", "ptx_sm90a", "batch=1,heads=6,seq_q=1024,seq_kv=1024,dim=64"),
    ("attention", "ptx_sm90a", "batch=1,heads=24,seq_q=4608,seq_kv=4608,dim=128"),
    ("conv2d", "ptx_sm90a_halo", "n=1,h=64,w=64,cin=192,cout=192"),
    ("groupnorm", "ptx_sm90a", "n=1,hw=4096,channels=192,groups=32,fusion=silu"),
    ("layernorm", "tiled", "rows=32768,channels=1280"),
    ("elementwise", "tiled", "op=silu,n=32,hw=4096,channels=512"),
]
GRAPH, SEED = 100, 7


def fields_of(problem):
    return dict(field.split("=") for field in problem.split(","))


def run(program, *words):
    return subprocess.run([program, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def swept(program, folder):
    """Of each kernel the problem as the program describes it, and its row."""
    for op in {op for op, _, _ in KERNELS}:
        problems = [fields_of(problem) for name, _, problem in KERNELS if name == op]
        names = sorted({name for fields in problems for name in fields})
        with open(folder / f"{op}.csv", "w", newline="") as stream:
            lines = csv.writer(stream)
            lines.writerows([["network", *names, "count"], *(["ten", *(fields.get(name, "") for name in names), 1] for fields in problems)])
    variants = ",".join(sorted({variant for _, variant, _ in KERNELS}))
    run(program, "sweep", "--problems", folder, "--networks", "ten", "--variants", variants, "--pytorch", "off", "--counters", "off", "--no-pairs",
        "--out", folder / "run")
    with open(folder / "run/sweep.csv", newline="") as stream:
        rows = {(row["op"], row["variant"], frozenset(fields_of(row["problem"]).items())): row for row in csv.DictReader(stream)}
    records = [json.loads(line) for line in run(program, "list", "problems", "--problems", folder, "--format", "json").splitlines()]
    described = {(record["op"], frozenset(fields_of(record["problem"]).items())): record for record in records}
    for op, variant, problem in KERNELS:
        fields = frozenset(fields_of(problem).items())
        row = rows[op, variant, fields]
        if row["status"] != "ok":
            sys.exit(f"{op} {variant} {problem}: {row['status']}: {row['reason']}")
        yield described[op, fields], row


def call_of(record, variant):
    """A function of `stream`, with the weights packed."""
    torch.manual_seed(SEED)
    tensors = {}
    for tensor in record["tensors"]:
        mean, deviation = record["normal"].get(tensor["name"], (0, 0))
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[tensor["dtype"]]
        tensors[tensor["name"]] = (torch.randn(tensor["shape"], device="cuda") * deviation + mean).to(dtype)
    first, *rest = [tensor["name"] for tensor in record["tensors"] if tensor["role"] == "in"]
    [out] = [tensors[tensor["name"]] for tensor in record["tensors"] if tensor["role"] == "out"]
    fields = {name: json.loads(value) if value[0].isdigit() else value for name, value in fields_of(record["problem"]).items() if name not in tensors}
    given = {name: tensors[name] for name in rest} | fields | {"variant": variant}
    if not rest:  # nothing to pack
        return lambda stream=None: getattr(noisefloor.ops, record["op"])(**{first: tensors[first]}, **given, out=out, stream=stream)
    handle = noisefloor.prepare(record["op"], **{first: tuple(tensors[first].shape)}, **given)
    return lambda stream=None: handle(tensors[first], out=out, stream=stream)


def by_cuda_bench(calls, folder):
    import cuda.bench

    def register(name, function, **options):
        cuda.bench.register(lambda state: state.exec(function, **options)).set_name(name)

    for number, call in enumerate(calls):
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(GRAPH):
                call()

        def launch_one(launch, call=call):
            call(launch.get_stream().addressof())

        def replay(launch, graph=graph):
            with torch.cuda.stream(torch.cuda.ExternalStream(launch.get_stream().addressof())):
                graph.replay()

        register(f"cold {number}", launch_one, batched=False)
        register(f"warm {number}", replay, batched=True)
    torch.cuda.synchronize()
    cuda.bench.run_all_benchmarks([sys.argv[0], "--devices", str(torch.cuda.current_device()), "--json", str(folder / "cuda-bench.json")])
    said = {}
    for benchmark in json.loads((folder / "cuda-bench.json").read_text())["benchmarks"]:
        [state] = benchmark["states"]
        said[benchmark["name"]] = {one["tag"]: float(value["value"]) for one in state["summaries"] for value in one["data"]
                                   if value["name"] == "value" and value["type"] == "float64"}
    return [(said[f"cold {number}"]["nv/cold/time/gpu/median"], said[f"warm {number}"]["nv/batch/time/gpu/mean"] / GRAPH) for number in range(len(calls))]


def main():
    [out] = sys.argv[1:] if len(sys.argv) == 2 else sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as work:
        kernels = list(swept(os.environ.get("NOISEFLOOR_BINARY") or str(ROOT / "scripts/noisefloor"), Path(work)))
        theirs = by_cuda_bench([call_of(record, row["variant"]) for record, row in kernels], Path(work))
    text = "| kernel | problem | cold us, ours | cuda-bench's | ratio | warm us, ours | cuda-bench's | ratio |\n|---|---|---:|---:|---:|---:|---:|---:|\n"
    for (record, row), seconds in zip(kernels, theirs):
        cells = []
        for column, other in zip(("time_cold_us", "time_warm_us"), seconds):
            cells += [f"{float(row[column]):.2f}", f"{1e6 * other:.2f}", f"{float(row[column]) / (1e6 * other):.3f}"]
        text += f"| {record['op']} `{row['variant']}` | `{record['problem']}` | {' | '.join(cells)} |\n"
    row = kernels[0][1]
    Path(out).write_text(f"{text}\n{row['device']}, commit `{row['commit']}`, bf16.\n")


if __name__ == "__main__":
    main()
