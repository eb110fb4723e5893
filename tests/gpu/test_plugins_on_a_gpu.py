"""Plugins on a GPU: a CUDA kernel and a Triton one are rows, and what streams, graphs and L2 let a wrong one do is not. Skipped where there
is no GPU; the CUDA ones without nvcc, Triton's without a Python that has it.

NOISEFLOOR_BINARY=build/cuda/bin/noisefloor python3 -m pytest -rs tests/gpu/test_plugins_on_a_gpu.py
"""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu.plugins import tampered
from tests.gpu.program import PROGRAM, PYTHON, ROOT, need_gpu, rows, run

NVCC = shutil.which("nvcc") or next((str(path) for path in Path("/usr/local").glob("cuda*/bin/nvcc")), None)
WRONG = {  # and words of the reason, where there is only one way to find it
    "done_already": ("incorrect", "after the cold launches: "),
    "other_stream": ("incorrect", ""),
    "only_other_stream": ("cuda_error", "records no kernel"),
    "default_stream": ("cuda_error", ""),
    "not_joined": ("cuda_error", ""),
    "illegal": ("cuda_error", ""),
    "allocates": ("cuda_error", ""),
}
TORCH = """
import torch

op, name, kind = "groupnorm", "my_torch", "baseline"

def launch(problem, t):
    y = torch.group_norm(t.x.transpose(1, 2), problem.groups, t.gamma, t.beta, problem.eps).transpose(1, 2)
    return torch.nn.functional.silu(y) if problem.fusion == "silu" else y
"""


@pytest.fixture(scope="module")
def gpu():
    need_gpu()


@pytest.fixture
def nvcc(gpu):
    if NVCC is None:
        pytest.skip("no nvcc")
    return lambda source, library: subprocess.run([NVCC, "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-I", ROOT / "bench/plugin/include",
                                                   source, "-o", library], check=True)  # fmt: skip


@pytest.fixture
def triton(gpu):
    if run(PYTHON, "-c", "import torch, triton; assert torch.cuda.is_available()").returncode != 0:
        pytest.skip(f"{PYTHON} has no PyTorch and Triton that see the GPU")


def measured(tmp_path, problem_file, text, plugin, variants, dtype, *more):
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / problem_file).write_text(text)
    result = run(PROGRAM, "sweep", "--device", 0, "--problems", folder, "--networks", "all", "--dtypes", dtype, "--pytorch", "off", "--plugin", plugin,
                 "--variants", variants, "--out", tmp_path / "run", *more)  # fmt: skip
    return result, rows(tmp_path / "run")


GROUPNORM = "network,n,hw,channels,groups,fusion,count\nsmall,2,1024,320,32,silu,1\nsmall,1,77,60,5,none,1\n"


def hold_to_ours(result, table, name):
    assert result.returncode == 0, result.stderr
    mine, ours = ([row for row in table if row["variant"] == variant] for variant in (name, "naive"))
    assert len(mine) == len(ours) == 2
    for row, other in zip(mine, ours):
        assert row["status"] == "ok", (row["status"], row["reason"])
        blank = {column for column, value in other.items() if value} - {column for column, value in row.items() if value}
        assert blank <= {"workspace_bytes", "prepare_us", "buffer_slots", "signature"}, f"columns that ours has: {blank}"


def test_a_cuda_kernel_is_a_row(nvcc, tmp_path):
    assert run(PROGRAM, "new-kernel", "groupnorm", "--out", tmp_path).returncode == 0
    nvcc(tmp_path / "groupnorm.cu", tmp_path / "mine.so")
    for dtype in ("bf16", "fp16", "fp32"):
        folder = tmp_path / dtype
        folder.mkdir()
        hold_to_ours(*measured(folder, "groupnorm.csv", GROUPNORM, tmp_path / "mine.so", "naive,my_cuda", dtype), "my_cuda")


