"""Runs made up for the gate, and the gate on them."""

import csv
import gzip
import json
import random
from pathlib import Path

import pytest

from tests.cli.program import run

RECORDED = Path(__file__).resolve().parents[2] / "reports" / "recorded" / "nvidia-h200"


def columns():
    with open(RECORDED / "sweep.csv", newline="") as file:
        return next(csv.reader(file))


def write_run(folder, times, seed=0, status=None, dtype="bf16", device="Test GPU", commit="abc", mhz=1980.0, samples=50, warm=None, kernel="gemm"):
    """A run of len(times) gemms; `status`: index -> what it is instead of ok. `warm`: serial times, else eight tenths."""
    generator = random.Random(seed)
    folder.mkdir()
    with open(folder / "sweep.csv", "w", newline="") as sweep, open(folder / "samples.jsonl", "w") as raw:
        writer = csv.DictWriter(sweep, columns(), restval="", lineterminator="\n")
        writer.writeheader()
        for i, us in enumerate(times):
            key = {"op": "gemm", "dtype": dtype, "problem": f"m={i + 1},n=64,k=64", "variant": "ptx"}
            row = {**key, "kind": "ptx", "networks": "net-b1:2", "status": (status or {}).get(i, "ok"), "device": device}
            row |= {"flops": "1e6", "bytes": "1e5", "commit": commit}
            if row["status"] == "ok":
                cold = sorted(us * (1 + generator.gauss(0, 0.004)) for _ in range(samples))
                row |= {"time_cold_us": f"{cold[samples // 2]:.6g}", "samples": samples, "sm_clock_mhz": mhz}
                generator.shuffle(cold)
                batches = [samples // 5] * 5
                around = sorted((warm[i] if warm else 0.8 * us) * (1 + generator.gauss(0, 0.002)) for _ in range(samples))
                row |= {"time_warm_serial_us": f"{around[samples // 2]:.6g}", "warm_clock_mhz": mhz}
                generator.shuffle(around)
                taken = {"cold_us": cold, "warm_us": around, "cold_batches": batches, "warm_batches": batches}
                taken |= {"cold_mhz": [mhz] * 5, "warm_mhz": [mhz] * 5, "kernels": [f"{kernel}<{i}>"], "kernel_counts": [1]}
                raw.write(json.dumps(key | taken) + "\n")
            writer.writerow(row)
    environment = {"schema": 2, "device": device, "commit": commit, "time_utc": f"2026-01-01T00:00:{seed:02}Z", "command_lines": []}
    (folder / "env.json").write_text(json.dumps(environment) + "\n")
    return folder


def pack(file, less=0):
    """FILE.gz in its place, without its last bytes."""
    packed = gzip.compress(file.read_bytes())
    file.with_name(f"{file.name}.gz").write_bytes(packed[:len(packed) - less])
    file.unlink()


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def gate(a, b, *more):
    return run("gate", "--baseline", a, "--candidate", b, *more)


def accept(a, b, *more):
    return run("gate", "accept", "--baseline", a, "--candidate", b, *more)


@pytest.fixture
def baseline(tmp_path):
    return write_run(tmp_path / "a", [50.0] * 20)
