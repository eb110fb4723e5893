"""The harness against Nsight Compute: rows of a sweep beside captures of the same cases, by tools/crosscheck.

Needs a GPU, ncu and the permission to count; skipped, saying which is missing, where there is none. In a bundle:
    run.sh exec env NOISEFLOOR_BINARY=bin/noisefloor python3 -m pytest -rs tests/gpu/test_crosscheck.py
"""

import sys

import pytest

from tests.gpu.program import PROGRAM, ROOT, need_gpu, run

# Memory-bound and tensor cores, the vendor's and ours. Dense products that run into the power cap are not among them: the harness's many launches
# and ncu's one run at clocks up to 9 % apart.
PROBLEMS = {"sampler_step.csv": "network,batch,elements,solver,noise,count\nncu,64,1048576,ddpm,given,1\n",
            "gemm.csv": "network,m,n,k,bias,count\nncu,524288,256,64,0,1\n"}
CASES = "(sampler_step.*/bf16/(cudnn|ptx_sm90a)|gemm.*/bf16/(cublaslt|tensor_core_sm80))$"


def test_harness_and_ncu_agree(tmp_path):
    pytest.importorskip("pandas")
    need_gpu("counters: ok")
    (tmp_path / "problems").mkdir()
    for name, text in PROBLEMS.items():
        (tmp_path / "problems" / name).write_text(text)
    swept = run(PROGRAM, "sweep", "--problems", tmp_path / "problems", "--networks", "all", f"--benchmark_filter={CASES}", "--no-pairs", "--out", tmp_path / "run")
    assert swept.returncode == 0, swept.stderr
    for line in run(PROGRAM, "sweep", "--problems", tmp_path / "problems", "--networks", "all", f"--benchmark_filter={CASES}", "--benchmark_list_tests").stdout.splitlines():
        captured = run(ROOT / "scripts/ncu", line, "--run", tmp_path / "run", "--", "--section", "LaunchStats")
        if "there is no ncu" in captured.stderr or "ERR_NVGPUCTRPERM" in captured.stderr:
            pytest.skip(captured.stderr.strip().splitlines()[-1])
        assert captured.returncode == 0, captured.stderr
    result = run(sys.executable, ROOT / "tools/crosscheck", "ncu", tmp_path / "run")
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
