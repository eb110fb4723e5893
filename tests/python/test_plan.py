"""Plans: what a plan.csv decides, what it leaves open, and which ones are refused."""

import asyncio
import json
import re
import threading
from pathlib import Path

import built  # noqa: F401 - first
import noisefloor
import numpy as np
import pytest
from noisefloor import _signatures, ops
from noisefloor._core import Op

from tests.cli.program import read_table

RECORDED = Path(__file__).resolve().parents[2] / "reports" / "recorded" / "nvidia-h200" / "plan.csv"
A, B = np.ones((4, 8), np.float32), np.ones((5, 8), np.float32)


@pytest.fixture
def write(tmp_path):
    def write(*lines, head="op,dtype,problem,variant", device="", name="plan.csv"):
        (tmp_path / name).write_text("\n".join([head, *lines]) + "\n")
        if device is not None:
            (tmp_path / "env.json").write_text(json.dumps({"device": device}))
        return tmp_path / name

    return write


def chosen(op, shapes, fields, dtype, plan=None, variant=None):
    """The variant on a GPU of compute capability 9.0, which need not be here; None where the build has none for it."""
    made = _signatures.signature(op)
    try:
        return Op(op, made.names, made.keywords).chosen_on(90, tuple((shapes[name], dtype) if name in shapes else None for name in made.names),
                                                           tuple(fields.get(name) for name in made.keywords), variant, dtype, plan)
    except ValueError as refused:
        if "is not in this build" not in str(refused):
            raise
        return pytest.skip("this build has no variant for GPUs")


def gemm_on(plan, m=64, variant=None):
    return chosen("gemm", {"a": (m, 64), "b": (64, 64)}, {}, "bf16", plan, variant)


def test_a_plan_decides_and_the_best_fills_in(write):
    best = gemm_on(None)
    other = next(variant.name for variant in noisefloor.variants("gemm") if variant.built and variant.kind not in ("host", "ptx") and variant.name != best)
    plan = noisefloor.Plan(write(f'gemm,bf16,"m=64,n=64,k=64,bias=0",{other}', 'gemm,bf16,"bias=0,k=64,m=65,n=64,scale=1",cublaslt',
                                 'gemm,bf16,"m=66,n=64,k=64,bias=0",host', f'gemm,fp16,"m=67,n=64,k=64,bias=0",{other}'))
    assert (len(plan), repr(plan)) == (4, "<noisefloor.Plan: 4 problems on an unknown device>")
    assert gemm_on(plan) == other != best and gemm_on(None) == best
    for m, why in [(65, "the plan's is a library's"), (66, "it does not run there"), (67, "it is of another dtype"), (68, "it is not in the plan")]:
        assert gemm_on(plan, m) == gemm_on(None, m) == best, why
    assert gemm_on(plan, variant=best) == best, "variant= goes before the plan"
    with noisefloor.use_plan(plan):
        assert gemm_on(None) == other and gemm_on(write('gemm,bf16,"m=64,n=64,k=64",tiled')) == best, "plan= goes before use_plan"


def test_the_recorded_plan_is_read_and_followed():
    plan = noisefloor.Plan(RECORDED)
    lines = read_table(RECORDED)
    assert len(plan) == len(lines) and plan.device == "NVIDIA H200" and repr(plan).endswith("problems on NVIDIA H200>")
    for line in lines:
        if line["op"] == "groupnorm" and line["variant"] == "tiled" and "," not in line["problem"].partition("groups=")[2]:
            fields = {name: int(value) for name, value in (pair.split("=") for pair in line["problem"].split(","))}
            shapes = {"x": (fields["n"], fields["hw"], fields["channels"]), "gamma": (fields["channels"],), "beta": (fields["channels"],)}
            assert chosen("groupnorm", shapes, {"groups": fields["groups"]}, line["dtype"], plan) == "tiled"
            return


def test_a_plan_of_another_device_is_refused(write):
    with pytest.raises(ValueError, match=r"plan.csv is a plan for NVIDIA H200, and the tensors are on the CPU, .+ \(\d+ cores?\)"):
        ops.gemm(A, B, plan=RECORDED)
    file = write('gemm,fp32,"m=4,n=5,k=8",host', device="NVIDIA H200")
    with noisefloor.use_plan(file), pytest.raises(ValueError, match="is a plan for NVIDIA H200, and the tensors are on the CPU"):
        ops.gemm(A, B)
    with pytest.raises(ValueError, match="is a plan for NVIDIA H200"):
        noisefloor.prepare("gemm", A.shape, B, plan=file)
    here = re.search(r"the tensors are on the CPU, (.+)", refusal(file))[1]
    assert np.array_equal(ops.gemm(A, B, plan=write('gemm,fp32,"m=4,n=5,k=8",host', device=here, name="here.csv")), ops.gemm(A, B))


