"""Training from the command line, on the host: what is written, what is resumed, and what is refused."""

import ctypes
import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.cli.program import PROGRAM, WEIGHTS, needs_program, read_table, run

pytestmark = needs_program


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "data.safetensors"
    generator = np.random.default_rng(0)
    save_file({"images": generator.uniform(-1, 1, (30, 1, 8, 8)).astype(np.float32), "labels": np.arange(30) % 10}, file)
    return file


def train(data, out, *arguments, **kwargs):
    return run("train", "digits", "--device", "host", "--data", data, "--out", out, "--losses", out.with_suffix(".csv"), "--batch", 4, *arguments, **kwargs)


def losses(out):
    return read_table(out.with_suffix(".csv"))


def test_weights_losses_and_samples_are_written(data, tmp_path):
    out = tmp_path / "w.safetensors"
    result = train(data, out, "--steps", 4, "--samples", 2, "--rate", 1e-4, "--warm-up", 2)
    assert result.returncode == 0, result.stderr
    assert "images/s" in result.stderr and "ETA" in result.stderr
    rows = losses(out)
    assert [int(row["step"]) for row in rows] == [1, 2, 3, 4]
    assert all(0 < float(row["loss"]) < 1e3 and float(row["gradient_norm"]) > 0 for row in rows)
    assert float(rows[0]["rate"]) < float(rows[1]["rate"]) <= 1e-4
    for step in (2, 4):
        assert (tmp_path / f"w.step-{step:06}.png").read_bytes().startswith(b"\x89PNG")
    shipped, written = load_file(WEIGHTS), load_file(out)
    assert {name: tensor.shape for name, tensor in written.items()} == {name: tensor.shape for name, tensor in shipped.items()}
    assert all(np.isfinite(tensor).all() for tensor in written.values())
    with safe_open(out, "numpy") as file:
        assert file.metadata() == {"network": "digits", "steps": "4", "batch": "4", "seed": "0"}
    drawn = run("sample", "digits", "--device", "host", "--weights", out, "--steps", 2, "--out", tmp_path / "grid.png")
    assert drawn.returncode == 0, drawn.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"w.safetensors", "w.csv", "w.step-000002.png", "w.step-000004.png", "grid.png"}


def test_a_training_goes_on_where_it_was(data, tmp_path):
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    steps = ("--steps", 5)
    assert train(data, whole, *steps).returncode == 0
    checkpoint = ("--checkpoint", tmp_path / "c", "--every", 2)
    assert train(data, cut, *steps, *checkpoint).returncode == 0
    assert cut.read_bytes() == whole.read_bytes(), "checkpoints change nothing"
    lines = cut.with_suffix(".csv").read_text()
    for damage, says in (("what is no line of a step\n6,1,2", "line 7 and 1 more are left out"), ("6,0.2,0.1,1e-", "line 7 is left out"), ("", "")):
        cut.with_suffix(".csv").write_text(lines + damage)
        resumed = train(data, cut, *steps, *checkpoint, "--resume")
        assert resumed.returncode == 0 and cut.read_bytes() == whole.read_bytes(), resumed.stderr
        assert says in resumed.stderr and ("left out" in resumed.stderr) == bool(says)
        assert cut.with_suffix(".csv").read_text() == lines
    held = (tmp_path / "c").read_bytes()
    for change, word in ((("--rate", 2e-3), "--rate"), (("--steps", 6), "--steps"), (("--seed", 1), "--seed")):
        refused = train(data, cut, *steps, *checkpoint, "--resume", *change)
        assert refused.returncode == 2 and word in refused.stderr, refused.stderr
    save_file({**load_file(data), "labels": np.zeros(30, np.int64)}, tmp_path / "other")
    refused = train(tmp_path / "other", cut, *steps, *checkpoint, "--resume")
    assert refused.returncode == 2 and "--data" in refused.stderr
    refused = train(data, cut, *steps, *checkpoint)
    assert refused.returncode == 2 and "--resume" in refused.stderr
    assert (tmp_path / "c").read_bytes() == held