def test_a_cuda_skeleton_of_every_op_is_incorrect(nvcc, tmp_path):
    """It launches, and writes nothing."""
    ops = sorted(path.stem for path in (ROOT / "tests/problems").glob("*.csv") if path.stem != "groupnorm")  # which is a whole kernel
    for op in ops:
        assert run(PROGRAM, "new-kernel", op, "--out", tmp_path).returncode == 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda op: nvcc(tmp_path / f"{op}.cu", tmp_path / f"{op}.so"), ops))
    plugins = [word for op in ops for word in ("--plugin", tmp_path / f"{op}.so")]
    result = run(PROGRAM, "sweep", "--device", 0, "--problems", ROOT / "tests/problems", "--networks", "tiny", "--dtypes", "bf16,fp16,fp32", "--pytorch",
                 "off", "--counters", "off", "--variants", "my_cuda", "--out", tmp_path / "run", *plugins)  # fmt: skip
    assert result.returncode == 1, result.stdout + result.stderr
    table = rows(tmp_path / "run")
    assert {row["op"] for row in table} == set(ops)
    assert {row["status"] for row in table} == {"incorrect"}


def test_a_pair_judges_as_a_row(nvcc, tmp_path):
    nvcc(ROOT / "tests/gpu/plugins/rows.cu", tmp_path / "rows.so")
    one = ("--plugin", tmp_path / "rows.so", "--problem", "op=relu,n=2,hw=4096,channels=64", "--dtype", "fp32", "--device", 0)
    assert run(PROGRAM, "pair", "elementwise", "right", "naive", *one).returncode == 0
    compared = run(PROGRAM, "pair", "elementwise", "other_stream", "naive", *one)
    assert compared.returncode == 1 and "ours before the first block: after a replay" in compared.stdout, compared.stdout + compared.stderr
    compared = run(PROGRAM, "pair", "elementwise", "sets_aside", "naive", *one)
    said = compared.stdout + compared.stderr
    assert compared.returncode != 0 and any(words in said for words in ("its launches set L2 aside", "captur")), said  # CUDA may record no such launch


@pytest.mark.parametrize("name", ["my_triton", "my_torch"])
def test_a_python_function_is_a_row(triton, tmp_path, name):
    assert run(PROGRAM, "new-kernel", "groupnorm", "--out", tmp_path).returncode == 0
    (tmp_path / "groupnorm_torch.py").write_text(TORCH)
    file = tmp_path / f"groupnorm_{name.removeprefix('my_')}.py"
    result, table = measured(tmp_path, "groupnorm.csv", GROUPNORM, file, f"naive,{name}", "fp32")
    hold_to_ours(result, table, name)


def test_a_groupnorm_that_was_tampered_with_is_incorrect(triton, tmp_path):
    assert run(PROGRAM, "new-kernel", "groupnorm", "--out", tmp_path).returncode == 0
    (tmp_path / "mine.py").write_text(tampered.triton((tmp_path / "groupnorm_triton.py").read_text()))
    result, table = measured(tmp_path, "groupnorm.csv", tampered.PROBLEM, tmp_path / "mine.py", ",".join(tampered.REASONS), "fp32")
    assert result.returncode == 1, result.stderr
    tampered.hold_to_reasons(table, tampered.REASONS)


def test_wrong_cuda_kernels_are_rows_with_a_reason(nvcc, tmp_path):
    nvcc(ROOT / "tests/gpu/plugins/rows.cu", tmp_path / "rows.so")
    names = ["right", "joined", "set_aside", *WRONG, "sets_aside"]
    result, table = measured(tmp_path, "elementwise.csv", "network,op,n,hw,channels,count\nsmall,relu,2,4096,64,1\n", tmp_path / "rows.so",
                             ",".join(names), "fp32")  # fmt: skip
    assert result.returncode == 1, result.stderr
    found = {row["variant"]: row for row in table}
    for name in ("right", "joined", "set_aside"):
        assert found[name]["status"] == "ok", (name, found[name]["reason"])
    assert "took back" in found["set_aside"]["reason"]
    for name, (status, words) in WRONG.items():
        row = found[name]
        assert row["status"] == status and words in row["reason"], (name, row["status"], row["reason"])
    assert found["sets_aside"]["status"] in ("incorrect", "cuda_error"), found["sets_aside"]
    for name in (*WRONG, "sets_aside"):
        assert not found[name]["time_cold_us"] and not found[name]["time_warm_us"], name