def refusal(file):
    with pytest.raises(ValueError) as refused:
        ops.gemm(A, B, plan=file)
    return str(refused.value)


def is_refused():
    try:
        ops.gemm(A, B)
    except ValueError:
        return True
    return False


def test_a_plan_of_no_known_device_is_taken_and_said(write):
    file = write('gemm,fp32,"m=4,n=5,k=8",host', device=None)
    with pytest.warns(UserWarning, match="no env.json beside it says which device it is of"):
        plan = noisefloor.Plan(file)
    assert np.array_equal(ops.gemm(A, B, plan=plan), ops.gemm(A, B))


def test_what_is_no_plan_is_refused_by_name(write, tmp_path):
    for lines, text in [(["gemn,fp32,m=4,host"], "line 2: unknown op 'gemn'"), (["gemm,fp99,m=4,host"], "line 2: unknown dtype 'fp99'"),
                        (['gemm,fp32,"m=4,n=5,k=8",host', "gemm,fp32,m=none,host"], "line 3: "),
                        (['gemm,fp32,"m=4,n=5,k=8",host', 'gemm,fp32,"k=8,n=5,m=4",host'], "line 3: gemm fp32 m=4,n=5,k=8 is there twice"),
                        (['gemm,fp32,"m=4,n=5,k=8",hostt'], "line 2: gemm has no variant 'hostt'; did you mean 'host'?"),
                        (['gemm,fp32,"m=4,n=5,k=8",cudnnn'], "line 2: gemm has no variant 'cudnnn'"), (['gemm,fp32,"m=4,n=5,k=8"'], "line 2: gemm has no variant ''")]:
        with pytest.raises(ValueError, match=re.escape(f"plan.csv is not a plan: {text}")):
            noisefloor.Plan(write(*lines))
    with pytest.raises(ValueError, match="is not a plan: it has no column dtype, variant"):
        noisefloor.Plan(write(head="op,problem"))
    for content in (b"\x93NUMPY\xff", b"op,dtype,problem,variant\ngemm," + b"9" * 200000):
        (tmp_path / "plan.csv").write_bytes(content)
        with pytest.raises(ValueError, match="plan.csv is not a plan: "):
            noisefloor.Plan(tmp_path / "plan.csv")
    file = write('gemm,fp32,"m=4,n=5,k=8",host')
    for environment in ("[]", "{", '{"device": ["x"]}', "[" * 100000):
        (tmp_path / "env.json").write_text(environment)
        with pytest.raises(ValueError, match="plan .*plan.csv: which device it is of cannot be read in .*env.json"):
            noisefloor.Plan(file)
    for plan, error, text in [(tmp_path / "none.csv", FileNotFoundError, "none.csv"), (7, TypeError, "plan must be a noisefloor.Plan or the file of one, not a int")]:
        with pytest.raises(error, match=text):
            ops.gemm(A, B, plan=plan)


def test_a_variant_that_cannot_run_is_said_once(write):
    naive = next(variant.name for variant in noisefloor.variants("gemm") if variant.kind == "naive")
    plan = noisefloor.Plan(write(f'gemm,fp32,"m=4,n=5,k=8,bias=0",{naive}', 'gemm,fp32,"m=2,n=5,k=8,bias=0",cublaslt'))
    with pytest.warns(UserWarning, match=f"plan .*plan.csv: gemm fp32 m=4,n=5,k=8,bias=0 runs its best variant '{naive}' ") as said:
        assert np.array_equal(ops.gemm(A, B, plan=plan), ops.gemm(A, B))
        ops.gemm(A, B, plan=plan), ops.gemm(A[:2], B, plan=plan)
    assert len(said) == 1 and said[0].filename == __file__


def test_use_plan_is_of_its_task(write):
    file = write(device="another device")

    async def both():
        second_began, first_ended = asyncio.Event(), asyncio.Event()

        async def first():
            with noisefloor.use_plan(file):
                await second_began.wait()
                found = is_refused()
            first_ended.set()
            return found

        async def second():
            with noisefloor.use_plan(None):
                second_began.set()
                await first_ended.wait()
                return is_refused()

        return await asyncio.gather(first(), second()), is_refused()

    assert asyncio.run(both()) == ([True, False], False) and not is_refused()


def test_use_plan_is_of_its_thread_and_ends(write):
    file, seen = write(device="another device"), []
    with noisefloor.use_plan(file) as plan:
        thread = threading.Thread(target=lambda: seen.append(is_refused()))
        thread.start()
        thread.join()
        with noisefloor.use_plan(None):
            seen.append(is_refused())
        with pytest.raises(KeyError), noisefloor.use_plan(plan):
            raise KeyError
        seen.append(is_refused())
    assert seen == [False, False, True] and isinstance(plan, noisefloor.Plan) and not is_refused()
