"""Checkpoints from the command line: files that are something else, names behind a prefix, and what a folder's settings make of a command."""

import json
import struct
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.cli.program import WEIGHTS, needs_program, run

pytestmark = needs_program
SCHEDULER = {"_class_name": "EulerDiscreteScheduler", "prediction_type": "v_prediction", "beta_schedule": "scaled_linear", "beta_start": 0.00085,
             "beta_end": 0.012, "timestep_spacing": "trailing", "sample_max_value": 1.0, "a_new_one": [1, 2]}


def zeros(*names, dtype=np.float16):
    return {name: np.zeros(2, dtype) for name in names}


def many(form, count=400):
    return zeros(*(form.format(i) for i in range(count)))


def draw(network, weights, folder, *arguments):
    return run("sample", network, "--device", "host", "--weights", weights, "--count", 1, "--steps", 2, "--out", folder / "grid.png", "--tensor",
               folder / "grid.safetensors", *arguments)


def refused(network, weights, folder):
    """What is said of it, but for the program's name."""
    result = draw(network, weights, folder)
    assert result.returncode == 2 and not (folder / "grid.png").exists(), result.stderr
    return result.stderr.removeprefix("noisefloor: ").rstrip("\n").split("\n")


def pickled(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")


BYTES = {
    "a pickle in a zip archive": (pickled, ("zip archive", "data.pkl", "torch.load")),
    "a bare pickle": (lambda file: file.write_bytes(b"\x80\x04\x95\x10\x00.."), ("pickle", "torch.load")),
    "GGUF": (lambda file: file.write_bytes(b"GGUF\x03\0\0\0" + bytes(99)), ("GGUF", "fp16")),
    "a pointer of LFS": (lambda file: file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"), ("LFS", "git lfs pull")),
    "a web page": (lambda file: file.write_text("<!DOCTYPE html><html><body>404"), ("web page", "download")),
    "an error of a store": (lambda file: file.write_text("\n<?xml version='1.0'?><Error>AccessDenied</Error>"), ("web page", "AccessDenied", "download")),
    "a sentence": (lambda file: file.write_text("Repository not found\n"), ("a text", "Repository not found", "download")),
    "an error of a server": (lambda file: file.write_text('{"error": "Invalid username or password."}'), ("JSON", "Invalid username", "download")),
    "a download that was cut off": (lambda file: file.write_bytes(WEIGHTS.read_bytes()[:200_000]), ("cut off", "200000 of ", "download")),
    "one cut in its header": (lambda file: file.write_bytes(WEIGHTS.read_bytes()[:500]), ("cut off", "500 of ", "download")),
}


@pytest.mark.parametrize("kind", BYTES)
def test_a_file_that_is_no_safetensors_is_named_in_three_lines(tmp_path, kind):
    make, says = BYTES[kind]
    make(tmp_path / "weights.safetensors")
    lines = refused("digits", tmp_path / "weights.safetensors", tmp_path)
    assert len(lines) == 3 and "weights.safetensors" in lines[0] and "to do: " in lines[2], lines
    assert all(part in "\n".join(lines) for part in says), lines


NAMES = {
    "single file": (many("model.diffusion_model.input_blocks.{}.weight") | zeros("first_stage_model.encoder.conv_in.bias"), "single-file", "from_single_file"),
    "single file, its U-Net alone": (many("model.diffusion_model.input_blocks.{}.weight"), "single-file", "from_single_file"),
    "LoRA of kohya": (many("lora_unet_down_blocks_{}.lora_up.weight"), "LoRA", "fuse_lora"),
    "LoRA of peft": (many("unet.down_blocks.{}.attn1.to_q.lora_A.weight"), "LoRA", "fuse_lora"),
    "ControlNet": (many("controlnet_down_blocks.{}.weight"), "ControlNet", "without"),
    "textual inversion": (zeros("emb_params"), "textual inversion", "--conditioning"),
    "text encoder": (many("text_model.encoder.layers.{}.mlp.fc1.weight"), "text encoder", "unet/"),
    "transformer": (many("transformer_blocks.{}.attn.to_q.weight"), "transformer", "list networks"),
    "quantised": (many("down_blocks.{}.weight") | many("down_blocks.{}.weight_scale"), "quantised", "fp16"),
    "original names": (many("input_blocks.{}.0.weight"), "original names", "from_single_file"),
    "digits'": (None, "the weights of digits", "ask for digits"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_weights_of_another_kind_are_named_in_three_lines(tmp_path, kind):
    tensors, what, advice = NAMES[kind]
    save_file(load_file(WEIGHTS) if tensors is None else tensors, tmp_path / "weights.safetensors")
    lines = refused("edm-cifar", tmp_path / "weights.safetensors", tmp_path)
    assert len(lines) == 3 and "is not a checkpoint of edm-cifar" in lines[0] and what in lines[0], lines
    shown = [name for name in (tensors or load_file(WEIGHTS)) if name in lines[1]]
    assert min(3, len(tensors or "many")) <= len(shown), lines
    assert "to do: " in lines[2] and advice in lines[2], lines


def test_fp8_is_named(tmp_path):
    """numpy has no such dtype: a header by hand."""
    names = [name for name in load_file(WEIGHTS)]
    header = {name: {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [2 * i, 2 * i + 2]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    (tmp_path / "weights.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(2 * len(names)))
    lines = refused("digits", tmp_path / "weights.safetensors", tmp_path)
    assert len(lines) == 3 and "quantised, to F8_E4M3" in lines[0] and names[0] in lines[1], lines


def test_hundreds_of_wrong_names_are_counted(tmp_path):
    save_file(many("strange.{}.weight") | many("{}.other"), tmp_path / "weights.safetensors")
    lines = refused("edm-cifar", tmp_path / "weights.safetensors", tmp_path)
    assert len(lines) <= 5 and "missing" in lines[1] and "800 " in lines[2] and "another network" in lines[3], lines
    for line in lines[1:3]:
        assert line.count(",") >= 2 and " more" in line, line


@pytest.mark.parametrize("prefix", ("module.", "_orig_mod.", "unet.", "module._orig_mod.", "any.thing."))
def test_names_behind_one_prefix_are_read(tmp_path, prefix):
    save_file({prefix + name: tensor for name, tensor in load_file(WEIGHTS).items()}, tmp_path / "weights.safetensors")
    plain, behind = (draw("digits", weights, tmp_path) for weights in (WEIGHTS, tmp_path / "weights.safetensors"))
    assert plain.returncode == 0 and prefix not in plain.stderr
    expected = load_file(tmp_path / "grid.safetensors")["images"]
    assert behind.returncode == 0 and f"'{prefix}'" in behind.stderr, behind.stderr
    np.testing.assert_array_equal(load_file(tmp_path / "grid.safetensors")["images"], expected)


def pipeline(folder, scheduler=None, unet=None, vae=None):
    for part in ("unet", "vae", "scheduler"):
        (folder / part).mkdir(exist_ok=True)
    for part in ("unet", "vae"):
        save_file({"conv_in.bias": np.zeros(320, np.float32)}, folder / part / "diffusion_pytorch_model.safetensors")
    (folder / "scheduler/scheduler_config.json").write_text(json.dumps(SCHEDULER if scheduler is None else scheduler))
    (folder / "unet/config.json").write_text(json.dumps(unet or {}))
    (folder / "vae/config.json").write_text(json.dumps(vae or {}))
    text = np.zeros((1, 5, 768), np.float32)
    save_file({"prompt_embeds": text, "negative_prompt_embeds": text}, folder / "text.safetensors")
    return folder


def of_pipeline(folder, *arguments, weights=None):
    """The small weights are refused in the end; what is said before is of the settings."""
    result = run("sample", "sd15", "--device", "host", "--weights", weights or folder, "--conditioning", folder / "text.safetensors", "--out",
                 folder / "grid.png", *arguments)
    assert result.returncode == 2, result.stderr
    return result.stderr


def listed(said):
    return {line[:19].strip(): (line[19:44].strip(), line[44:]) for line in said.splitlines() if len(line) > 44 and line[18] == " "}


def test_settings_are_listed_with_what_comes_from_where(tmp_path):
    folder = pipeline(tmp_path, unet={"sample_size": 96, "cross_attention_dim": 768, "dropout": 0.1}, vae={"scaling_factor": 0.5})
    said = of_pipeline(folder, "--settings", "list", "--steps", 9, "--sampler", "spacing=leading,offset=2,final=first")
    rows = listed(said)
    assert rows["prediction"][0] == "v" and "scheduler_config.json prediction_type" in rows["prediction"][1], said
    assert rows["sampler"][0] == "edm_euler" and rows["height"][0] == "768" and "unet/config.json" in rows["height"][1], said
    assert rows["steps"] == ("9", "option --steps") and rows["spacing"] == ("leading", "option --sampler spacing="), said
    assert rows["offset"] == ("2", "option --sampler offset=") and rows["final"] == ("first", "option --sampler final="), said
    assert rows["guidance"] == ("7.5", "sd15's own") and rows["latent scale"] == ("0.5", "vae/config.json scaling_factor"), said
    assert "sample_max_value 1.0: ignored" in said and "dropout 0.1: ignored" in said and "a_new_one [1,2]: not a setting" in said
    quiet = of_pipeline(folder)
    assert "ignored" not in quiet.replace("it is ignored", "") and "a_new_one" in quiet and "prediction " not in quiet
    own = listed(of_pipeline(folder, "--settings", "own,list"))
    assert own["prediction"] == ("noise", "sd15's own") and own["height"][0] == "512" and own["latent scale"][0] == "0.18215"
    # A file inside of it is of the same pipeline.
    inside = listed(of_pipeline(folder, "--settings", "list", weights=folder / "unet/diffusion_pytorch_model.safetensors"))
    assert inside["prediction"][0] == "v" and inside["latent scale"][0] == "0.5"


@pytest.mark.parametrize("part, config, says", [
    ("scheduler", {**SCHEDULER, "beta_start": "abc"}, 'scheduler_config.json: beta_start must be a number above 0 and below 1, is "abc"'),
    ("scheduler", {**SCHEDULER, "_class_name": "LCMScheduler"}, "--sampler"),
    ("unet", {"attention_head_dim": [5, 10, 20, 20]}, "config.json: attention_head_dim must be [8,8,8,8], as sd15 is built"),
    ("unet", {"in_channels": 9}, "in_channels must be 4"),
    ("unet", {"cross_attention_dim": 2048, "block_out_channels": [320, 640, 1280]}, "this is sdxl"),
    ("scheduler", {**SCHEDULER, "_class_name": "A\nnoisefloor: fine"}, "(it is 'A\\nnoisefloor: fine' here"),
    ("vae", {"scaling_factor": "large"}, 'config.json: scaling_factor must be a number above 0'),
    ("vae", {"shift_factor": 0.0609}, "shift_factor must be null"),
])
def test_settings_that_are_not_used_are_refused_by_name(tmp_path, part, config, says):
    said = of_pipeline(pipeline(tmp_path, **{part: config}))
    assert says in said and "tensors are wrong" not in said, said
    assert says not in of_pipeline(tmp_path, "--settings", "own")


def test_what_lies_beside_in_fp16_is_said(tmp_path):
    folder = pipeline(tmp_path)
    (folder / "unet/diffusion_pytorch_model.fp16.safetensors").write_bytes((folder / "unet/diffusion_pytorch_model.safetensors").read_bytes())
    assert "unet/diffusion_pytorch_model.safetensors is read; diffusion_pytorch_model.fp16.safetensors is beside it" in of_pipeline(folder)


def test_a_folder_of_pickles_says_so(tmp_path):
    folder = pipeline(tmp_path)
    (folder / "unet/diffusion_pytorch_model.safetensors").unlink()
    pickled(folder / "unet/diffusion_pytorch_model.bin")
    said = of_pipeline(folder)
    assert "is a folder without a checkpoint" in said and "diffusion_pytorch_model.bin is no safetensors file, but a zip archive" in said, said