def test_a_training_goes_on_with_another_split(data, tmp_path):
    """Also where it was written on several devices: their checkpoints are those of one."""
    whole, split = tmp_path / "whole.safetensors", tmp_path / "split.safetensors"
    assert train(data, whole, "--steps", 4).returncode == 0
    checkpoint = ("--checkpoint", tmp_path / "c", "--every", 2, "--steps", 4)
    assert train(data, split, *checkpoint, "--accumulate", 4).returncode == 0
    assert [float(row["loss"]) for row in losses(split)] == pytest.approx([float(row["loss"]) for row in losses(whole)], rel=1e-4)
    resumed = train(data, split, *checkpoint, "--accumulate", 2, "--resume")
    assert resumed.returncode == 0 and "4 micro-batches a step, this 2" in resumed.stderr, resumed.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_training_keeps_its_steps(data, tmp_path, number):
    cut, checkpoint = tmp_path / "cut.safetensors", tmp_path / "c"
    begun = ["train", "digits", "--device", "host", "--data", data, "--out", cut, "--losses", cut.with_suffix(".csv"), "--batch", 4, "--steps", 4000]
    process = subprocess.Popen([PROGRAM, *map(str, begun), "--checkpoint", checkpoint, "--every", "4000"], stderr=subprocess.PIPE, text=True)
    assert "step" in process.stderr.read(20)  # one is taken
    second = run(*begun, "--checkpoint", checkpoint)
    assert second.returncode == 2 and f"process {process.pid}" in second.stderr, second.stderr
    process.send_signal(number)
    time.sleep(0.01)
    process.send_signal(number)  # as timeout(1) does: to the process, and to its group
    assert process.wait(60) == 128 + number and "--resume" in process.stderr.read()
    taken = int(losses(cut)[-1]["step"])
    with safe_open(checkpoint, "numpy") as file:
        assert 0 < taken == int(file.metadata()["step"]) < 4000
    assert not cut.exists() and {path.name for path in tmp_path.iterdir()} == {"c", "cut.csv"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_training_leaves_no_half_files(data, tmp_path, number):
    out = tmp_path / "w.safetensors"
    begun = ["train", "digits", "--device", "host", "--data", data, "--out", out, "--batch", 4, "--steps", 4000, "--samples", 1]
    process = subprocess.Popen([PROGRAM, *map(str, begun)], stderr=subprocess.PIPE, text=True)
    assert "step 1/" in process.stderr.read(10)  # then pictures are drawn
    process.send_signal(number)
    assert process.wait(60) == (-9 if number == signal.SIGKILL else 128 + number)
    assert number == signal.SIGKILL or "no weights are kept" in process.stderr.read()
    assert {path.name for path in tmp_path.iterdir()} <= {"w.step-000001.png"}


def test_pictures_that_cannot_be_written_are_named(data, tmp_path):
    (tmp_path / "w.step-000001.png").mkdir()
    result = train(data, tmp_path / "w", "--steps", 1, "--samples", 1)
    assert result.returncode == 2 and "w.step-000001.png: cannot be written" in result.stderr, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"w.step-000001.png", "w.csv"}, "the losses stay"


def test_a_checkpoint_has_one_writer(data, tmp_path):
    """What a killed one left is taken over."""
    lock = tmp_path / "c.lock"
    lock.write_text("process 1")
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = train(data, tmp_path / "w", "--steps", 1, "--checkpoint", tmp_path / "c")
        assert refused.returncode == 2 and "--checkpoint" in refused.stderr and "process 1" in refused.stderr, refused.stderr
    assert train(data, tmp_path / "w", "--steps", 1, "--checkpoint", tmp_path / "c").returncode == 0
    assert not lock.exists()
    lock.write_text("of another program")
    refused = train(data, tmp_path / "w", "--steps", 1, "--checkpoint", tmp_path / "c", "--resume")
    assert refused.returncode == 2 and "c.lock" in refused.stderr and lock.read_text() == "of another program", refused.stderr


def test_a_step_that_is_not_finite_is_named(data, tmp_path):
    """A decay above 1 / rate makes the weights larger with each step."""
    out = tmp_path / "w.safetensors"
    result = train(data, out, "--steps", 300, "--rate", 1000, "--decay", 1, "--warm-up", 0, "--checkpoint", tmp_path / "c", "--every", 1, "--samples", 1)
    assert result.returncode == 1, result.stderr  # also where no pictures could be drawn of the step before
    bad = losses(out)[-1]
    assert f"step {bad['step']} " in result.stderr and "model." in result.stderr, "the step, and a tensor"
    assert not (np.isfinite(float(bad["loss"])) and np.isfinite(float(bad["gradient_norm"])))
    assert not out.exists() and not list(tmp_path.glob("*.partial"))
    assert all(np.isfinite(tensor).all() for tensor in load_file(tmp_path / "c").values())


def test_losses_that_cannot_be_written_cost_no_weights_nor_weights_losses(data, tmp_path):
    out = tmp_path / "w"
    result = run("train", "digits", "--device", "host", "--data", data, "--out", out, "--losses", "/dev/full", "--batch", 2, "--steps", 1)
    assert result.returncode == 2 and "/dev/full" in result.stderr and load_file(out).keys() == load_file(WEIGHTS).keys()
    result = run("train", "digits", "--device", "host", "--data", data, "--out", "/dev/full", "--losses", out, "--batch", 2, "--steps", 1)
    assert result.returncode == 2 and "/dev/full" in result.stderr and len(read_table(out)) == 1


