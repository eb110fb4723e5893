"""The harness against Nsight Compute: the same case captured by scripts/ncu and measured by the harness agrees within crosscheck's limits.

Needs a GPU, ncu and the permission to count; skipped, saying which is missing, where there is none. In a bundle:
    run.sh exec env NOISEFLOOR_BINARY=bin/noisefloor python3 -m pytest -rs tests/gpu/test_crosscheck.py
"""

import csv
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")

# Memory-bound, tensor cores, and a vendor's kernel of each. gemm's ptx_sm90a is not among them: ncu's time of it was 2.8 and 3.4 % above the
# harness's (reports/recorded/nvidia-h200), which is on both sides of the limit.
CASES = [
    "groupnorm/n=64,hw=4096,channels=320,groups=32,fusion=silu/bf16/ptx_sm90a",
    "groupnorm/n=64,hw=4096,channels=320,groups=32,fusion=silu/bf16/naive",
    "sampler_step/batch=64,elements=1048576,solver=ddpm,noise=given/bf16/ptx_sm90a",
    "sampler_step/batch=64,elements=1048576,solver=ddpm,noise=given/bf16/cudnn",
    "gemm/m=4096,n=4096,k=4096,bias=0/bf16/tensor_core_sm80",
    "gemm/m=4096,n=4096,k=4096,bias=0/bf16/cublaslt",
]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def gpu():
    if not Path(PROGRAM).is_file():
        pytest.skip("NOISEFLOOR_BINARY names no program")
    if not shutil.which("nvidia-smi") or run("nvidia-smi", "-L").returncode != 0:
        pytest.skip("no GPU here: nvidia-smi names none")
    devices = run(PROGRAM, "devices").stdout
    if "device 0" not in devices:
        pytest.skip("no CUDA device for this build")
    if "counters: ok" not in devices:
        pytest.skip("no counters here:" + devices.partition("counters:")[2].splitlines()[0])


def capture(case, folder):
    """The CSV of one capture, and ncu's time of the launch."""
    # One section that costs no pass of its own: crosscheck's metrics are always collected.
    text = f'set -euo pipefail; . "{ROOT}/scripts/lib.sh"; . "{ROOT}/scripts/capture.sh"; capture_arguments ncu "$@"; capture "{PROGRAM}" /nowhere'
    captured = run("bash", "-c", text, "ncu", case, "--out", folder, "--", "--section", "LaunchStats")
    for word in ("there is no ncu", "ERR_NVGPUCTRPERM", "unsupported_arch", "not_built"):
        if word in captured.stderr:
            pytest.skip(captured.stderr.strip().splitlines()[-1])
    assert captured.returncode == 0, captured.stderr
    [report] = folder.glob("*.csv")
    with open(report, newline="") as file:
        rows = list(csv.DictReader(file))[1:]  # the first holds the units
    return report, sum(float(row["gpu__time_duration.sum"].replace(",", "")) for row in rows)


@pytest.mark.parametrize("case", CASES)
def test_harness_and_ncu_agree(gpu, case, tmp_path):
    # ncu times one launch, the harness tens of them: the middle one of three captures is compared.
    captures = sorted((capture(case, tmp_path / str(i)) for i in range(3)), key=lambda found: found[1])
    result = run(PROGRAM, "crosscheck", case, "--report", captures[1][0])
    print(result.stdout)  # shown by -s, and where it fails
    assert result.returncode == 0, result.stdout + result.stderr
