"""Times training steps of PyTorch's DistributedDataParallel over the GPUs of this machine, beside `noisefloor train --devices`: a step as the rows have
it (networks/training.py), DDP's buckets under the backward pass, each GPU with the row's batch. On a GPU the whole step is one CUDA graph.

python3 -m baselines.pytorch.ddp unetcu-train-b32 --devices 2 [--compile]

NOISEFLOOR_BINARY names the program that lists problems. Exit code 2: it could not be told.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from baselines.pytorch.networks import training
    from baselines.pytorch.ops import network as network_op
    from baselines.pytorch.problems import read_problem
except ImportError as error:
    print(f"ddp: {error}", file=sys.stderr)
    sys.exit(2)

WARM_UPS = 12  # DDP asks for eleven ahead of a capture: the first rebuild its buckets
ROUNDS, STEPS = 5, 40


class Refused(Exception):
    pass


def problem_of(name):
    program = os.environ.get("NOISEFLOOR_BINARY") or Path(__file__).resolve().parents[2] / "scripts/noisefloor"
    try:
        listed = subprocess.run([program, "list", "problems", "--ops", "network", "--networks", name, "--format", "json"], capture_output=True, text=True, timeout=60)
        records = [json.loads(line) for line in listed.stdout.splitlines()]
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{program}: lists no problems: {error}") from None
    if listed.returncode != 0 or len(records) != 1:
        raise Refused(listed.stderr.strip() or f"{name}: the program lists {len(records)} problems, not one")
    problem = read_problem(records[0], torch.bfloat16)
    if not problem.flag("training"):
        raise Refused(f"{name} is no training step; these end with -train-b and their batch")
    return problem


def captured(step, inputs, device):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog makes calls of its own
        step(inputs)
    torch.cuda.synchronize(device)
    return graph.replay


def work(rank, arguments, problem):
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(arguments.port), "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    dist.init_process_group("nccl" if gpu else "gloo", rank=rank, world_size=arguments.devices)
    step = training.Step(problem.dtype)
    inputs = training.make_inputs(problem, network_op.build_network(problem.choice("name"), device, torch.float32), device, torch.Generator(device).manual_seed(rank))
    stream = torch.cuda.Stream() if gpu else None
    with torch.cuda.stream(stream) if gpu else contextlib.nullcontext():
        if arguments.devices > 1:
            plain = inputs["network"]
            inputs["network"] = DistributedDataParallel(plain, device_ids=[rank] if gpu else None, broadcast_buffers=False, gradient_as_bucket_view=True)
            if hasattr(plain, "sigma_data"):
                inputs["network"].sigma_data = plain.sigma_data
        if arguments.compile:
            network_op.prepare_compiler()
            step.compile_parts("default", fullgraph=False)  # DDP's buckets part it
        for _ in range(WARM_UPS if gpu else 1):
            step(inputs)
    if gpu:
        torch.cuda.synchronize(device)
    replay = captured(step, inputs, device) if gpu else lambda: step(inputs)
    rounds, steps = [], STEPS if gpu else 1
    for _ in range(ROUNDS):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            replay()
        if gpu:
            torch.cuda.synchronize(device)
        rounds.append((time.perf_counter() - began) / steps)
    if rank == 0:
        images = problem.integer("batch") * arguments.devices
        print(f"PyTorch {torch.__version__}, {'compiled' if arguments.compile else 'eager'}: {arguments.name} on {arguments.devices} of {images} images: "
              f"{1e3 * median(rounds):.3f} ms ({1e3 * min(rounds):.3f} to {1e3 * max(rounds):.3f}), {images / median(rounds):.0f} images/s", flush=True)
    dist.barrier()
    os._exit(0)  # a communicator that a graph holds does not end


def main():
    parser = argparse.ArgumentParser(prog="python3 -m baselines.pytorch.ddp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a training step of `noisefloor list networks`, such as unetcu-train-b32")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--port", type=int, default=29511)
    arguments = parser.parse_args()
    most = torch.cuda.device_count() if torch.cuda.is_available() else os.cpu_count()
    if not 1 <= arguments.devices <= most:
        parser.error(f"--devices {arguments.devices}: must be from 1 to {most}, what this machine has")
    try:
        problem = problem_of(arguments.name)
    except Refused as error:
        parser.error(str(error))
    if not 1 <= arguments.port <= 65535:
        parser.error(f"--port {arguments.port}: must be from 1 to 65535")
    try:
        torch.multiprocessing.spawn(work, (arguments, problem), nprocs=arguments.devices)
    except (torch.multiprocessing.ProcessExitedException, torch.multiprocessing.ProcessRaisedException) as error:
        parser.error(str(error).strip().splitlines()[-1])


if __name__ == "__main__":
    main()