@pytest.mark.parametrize("arguments, says", [
    (("--steps", 0), ("--steps", "1 to")),
    (("--betas", "0.9"), ("--betas", "two")),
    (("--betas", "0.9,1"), ("--betas", "0.9999")),
    (("--seed", 2**53 + 1), ("--seed", "0 to")),
    (("--clip", 1e-40), ("clip", "1e-30")),
    (("--every", 3), ("--every", "--checkpoint")),
    (("--resume",), ("--checkpoint",)),
    (("--resume", "--checkpoint", "nowhere"), ("nowhere",)),
    (("--resume", "--checkpoint", str(WEIGHTS)), ("no training checkpoint",)),
    (("--out", "/nowhere/w"), ("--out", "/nowhere")),
    (("--checkpoint", "/nowhere/c"), ("--checkpoint", "/nowhere")),
    (("--out", "/dev/stdout", "--samples", 1), ("--samples",)),
    *((("--samples", 1, option, "w.step-000001.png"), (option, "--samples")) for option in ("--trace", "--breakdown", "--losses", "--checkpoint")),
    *((("--checkpoint", "c", option, "c.lock"), (option, "lock")) for option in ("--trace", "--losses")),
    (("--checkpoint", "/dev/null", "--resume"), ("regular",)),
    (("--weights", "nowhere"), ("nowhere",)),
    (("--dtype", "int8"), ("int8",)),
    (("--batch", 10, "--accumulate", 4), ("--batch 10", "multiple of 4")),
    (("--accumulate", 0), ("--accumulate", "1 to 256")),
])
def test_wrong_arguments_are_named(data, tmp_path, arguments, says):
    out = () if "--out" in arguments else ("--out", tmp_path / "w")
    result = run("train", "digits", "--device", "host", "--data", data, *out, *arguments)
    assert result.returncode == 2, result.stderr
    assert all(word in result.stderr for word in says), result.stderr
    assert not list(tmp_path.iterdir()), "nothing is left"


def test_a_timeline_that_cannot_be_written_ends_what_has_not_begun(data, tmp_path):
    result = train(data, tmp_path / "w.safetensors", "--steps", 10**9, "--trace", "/dev/full")
    assert result.returncode == 2 and "/dev/full" in result.stderr and not list(tmp_path.iterdir()), result.stderr


