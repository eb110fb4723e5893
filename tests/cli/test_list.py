"""What there is, as text and as data for other programs."""

import json
import re

import pytest

from tests.cli.program import ROOT, needs_program, run

pytestmark = needs_program


def listed(*arguments):
    """The lines of `list --format json`, read strictly: NaN and Infinity are not JSON."""
    result = run("list", *arguments, "--format", "json")
    assert result.returncode == 0, result.stderr
    return [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]


def test_ops_are_listed_as_data():
    ops = {op["op"]: op for op in listed("ops")}
    assert set(ops) == {file.parent.name for file in (ROOT / "kernels").glob("*/variants.cpp")} | {"network"}
    gemm = {field["name"]: field for field in ops["gemm"]["fields"]}
    meanings = {name: field.pop("meaning") for name, field in gemm.items()}
    assert meanings["m"] == "rows of a and d" and all(meanings.values())
    assert gemm["m"] == {"name": "m", "type": "integer", "low": 1, "high": 1 << 24}
    assert gemm["act"] == {"name": "act", "type": "choice", "choices": ["none", "silu", "gelu", "gelu_tanh", "geglu"], "default": "none"}
    assert gemm["scale"] == {"name": "scale", "type": "real", "low": -1e6, "high": 1e6, "default": "1"}
    assert gemm["bias"] == {"name": "bias", "type": "flag", "choices": ["0", "1"], "default": "1"}
    assert {field["name"]: field for field in ops["sampler_step"]["fields"]}["seed"]["high"] == (1 << 63) - 1
    assert ops["gemm"]["symbols"] == {"b_rows": "n*(1 + (act=geglu))"}
    tensors = ops["gemm"]["tensors"]
    assert tensors[0] == {"name": "a", "shape": ["m", "k"], "dtype": "the row's", "role": "in", "meaning": tensors[0]["meaning"], "when": "layout!=tn"}
    assert {"share": "fp32", "d": "the row's"}.items() <= {tensor["name"]: tensor["dtype"] for tensor in tensors}.items() and tensors[-1]["role"] == "out"
    assert {"name": "svd", "height": 576, "width": 1024, "multiples_of": 64, "noise_levels": [0.002, 700]} in ops["network"]["networks"]
    # The text says the same.
    lines = iter(run("list", "ops").stdout.splitlines())
    for op in ops.values():
        assert op["computes"] and next(lines) == f"{op['op']}: {op['computes']} ({', '.join(op['dtypes'])})"
        for field in op["fields"]:
            meaning = field.get("meaning") or meanings[field["name"]]  # gemm's were taken out
            name, ends, default = re.fullmatch(rf"  (\w+): {re.escape(meaning)} \((.*?)(?:; default (.*))?\)", next(lines)).groups()
            assert (name, default) == (field["name"], field.get("default"))
            if field["type"] == "choice":
                assert ends.split(", ") == field["choices"]
            else:
                assert [float(end) for end in ends.split(" to ")] == [float(end) for end in field.get("choices") or (field["low"], field["high"])]
        for name, formula in op["symbols"].items():
            assert next(lines) == f"  {name} = {formula}"
        known = {field["name"] for field in op["fields"]} | set(op["symbols"])
        assert set(re.findall("[a-z_]+", " ".join(extent for tensor in op["tensors"] for extent in tensor["shape"]))) <= known, op["op"]
        for tensor in op["tensors"]:
            assert next(lines).startswith(f"  {tensor['name']} [{', '.join(tensor['shape'])}]: {tensor['role'].replace('inout', 'in and out')}, ")
    assert not list(lines)


def test_variants_are_listed_as_data():
    variants = listed("variants")
    text = [line.split()[:2] for line in run("list", "variants").stdout.splitlines()[1:]]
    assert [[variant["op"], variant["variant"]] for variant in variants] == text
    assert [variant for op in listed("ops") for variant in op["variants"]] == variants
    for variant in variants:
        assert variant["kind"] and variant["arch"]
        assert variant["built"] == ("reason" not in variant) and variant.get("reason", "says why")
    host = next(variant for variant in variants if variant["op"] == "gemm" and variant["kind"] == "host")
    assert host == {"op": "gemm", "variant": "host", "kind": "host", "arch": "host", "built": True}


