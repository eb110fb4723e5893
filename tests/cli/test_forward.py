"""One call of a network on a user's tensors, on the host."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.cli.program import needs_program, read_table, run, timeline

pytestmark = needs_program


def forward_input(folder, **replaced):
    generator = np.random.default_rng(0)
    tensors = {"x": generator.standard_normal((2, 1, 8, 8)).astype(np.float32), "sigma": np.array([0.5, 2], np.float32),
               "labels": np.array([3, 9], np.int64)}
    tensors.update(replaced)
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / "in.safetensors")
    return folder / "in.safetensors"


def forward(folder, *arguments):
    return run("forward", "digits", "--device", "host", "--input", folder / "in.safetensors", "--output", folder / "out.safetensors", *arguments)


@pytest.mark.parametrize("network, file", [("digits", "digits_forward.safetensors"), ("digits", "digits_forward_6x10.safetensors"),
                                           ("moving-digits", "moving_digits_forward.safetensors")])
def test_forward_is_what_pytorch_computes(tmp_path, network, file):
    """Inputs, and the output of baselines/pytorch/networks in fp32 on the CPU, with the shipped weights (record_forward.py)."""
    golden = load_file(Path(__file__).with_name(file))
    save_file({name: golden[name] for name in ("x", "sigma", "labels")}, tmp_path / "in.safetensors")
    result = run("forward", network, "--device", "host", "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors", "--dtype", "fp32")
    assert result.returncode == 0, result.stderr
    output = load_file(tmp_path / "out.safetensors")["output"]
    assert np.linalg.norm(output - golden["output"]) < 1e-5 * np.linalg.norm(golden["output"])


def test_forward_in_bf16_is_near_fp32(tmp_path):
    forward_input(tmp_path)
    outputs = []
    for dtype in ("fp32", "bf16", "fp16"):
        assert forward(tmp_path, "--dtype", dtype).returncode == 0
        outputs.append(load_file(tmp_path / "out.safetensors")["output"])
    assert outputs[0].shape == (2, 1, 8, 8)
    for output in outputs[1:]:
        assert np.linalg.norm(output - outputs[0]) < 2e-2 * np.linalg.norm(outputs[0])


def test_forward_takes_its_sizes_from_the_input(tmp_path):
    x = np.random.default_rng(1).standard_normal((2, 1, 6, 10)).astype(np.float32)
    forward_input(tmp_path, x=x)
    result = forward(tmp_path, "--size", "height=6")
    assert result.returncode == 0 and load_file(tmp_path / "out.safetensors")["output"].shape == x.shape, result.stderr


def test_forward_says_where_the_time_goes(tmp_path):
    forward_input(tmp_path)
    result = forward(tmp_path, "--trace", tmp_path / "trace.json", "--breakdown", tmp_path / "breakdown.csv")
    assert result.returncode == 0, result.stderr
    assert "digits, one call of 2 images: medians of 3 calls" in result.stdout and "gaps" in result.stdout
    rows = read_table(tmp_path / "breakdown.csv")
    assert list(rows[0]) == ["op", "node", "problem", "variant", "kernels", "time_us", "gap_before_us"]
    assert {"conv2d", "groupnorm", "gemm"} <= {row["op"] for row in rows} and {row["variant"] for row in rows} == {"host"}
    assert all(float(row["time_us"]) > 0 and row["kernels"] == "0" for row in rows)
    assert (tmp_path / "out.safetensors").is_file()
    tracks, memory = timeline(tmp_path / "trace.json")
    assert [(event["name"], event["args"]["op"]) for event in tracks["nodes"]] == [(row["node"], row["op"]) for row in rows]
    assert set(tracks) == {"nodes", "gaps"}, "the host has no kernels"
    assert all(event["dur"] > 0 and event["args"]["variant"] == "host" for event in tracks["nodes"])
    assert len(memory) == len(rows) and all(args["activations"] > 0 for args in memory)


@pytest.mark.parametrize("option, value, says", [("--trace", "out.safetensors", "is the same file as --output"),
                                                 ("--breakdown", "", "is a folder, but not of a run: it has no sweep.csv")])
def test_breakdown_refuses_before_anything_is_written(tmp_path, option, value, says):
    forward_input(tmp_path)
    result = forward(tmp_path, option, tmp_path / value)
    assert result.returncode == 2 and says in result.stderr, result.stderr
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("option, says", [("--plan", "a file of the run of --plan"), ("--breakdown", "a file of the run of --breakdown")])
def test_no_output_replaces_the_rows_that_are_compared_with(tmp_path, option, says):
    forward_input(tmp_path)
    for name in ("plan.csv", "sweep.csv"):
        (tmp_path / name).write_text("mine")
    result = forward(tmp_path, option, tmp_path / "plan.csv" if option == "--plan" else tmp_path, "--trace", tmp_path / "sweep.csv")
    assert result.returncode == 2 and f"--trace {tmp_path}/sweep.csv: is the same file as {says}" in result.stderr, result.stderr
    assert (tmp_path / "sweep.csv").read_text() == "mine"


@pytest.mark.parametrize("replaced, says", [
    ({"x": None}, "no tensor 'x'"),
    ({"x": np.zeros((2, 3, 8, 8), np.float32)}, "tensor x is [2, 3, 8, 8], not [2, 1, 8, 8]"),
    ({"x": np.zeros((2, 8, 8), np.float32)}, "tensor x is [2, 8, 8], not images [n, channels, height, width]"),
    ({"x": np.full((2, 1, 8, 8), np.nan, np.float32)}, "not finite"),
    ({"sigma": np.array([0.5, 0], np.float32)}, "sigma 0 is out of range"),
    ({"sigma": np.array([0.5], np.float32)}, "tensor sigma is [1], not [2]"),
    ({"labels": np.array([3, 10], np.int64)}, "labels 10 is out of range (whole numbers, 0 to 9)"),
    ({"labels": None}, "no tensor 'labels'"),
    ({"timesteps": np.array([3, 9], np.int64)}, "in.safetensors: digits takes no tensor timesteps; it takes x, sigma and labels"),
    ({"labels": np.array([3, 2.7], np.float32)}, "labels 2.7"),
    ({"labels": np.array([3, 1e300])}, "tensor labels has numbers that fp32 cannot hold: 1e+300"),
    ({"x": np.full((2, 1, 8, 8), -1e39)}, "tensor x has numbers that fp32 cannot hold"),
    ({"x": np.full((2, 1, 8, 8), 3e38, np.float32)}, "of 128 elements of the result are not finite"),
])
def test_forward_refuses(tmp_path, replaced, says):
    forward_input(tmp_path, **replaced)
    (tmp_path / "out.safetensors").write_text("mine")
    result = forward(tmp_path)
    assert result.returncode == 2 and says in result.stderr, result.stderr
    assert (tmp_path / "out.safetensors").read_text() == "mine"


@pytest.mark.parametrize("name", ["tiled", "all", "other"])
def test_a_plan_file_is_read_whatever_its_name(tmp_path, name):
    forward_input(tmp_path)
    (tmp_path / name).write_text("no plan")
    result = run("forward", "digits", "--device", "host", "--input", "in.safetensors", "--output", "out.safetensors", "--plan", name, cwd=tmp_path)
    assert result.returncode == 2 and f"{name} is not a plan (own, baseline, fastest, naive, or a file" in result.stderr, result.stderr
