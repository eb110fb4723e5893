"""PyTorch's rows and paired comparisons on a GPU, from a sweep of small problems. Skipped where there is no GPU, or no Python with a PyTorch that sees it.

In a bundle: run.sh exec env NOISEFLOOR_BINARY=bin/noisefloor python3 -m pytest -rs tests/gpu/test_pytorch.py
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.gpu.program import PROGRAM, PYTHON, need_gpu, run
from tests.gpu.program import rows as all_rows

PROBLEMS = {
    "gemm.csv": "network,m,n,k,count\nsmall,512,512,512,1\n",
    "groupnorm.csv": "network,n,hw,channels,groups,count\nsmall,2,256,128,32,1\n",
    "attention.csv": "network,batch,heads,seq_q,seq_kv,dim,count\nsmall,2,4,256,256,64,1\n",
    "attention_backward.csv": "network,batch,heads,seq_q,seq_kv,dim,count\nsmall,2,4,256,256,64,1\n",
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    need_gpu()
    if run(PYTHON, "-c", "import torch; assert torch.cuda.is_available()").returncode != 0:
        pytest.skip(f"{PYTHON} has no PyTorch that sees the GPU")
    folder = tmp_path_factory.mktemp("problems")
    for name, text in PROBLEMS.items():
        (folder / name).write_text(text)
    return folder


def rows(folder):
    return {(row["op"], row["variant"]): row for row in all_rows(folder)}


def sweep(problems, out, *more):
    return run(PROGRAM, "sweep", "--problems", problems, "--networks", "small", "--counters", "off", "--pytorch", "require", "--out", out,
               *more)


def test_its_rows_and_the_pairs(problems, tmp_path):
    out = tmp_path / "run"
    result = sweep(problems, out)
    assert result.returncode == 0, result.stderr
    found = rows(out)
    for op, variants in (("gemm", ("torch_eager", "torch_compile")), ("groupnorm", ("torch_eager", "torch_compile")),
                         ("attention", ("torch_flash", "torch_cudnn", "torch_efficient")),
                         ("attention_backward", ("torch_flash", "torch_cudnn"))):
        for variant in variants:
            row = found[op, variant]
            assert row["status"] == "ok", row
            assert 0 < float(row["time_warm_us"]) and float(row["time_warm_serial_us"]) == float(row["time_warm_us"])
            assert float(row["max_rel_error"]) <= float(row["tolerance"])
        # One of ours and one baseline of the problem have met, and say the same of each other.
        met = [row for (its_op, _), row in found.items() if its_op == op and row["paired_with"]]
        assert len(met) == 2 and {row["kind"] == "baseline" for row in met} == {True, False}
        first, second = met
        assert first["paired_with"] == second["variant"] and second["paired_with"] == first["variant"]
        for time_of in ("cold", "warm"):
            assert float(first[f"speedup_{time_of}"]) * float(second[f"speedup_{time_of}"]) == pytest.approx(1, rel=1e-4)
            assert float(first[f"speedup_{time_of}_low"]) <= float(first[f"speedup_{time_of}"]) <= float(first[f"speedup_{time_of}_high"])
    assert found["gemm", "torch_compile"]["reason"] == "torch.compile(mode=default)"
    fp8 = found["gemm", "peer_torch_scaled_mm"]  # a peer that comes with PyTorch: lossy, and so the best baseline of nothing
    if fp8["status"] == "ok":
        assert fp8["lossy"] and fp8["tolerance"] == "0.25" and float(fp8["max_rel_error"]) > 0.02 and not fp8["paired_with"]
    else:
        assert fp8["status"] in ("unsupported_problem", "cuda_error") and fp8["reason"]
    environment = json.loads((out / "env.json").read_text())
    assert environment["pytorch"] and environment["peer_torch_scaled_mm"].startswith("torch 2.")

    # A finished folder is not measured again, and takes no rows of another PyTorch.
    again = sweep(problems, out)
    assert again.returncode == 0 and f"{len(found)} cases are already in" in again.stderr
    environment["pytorch"] = "0.1"
    (out / "env.json").write_text(json.dumps(environment))
    other = sweep(problems, out)
    assert other.returncode == 2 and "holds rows of pytorch 0.1, this is" in other.stderr


def test_a_worker_that_is_killed_costs_one_row(problems, tmp_path):
    out = tmp_path / "run"
    command = [PROGRAM, "sweep", "--problems", problems, "--networks", "small", "--counters", "off", "--variants", "torch_compile,torch_eager",
               "--no-pairs", "--out", out]
    with subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True) as process:
        assert any(line.startswith("[") for line in process.stderr)  # reads up to the first case
        [worker] = [int(pid) for pid in run("pgrep", "-P", process.pid, "-f", "pytorch.worker").stdout.split()]
        os.kill(worker, signal.SIGKILL)
        rest = process.stderr.read()
    found = rows(out)
    failed = [row for row in found.values() if row["status"] == "cuda_error"]
    assert process.returncode == 0 and len(found) == 6, rest  # a library's failure is a row alone
    assert [row["reason"] for row in failed] == ["PyTorch's worker was killed by signal 9 (Killed)"]
    for _ in range(50):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.1)
    pytest.fail("the killed worker is still there")


def test_one_case_by_its_name(problems):
    result = run(PROGRAM, "run", "gemm/m=256,n=256,k=256/bf16/torch_eager", "--counters", "off")
    assert result.returncode == 0 and "torch_eager" in result.stdout and " ok" in result.stdout, result.stderr