def has_nccl():
    try:
        return bool(ctypes.CDLL("libnccl.so.2"))
    except OSError:
        return any([*Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2"), *Path("/usr/local").glob("cuda*/lib*/libnccl.so.2")])


@pytest.mark.parametrize("devices, says", [("0,0", "each once"), ("0,x", "--devices"), ("-1", "--devices"),
                                           *(pytest.param(devices, "pip install nvidia-nccl-cu13", marks=pytest.mark.skipif(has_nccl(), reason="NCCL is here"))
                                             for devices in ("0", "0,1"))])
def test_wrong_devices_are_named(data, tmp_path, devices, says):
    result = run("train", "digits", "--devices", devices, "--data", data, "--out", tmp_path / "w")
    assert result.returncode == 2 and says in result.stderr and not list(tmp_path.iterdir()), result.stderr


def test_data_that_do_not_fit_are_named(data, tmp_path):
    tensors = load_file(data)
    save_file({**tensors, "labels": np.full(30, 10)}, tmp_path / "labels")
    result = train(tmp_path / "labels", tmp_path / "w")
    assert result.returncode == 2 and "label 10" in result.stderr and "0 to 9" in result.stderr, result.stderr
    refused = run("train", "moving-digits", "--data", data, "--out", tmp_path / "w")
    assert refused.returncode == 2 and "frames, channels" in refused.stderr
    over = run("train", "digits", "--data", data, "--out", data)
    assert over.returncode == 2 and "--data" in over.stderr and load_file(data).keys() == tensors.keys()
    assert run("train", "sdxl", "--data", data, "--out", tmp_path / "w").returncode == 2


def test_videos_are_learnt_and_gone_on_with(tmp_path):
    """Bright frames and dark ones by turns. What a blend takes of a weight is given back where weights are written."""
    images = np.where(np.arange(16)[:, None, None, None] % 2 == np.arange(4)[:, None, None, None, None] % 2, 0.9, -0.9) * np.ones((4, 16, 1, 16, 16))
    save_file({"images": images.astype(np.float32), "labels": np.arange(4)}, tmp_path / "data")

    def train_videos(name, *arguments):
        return run("train", "moving-digits", "--device", "host", "--data", tmp_path / "data", "--out", tmp_path / name, "--losses", tmp_path / f"{name}.csv",
                   "--batch", 2, *arguments)

    few = ("--steps", 16, "--warm-up", 0, "--ema", 1)
    result = train_videos("whole", *few, "--samples", 16)
    assert result.returncode == 0, result.stderr
    found = [float(row["loss"]) for row in losses(tmp_path / "whole")]
    assert np.mean(found[-4:]) < 0.5 * np.mean(found[:2]), found
    assert b"acTL" in (tmp_path / "whole.step-000016.png").read_bytes()[:64], "pictures that move"
    cut = [PROGRAM, "train", "moving-digits", "--device", "host", "--data", tmp_path / "data", "--out", tmp_path / "cut", "--batch", 2, *few]
    cut += ["--checkpoint", tmp_path / "c"]
    process = subprocess.Popen([*map(str, cut)], stderr=subprocess.PIPE, text=True)
    assert "step" in process.stderr.read(20)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGINT
    assert run(*cut[1:], "--resume").returncode == 0
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()

    shipped = WEIGHTS.with_name("moving-digits.safetensors")
    assert train_videos("kept", "--weights", shipped, "--steps", 1, "--rate", 1e-12).returncode == 0
    expected, kept = load_file(shipped), load_file(tmp_path / "kept")
    assert expected.keys() == kept.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(kept[name], tensor, rtol=1e-5, atol=1e-9, err_msg=name)
    with safe_open(tmp_path / "c", "np") as checkpoint:
        layout = checkpoint.metadata()["layout of the states"]
    assert {line.split("\t")[0] for line in layout.splitlines()} == expected.keys()
    mixers = [name for name in expected if name.endswith("mix_factor")]
    save_file(expected | {name: np.full(1, 120, np.float32) for name in mixers}, tmp_path / "far")  # a share of 1e-52
    far = train_videos("lost", "--weights", tmp_path / "far", "--steps", 1, "--samples", 1, "--checkpoint", tmp_path / "held")
    assert far.returncode == 1 and any(name in far.stderr for name in mixers) and "held holds step 1" in far.stderr, far.stderr
    assert "no pictures of step 1" in far.stderr and not (tmp_path / "lost").exists()
    refused = train_videos("other", "--shift", 0.5)
    assert refused.returncode == 2 and "--shift" in refused.stderr and "videos" in refused.stderr


def test_mnist_unet_learns_from_idx_files_and_is_sampled_by_euler_and_heun(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
    for name, kind, tensor in (("images", 3, pixels), ("labels", 1, np.arange(3, dtype=np.uint8))):
        (tmp_path / name).write_bytes(bytes([0, 0, 8, kind]) + np.array(tensor.shape, ">i4").tobytes() + tensor.tobytes())
    out, times = tmp_path / "w.safetensors", tmp_path / "times.csv"
    result = run("train", "mnist-unet", "--device", "host", "--data", tmp_path / "images", tmp_path / "labels", "--batch", 2, "--steps", 2, "--out", out, f"--breakdown={times}")
    assert result.returncode == 0, result.stderr
    assert {"conv_transpose2d", "conv2d_wgrad", "adamw"} <= {row["op"] for row in read_table(times)}
    for sampler in ("edm_euler", "edm_heun"):
        drawn = run("sample", "mnist-unet", "--device", "host", "--weights", out, "--sampler", sampler, "--steps", 2, "--count", 1, "--out", tmp_path / sampler)
        assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "edm_euler").read_bytes() != (tmp_path / "edm_heun").read_bytes()


def test_unetcu_writes_and_reads_its_own_files(tmp_path):
    """DDPM on unet.cu's data; the weights go into its format, from which training and sampling begin."""
    header = np.zeros(256, np.int32)
    header[:5] = 20240620, 3, 3, 64, 64
    images = np.random.default_rng(0).uniform(-1, 1, (3, 3, 64, 64)).astype(np.float32)
    (tmp_path / "data.bin").write_bytes(header.tobytes() + images.tobytes())
    common = ("train", "unetcu", "--device", "host", "--data", tmp_path / "data.bin", "--batch", 1, "--steps", 1)
    refused = run(*common, "--out", tmp_path / "out.bin", "--p-mean", 0)
    assert refused.returncode == 2 and "--p-mean" in refused.stderr
    for out, weights in (("first", ()), ("out", ("--weights", tmp_path / "first.bin"))):
        result = run(*common, *weights, "--out", tmp_path / f"{out}.bin", "--losses", tmp_path / "out.csv")
        assert result.returncode == 0, result.stderr
        assert 0.1 < float(losses(tmp_path / "out.bin")[0]["loss"]) < 10
        words = np.fromfile(tmp_path / f"{out}.bin", np.int32, 256)
        assert list(words[:10]) == [12345678, 1, 3, 64, 3, 64, 64, 1000, 0, 0]
        assert (tmp_path / f"{out}.bin").stat().st_size == 1024 + 4 * 20494211
    result = run("sample", "unetcu", "--device", "host", "--weights", tmp_path / "out.bin", "--count", 1, "--sampler", "ddim", "--steps", 1, "--out",
                 tmp_path / "picture.png")
    assert result.returncode == 0, result.stderr