def test_problems_and_networks_are_listed_as_data(problems):
    (problems / "conv2d.csv").write_text("network,n,h,w,cin,cout,kernel,count\nmini,1,4,4,8,8,1,2\n")
    gemm, *_, conv = sorted(listed("problems", "--problems", problems), key=lambda problem: problem["op"], reverse=True)
    assert gemm["op"] == "gemm" and [tensor["name"] for tensor in gemm["tensors"]] == ["a", "b", "bias", "d"]
    assert gemm["tensors"][0] == {"name": "a", "shape": [8, 24], "dtype": "bf16", "role": "in"}
    assert gemm["tensors"][-1]["role"] == "out"
    assert conv["problem"] == "n=1,h=4,w=4,cin=8,cout=8,kernel=1" and conv["fields"]["pad"] == "0"  # not that of a 3x3
    (problems / "sets.csv").write_text("network,what\nother,problems to look at together\n")
    assert listed("networks", "--problems", problems) == [
        {"network": "mini", "set": False, "problems": 3, "launches": 6},
        {"network": "other", "set": True, "problems": 1, "launches": 1},
    ]
    assert run("list", "networks", "--problems", problems).stdout.splitlines() == ["mini", "other  (a set of problems)"]


def test_listed_problems_carry_the_inputs_that_an_op_fills(tmp_path):
    (tmp_path / "sampler_step.csv").write_text("network,batch,elements,solver,steps,step,schedule,count\n"
                                               "mini,2,64,edm_euler,20,5,karras,1\n")
    result = run("list", "problems", "--format", "json", "--problems", tmp_path)
    assert result.returncode == 0, result.stderr
    problem = json.loads(result.stdout)
    table = problem["filled"]["coefficients"]
    assert len(table) == 20 * 12
    row = table[5 * 12 : 6 * 12]
    assert row[0] == 1 and row[1] < 0 and row[3] is None  # x0 = x - sigma m, not clamped
    assert row[4] + row[5] == pytest.approx(1)
    sigma = -row[1]
    assert problem["normal"]["x"] == [0, pytest.approx((1 + sigma**2) ** 0.5)]
    assert problem["normal"]["model_output"] == [0, 1]


def test_networks_are_listed_with_what_they_cost():
    [line] = run("list", "problems", "--ops", "network", "--networks", "adm64-b1", "--format", "json").stdout.splitlines()
    problem = json.loads(line)
    assert problem["fields"] == {"name": "adm64", "batch": "1", "height": "64", "width": "64", "frames": "1", "tokens": "0", "training": "0", "recompute": "0"}
    assert problem["problem"] == "name=adm64,batch=1" and problem["filled"]["timesteps"] == [500]
    assert 2.02e11 < problem["dtypes"]["bf16"]["flops"] < 2.14e11  # 104 billion multiply-adds (Dhariwal and Nichol)
    assert problem["dtypes"]["bf16"]["l2_error"] == 0.02 and problem["dtypes"]["fp32"]["l2_error"] == 1e-4


def test_columns_are_listed_as_data():
    columns = {column["column"]: column for column in listed("columns")}
    assert columns["op"]["needed"] and columns["op"]["text"] and not columns["op"]["counter"]
    assert columns["l2_bytes"]["unit"] == "B" and columns["l2_bytes"]["counter"]
    assert [column["column"] for column in listed("columns", "--filter", "^dram_read")] == ["dram_read_bytes"]


def test_list_honours_ops(problems):
    assert {variant["op"] for variant in listed("variants", "--ops", "gemm,resample")} == {"gemm", "resample"}
    lines = run("list", "variants", "--ops", "gemm").stdout.splitlines()
    assert len(lines) > 5 and all(line.startswith(("op ", "gemm ")) for line in lines)
    assert [op["op"] for op in listed("ops", "--ops", "layernorm")] == ["layernorm"]
    assert listed("networks", "--ops", "conv2d", "--problems", problems) == []
    for what in ("ops", "variants", "problems", "networks"):
        result = run("list", what, "--ops", "gem")
        assert result.returncode == 2 and "unknown op 'gem'; did you mean 'gemm'" in result.stderr


def test_a_filter_that_matches_nothing_is_an_error():
    for what in ("ops", "variants", "problems", "networks", "solvers", "columns"):
        for form in ("text", "json"):
            result = run("list", what, "--filter", "^no such name$", "--format", form)
            assert result.returncode == 2 and f"--filter: no name matches '^no such name$'; see noisefloor list {what}" in result.stderr
    assert run("list", "rules", "--filter", "launch").returncode == 2
    result = run("list", "rules", "--format", "json")
    assert result.returncode == 2 and not result.stdout and "text only" in result.stderr, result.stderr
    assert [line.split("`")[1] for line in run("list", "columns", "--filter", "^time_warm").stdout.splitlines()[2:]] == ["time_warm_us", "time_warm_serial_us"]
