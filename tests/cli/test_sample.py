"""Pictures from the command line, on the host: what is drawn, and what is refused."""

import json
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.cli.program import ROOT, WEIGHTS, needs_program, read_table, run, timeline

pytestmark = needs_program


def sample(folder, *arguments, name="grid"):
    result = run("sample", "digits", "--device", "host", "--out", folder / f"{name}.png", "--tensor", folder / f"{name}.safetensors", *arguments)
    assert result.returncode == 0, result.stderr
    return load_file(folder / f"{name}.safetensors")


def test_pictures_are_written(tmp_path):
    tensors = sample(tmp_path, "--count", 3, "--steps", 8, "--labels", "7,1", "--strip", tmp_path / "strip.png", "--every", 2)
    assert tensors["images"].shape == tensors["noise"].shape == (3, 1, 8, 8)
    assert tensors["labels"].tolist() == [7, 1, 7]
    assert np.isfinite(tensors["images"]).all() and 0.3 < np.abs(tensors["images"]).mean() < 1.2
    for name in ("grid.png", "strip.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_tensors_are_what_forward_takes(tmp_path):
    sample(tmp_path, "--count", 2, "--steps", 2, "--size", "height=6,width=10", "--zoom", 1)
    with safe_open(tmp_path / "grid.safetensors", "numpy") as file:
        assert file.metadata() == {"network": "digits", "layout": "channels-first"}
        noise, labels = file.get_tensor("noise"), file.get_tensor("labels")
    inputs = {"x": 80 * noise, "sigma": np.full(2, 80, np.float32), "labels": labels}
    forward = ("forward", "digits", "--device", "host", "--input", tmp_path / "in", "--output", tmp_path / "out")
    save_file(inputs, tmp_path / "in", metadata={"layout": "channels-first"})
    assert run(*forward).returncode == 0
    with safe_open(tmp_path / "out", "numpy") as file:
        assert file.metadata()["layout"] == "channels-first" and file.get_tensor("output").shape == (2, 1, 6, 10)
    save_file(inputs, tmp_path / "in", metadata={"layout": "channels-last"})
    refused = run(*forward)
    assert refused.returncode == 2 and "its metadata says 'layout: channels-last'; what is read here is channels-first" in refused.stderr


def test_an_animation_ends_at_the_pictures(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    # Three batches of two; steps 0 (noise), 2, 4 and 5.
    sample(tmp_path, "--count", 5, "--batch", 2, "--columns", 3, "--zoom", 2, "--steps", 5, "--gif", tmp_path / "way.gif", "--every", 2)
    grid = np.asarray(image_module.open(tmp_path / "grid.png"))
    with image_module.open(tmp_path / "way.gif") as animation:
        assert animation.format == "GIF" and animation.n_frames == 4 and animation.info["loop"] == 0
        assert animation.size == (3 * 18 - 2, 2 * 18 - 2) == grid.shape[::-1]
        frames, delays = [], []
        for number in range(animation.n_frames):
            animation.seek(number)
            delays.append(animation.info["duration"])
            frames.append(np.asarray(animation.convert("L")).astype(int))
    assert delays == [80, 80, 80, 2000]  # ms
    np.testing.assert_array_equal(frames[-1], grid)
    distances = [np.abs(frame - grid).mean() for frame in frames]
    assert distances[0] > 40 and distances == sorted(distances, reverse=True)


def test_an_image_does_not_depend_on_its_batch(tmp_path):
    arguments = ("--sampler", "ddim,eta=1,schedule=cosine", "--steps", 3, "--labels", 5)
    together = sample(tmp_path, "--count", 3, *arguments, name="together")
    alone = sample(tmp_path, "--count", 1, "--first-image", 2, *arguments, name="alone")
    np.testing.assert_allclose(together["images"][2], alone["images"][0], rtol=0, atol=1e-4)


def test_hoisted_levels_draw_the_same(tmp_path):
    arguments = "--count", 7, "--steps", 3  # from six images on sums on a host do not depend on how many there are
    plain, ahead = (sample(tmp_path, *arguments, *more, name=f"{len(more)}") for more in (("--without", "hoisting"), ()))
    assert (plain["images"] == ahead["images"]).all()
    memory = lambda *more: float(re.search(r"([\d.]+) MB on the device", run("sample", "digits", "--device", "host", *arguments, "--out", tmp_path / "g.png", *more).stdout)[1])
    assert memory() != memory("--without", "hoisting")  # rows of all calls, but no room for a call's


def test_levels_beyond_those_of_the_training_are_there_on_request_and_named(tmp_path):
    def said(*arguments):
        result = run("sample", "digits", "--device", "host", "--steps", 2, "--out", tmp_path / "grid.png", *arguments)
        assert result.returncode == 0, result.stderr
        return [line for line in result.stderr.splitlines() if "noise level" in line]

    assert said() == said("--sampler", "ddim,schedule=cosine") == said("--sampler", "sigma_max=20") == []
    for arguments in (("--sampler", "sigma_max=200"), ("--sampler", "ddim,sigma_max=200,schedule=linear")):
        line, = said(*arguments)
        assert "digits was trained at 0.002 to 80" in line


def test_pictures_are_of_the_size_asked_for(tmp_path):
    # Neither square nor powers of two; of 2 x 14, the coarser level has a single row.
    for height, width in ((6, 10), (2, 14)):
        images = sample(tmp_path, "--count", 3, "--batch", 2, "--steps", 2, "--size", f"height={height},width={width}", "--zoom", 1, "--columns", 2)["images"]
        assert images.shape == (3, 1, height, width) and np.isfinite(images).all()
        assert (tmp_path / "grid.png").read_bytes()[16:24] == struct.pack(">II", 2 * (width + 1) - 1, 2 * (height + 1) - 1)
    sample(tmp_path, "--count", 3, "--steps", 1, "--columns", 1000, "--zoom", 1)  # columns are no more than images
    assert (tmp_path / "grid.png").read_bytes()[16:24] == struct.pack(">II", 3 * 9 - 1, 8)
    # The network's own size, given or not, is the same picture.
    same = [sample(tmp_path, "--steps", 2, *sizes)["images"] for sizes in ((), ("--size", "width=8"))]
    np.testing.assert_array_equal(*same)


def test_sample_breaks_its_first_step_down_and_draws_the_same_pictures(tmp_path):
    plain = sample(tmp_path, "--count", 2, "--steps", 3, name="plain")["images"]
    result = run("sample", "digits", "--device", "host", "--count", 2, "--steps", 3, "--out", tmp_path / "grid.png", "--tensor",
                 tmp_path / "grid.safetensors", "--breakdown", tmp_path / "breakdown.csv", "--trace", tmp_path / "trace.json")
    assert result.returncode == 0, result.stderr
    assert "the first of 3 steps of edm_heun, 2 images" in result.stdout
    rows = read_table(tmp_path / "breakdown.csv")
    assert [row["node"] for row in rows if row["op"] == "sampler_step"] == ["sampler.first", "sampler.second"]
    tracks, memory = timeline(tmp_path / "trace.json")
    assert [event["name"] for event in tracks["nodes"]] == [row["node"] for row in rows] and len(memory) == len(rows) - 2
    assert len(rows) % 2 == 0  # two calls of the network, and two updates
    np.testing.assert_array_equal(load_file(tmp_path / "grid.safetensors")["images"], plain)


@pytest.mark.parametrize("arguments, says", [
    (["sample", "digit"], "unknown network 'digit'; there are adm64, edm-cifar, digits, moving-digits, mnist-unet, unetcu, sd15"),
    (["sample", "adm64"], "adm64 needs --weights"),
    (["sample", "sd15", "--weights", "."], "sd15 reads text: it needs --conditioning FILE, which is made by python3 -m baselines.pytorch.conditioning sd15"),
    (["sample", "sd15", "--weights", WEIGHTS, "--conditioning", "nowhere"], "nowhere"),
    (["sample", "sd15", "--weights", WEIGHTS, "--conditioning", WEIGHTS], "has no prompt_embeds and no negative_prompt_embeds; such a file is made by python3"),
    (["sample", "sd15", "--weights", WEIGHTS, "--conditioning", WEIGHTS, "--guidance", "0"], "has no prompt_embeds; such a file"),
    (["sample", "sd15", "--weights", WEIGHTS, "--conditioning", WEIGHTS, "--gif", "w.gif", "--every", "1"], "sd15 draws latents"),
    (["sample", "digits", "--conditioning", WEIGHTS], "--conditioning is for networks that read text or a picture, as sd15, sdxl and svd, not digits"),
    (["sample", "sd-vae", "--weights", WEIGHTS], "sd-vae decodes latents"),
    (["sample", "digits", "--weights", "tests"], "tests is a folder without a checkpoint"),
    (["sample", "digits", "--sampler", "heun"], "unknown sampler 'heun'"),
    (["sample", "digits", "--sampler", "ddim,chrun=1"], "'chrun=1' is none of prediction, schedule, spacing, offset, final, sigma_min, sigma_max, rho, eta, churn, clamp"),
    (["sample", "digits", "--sampler", "ddim,eta=1", "--sampler", "ddpm"], "--sampler: NAME is given twice"),
    (["sample", "digits", "--sampler", "ddim,eta=1,eta=0"], "eta is given twice"),
    (["sample", "digits", "--sampler", "clamp=-1"], "--sampler clamp=-1: the range is 0 to"),
    (["sample", "digits", "--without", "pld"], "--without: 'pld' is none of pdl, fusions, hoisting; did you mean 'pdl'"),
    (["sample", "digits", "--without", "pdl=1"], "'pdl=1' is none of"),
    (["sample", "digits", "--sigma-max", "20"], "--sigma-max was removed: --sampler sigma_max=VALUE"),
    (["sample", "digits", "--height=8"], "--height was removed: --size height=N"),
    (["sample", "digits", "--sampler", "schedule=cosin"], "unknown schedule 'cosin'; there are linear, scaled_linear, cosine, karras; did you mean 'cosine'"),
    (["sample", "digits", "--sampler", "spacing=leading"], "--sampler spacing= is for schedules of training timesteps"),
    (["sample", "digits", "--sampler", "schedule=linear,spacing=leadin"], "unknown spacing 'leadin'; there are linspace, leading, trailing"),
    (["sample", "digits", "--sampler", "schedule=linear,offset=1"], "--sampler offset= is for spacing=leading"),
    (["sample", "digits", "--sampler", "schedule=linear,final=last"], "--sampler final=last"),
    (["sample", "digits", "--labels", "10"], "--labels 10: digits has classes 0 to 9"),
    (["sample", "digits", "--labels", "one"], "'one' is not a whole number"),
    (["sample", "digits", "--sampler", "eta=1"], "--sampler eta= is for the sampler ddim"),
    (["sample", "digits", "--size", "frames=14"], "frames 14: digits makes single images; networks with frames: moving-digits, svd"),
    (["sample", "svd", "--weights", "."], "svd moves a picture: it needs --conditioning FILE, which is made by python3 -m baselines.pytorch.conditioning svd --weights FOLDER PICTURE"),
    (["sample", "svd", "--weights", WEIGHTS, "--conditioning", WEIGHTS], "has no image_embeds and no image_latents and no added_time_ids; such"),
    (["sample", "svd", "--gif", "s.gif", "--every", "1"], "--every says which steps"),
    (["sample", "digits", "--folder", "frames"], "--folder is for videos, which moving-digits or svd draws, not digits"),
    (["sample", "sd15", "--fps", "7"], "--fps is for videos"),
    (["sample", "moving-digits", "--chunk", "2"], "--chunk is for videos that a decoder makes of latents, which moving-digits does not draw"),
    (["sample", "moving-digits", "--strip", "s.png", "--every", "1"], "--strip shows pictures on their way; moving-digits draws videos"),
    (["sample", "digits", "--guidance", "2,3"], "--guidance FIRST,LAST is for videos"),
    (["sample", "svd", "--guidance", "2,0"], "--guidance FIRST,LAST: the last must be above 0"),
    (["sample", "svd", "--guidance", "1,2,3"], "--guidance 1,2,3: is one scale, or FIRST,LAST"),
    (["sample", "svd", "--settings", "folder"], "'folder' is none of own, list"),
    (["sample", "digits", "--size", "height=65536,width=65536"], "node "),
    (["sample", "digits", "--plan", "none.csv"], "none.csv is not a plan"),
    (["sample", "digits", "--gif", "way.gif"], "--gif needs --every K, 1 or more"),
    (["sample", "digits", "--gif", "way.gif", "--every", "0"], "--every 0: the range is 1 and more"),
    (["sample", "digits", "--every", "3"], "--every says which steps --strip and --gif show; give one of them"),
    (["sample", "digits", "--gif", "way.gif", "--every", "1", "--count", "1000", "--columns", "1", "--zoom", "8"],
     "a grid of 64 x 71992 pixels, but a GIF's sides have 65535 at most"),
    (["sample", "digits", "--count", "13001", "--columns", "1000", "--zoom", "64"],
     "575936 x 8000 pixels are 4607496000 bytes, but a PNG of ours has 536870912 at most; lower --zoom or --count"),
    (["sample", "digits", "--strip", "s.png", "--every", "1", "--steps", "1000", "--count", "64", "--zoom", "64"], "raise --every"),
    (["sample", "digits", "--gif", "w.gif", "--every", "1", "--steps", "1000", "--count", "400", "--columns", "20", "--zoom", "30"],
     "more than 2^32; raise --every"),
    (["sample", "digits", "--sampler", "sigma_max=inf"], "--sampler sigma_max=inf: must be a finite number"),
    (["sample", "digits", "--sampler", "schedule=cosine,rho=5"], "--sampler rho= is for schedule=karras"),
    (["sample", "digits", "--sampler", "schedule=linear", "--steps", "1000"],
     "the range is 1 to 930: 930 timesteps of schedule=linear have noise levels from 0.002 to 80, which sigma_min= and sigma_max= of --sampler change"),
    (["sample", "digits", "--seed", "-1"], "--seed -1: the range is 0"),
    (["sample", "digits", "--first-image", "9223372036854775807"], "--first-image"),
    (["sample", "digits", "--labels", ","], "--labels: its value is empty"),
    (["sample", "digits", "--labels", "1,,2"], "a class number is missing"),
    (["sample", "digits", "--plan", "fastes"], "there is no file of that name; did you mean 'fastest'"),
    (["sample", "digits", "--batch", "65536", "--count", "65536", "--guidance", "2"], "65536 images at a time, twice with guidance, are too many"),
    (["sample", "digits", "--weights", WEIGHTS, "--tensor", WEIGHTS], "is the same file as --weights"),
])
def test_sample_refuses(tmp_path, arguments, says):
    result = run(*arguments, "--device", "host", "--out", tmp_path / "grid.png")
    assert result.returncode == 2 and says in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_pipeline_is_refused_before_anything_is_drawn(tmp_path):
    """A folder without a U-Net; embedded text of another shape; and tensors of a U-Net or decoder that are missing, all named."""
    text = {"prompt_embeds": np.zeros((1, 5, 768), np.float32), "negative_prompt_embeds": np.zeros((1, 5, 768), np.float32)}

    def refused(*arguments, **tensors):
        save_file(tensors, tmp_path / "text.safetensors")
        result = run("sample", "sd15", "--device", "host", "--weights", tmp_path, "--conditioning", tmp_path / "text.safetensors", "--out",
                     tmp_path / "grid.png", *arguments)
        assert result.returncode == 2 and not (tmp_path / "grid.png").exists(), result.stderr
        return result.stderr

    assert "is a folder without a checkpoint; looked for, there and in unet/" in refused(**text)
    (tmp_path / "unet").mkdir()
    save_file({"conv_in.bias": np.zeros(320, np.float32)}, tmp_path / "unet" / "diffusion_pytorch_model.fp16.safetensors")
    said = refused(**text)
    assert "is a folder without a checkpoint; looked for, there and in vae/" in said  # the decoder is looked for before weights are read
    (tmp_path / "vae").mkdir()
    save_file({"encoder.conv_in.bias": np.zeros(128, np.float32)}, tmp_path / "vae" / "diffusion_pytorch_model.safetensors")
    said = refused(**text)
    assert "is not a checkpoint of sd-vae; 140 of its tensors are wrong" in said and "encoder" not in said
    assert "140 are missing: post_quant_conv.weight" in said and len(said.splitlines()) == 3
    decoder = tmp_path / "vae" / "diffusion_pytorch_model.safetensors"
    before = decoder.read_bytes()
    assert "is the same file as --weights" in refused("--tensor", decoder, **text) and decoder.read_bytes() == before
    assert "sd15 takes no tensor latent; it takes prompt_embeds" in refused(**text, latent=np.zeros((1, 4, 64, 64), np.float32))
    assert "--size tokens=77" in refused("--size", "tokens=77", **text)
    assert "prompt_embeds is [5, 768], not [5, 77, 768]" in refused(**{**text, "prompt_embeds": np.zeros((5, 768), np.float32)})
    assert "prompt_embeds is [1, 0, 768]: tokens 0 is out of range" in refused(**{**text, "prompt_embeds": np.zeros((1, 0, 768), np.float32)})
    narrow = np.zeros((1, 5, 1024), np.float32)
    assert "prompt_embeds is [1, 5, 1024], not [1, 5, 768]" in refused(**{**text, "prompt_embeds": narrow})
    assert "negative_prompt_embeds is [1, 4, 768], not [1, 5, 768]" in refused(
        **{**text, "negative_prompt_embeds": np.zeros((1, 4, 768), np.float32)})
    latents = np.zeros((1, 4, 64, 64), np.float32)
    assert "latents is [1, 4, 64, 64], not [2, 4, 64, 64]" in refused("--count", 2, **text, latents=latents)


def test_a_picture_to_move_is_of_the_shape_that_is_asked_for(tmp_path):
    told = {"image_embeds": np.zeros((1, 1, 1024), np.float32), "image_latents": np.zeros((1, 4, 8, 16), np.float32),
            "added_time_ids": np.array([[6, 127, 0.02]], np.float32)}
    (tmp_path / "unet").mkdir()
    save_file({"conv_in.bias": np.zeros(320, np.float32)}, tmp_path / "unet" / "diffusion_pytorch_model.safetensors")
    (tmp_path / "vae").mkdir()
    save_file({"encoder.conv_in.bias": np.zeros(128, np.float32)}, tmp_path / "vae" / "diffusion_pytorch_model.safetensors")

    def refused(*arguments, **tensors):
        save_file(tensors, tmp_path / "picture.safetensors")
        result = run("sample", "svd", "--device", "host", "--weights", tmp_path, "--conditioning", tmp_path / "picture.safetensors", "--out",
                     tmp_path / "video.png", "--folder", tmp_path / "frames", *arguments)
        assert result.returncode == 2 and sorted(file.name for file in tmp_path.iterdir()) == ["picture.safetensors", "unet", "vae"], result.stderr
        return result.stderr

    assert "is not a checkpoint of svd-vae; 266 of its tensors are wrong" in refused(**told)
    assert "spatial_res_block" in refused("--size", "height=64,width=128,frames=3", **told)
    assert "contradicts --size height=576" in refused("--size", "height=576", **told)
    assert "added_time_ids is [3], not [3, 3]" in refused(**{**told, "added_time_ids": np.zeros(3, np.float32)})
    assert "image_latents is [4, 8, 16], not [4, 4, 72, 128]" in refused(**{**told, "image_latents": np.zeros((4, 8, 16), np.float32)})
    assert "image_latents is [1, 3, 8, 16], not [1, 4, 8, 16]" in refused(**{**told, "image_latents": np.zeros((1, 3, 8, 16), np.float32)})
    assert "height 4: svd takes multiples of 8" in refused(**{**told, "image_latents": np.zeros((1, 4, 4, 16), np.float32)})
    assert "image_embeds is [1, 1024], not [1, 1, 1024]" in refused(**{**told, "image_embeds": np.zeros((1, 1024), np.float32)})
    assert "latents is [1, 14, 4, 8, 8], not [1, 14, 4, 8, 16]" in refused(**told, latents=np.zeros((1, 14, 4, 8, 8), np.float32))
    assert "--out " in run("sample", "svd", "--weights", tmp_path, "--conditioning", "x", "--out", tmp_path / "video.gif").stderr


@pytest.mark.parametrize("name", ["grid.jpg", "grid.gif"])
def test_a_png_is_not_written_under_another_name(tmp_path, name):
    result = run("sample", "digits", "--device", "host", "--steps", 1, "--out", tmp_path / name)
    assert result.returncode == 2 and name in result.stderr and "PNG" in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_video_of_our_own_needs_no_conditioning_and_no_decoder(tmp_path):
    def drawn(name, *arguments):
        result = run("sample", "moving-digits", "--device", "host", "--steps", 2, "--size", "frames=5", "--out", tmp_path / f"{name}.png", "--tensor",
                     tmp_path / f"{name}.safetensors", *arguments)
        assert result.returncode == 0, result.stderr
        assert "frames a second" in result.stdout
        return load_file(tmp_path / f"{name}.safetensors")

    two = drawn("two", "--count", 2, "--labels", "7,4", "--gif", tmp_path / "two.gif", "--folder", tmp_path / "two", "--guidance", 1.5)
    assert two["images"].shape == two["noise"].shape == (2, 5, 1, 16, 16) and list(two["labels"]) == [7, 4] and "latents" not in two
    assert b"acTL" in (tmp_path / "two.png").read_bytes() and (tmp_path / "two.gif").read_bytes().startswith(b"GIF89a")
    assert sorted(file.name for file in (tmp_path / "two").iterdir()) == [f"frame-000{frame}.png" for frame in range(5)]
    second = drawn("second", "--first-image", 1, "--labels", 4, "--guidance", 1.5)
    np.testing.assert_allclose(second["images"][0], two["images"][1], atol=1e-5)
    assert np.abs(drawn("other", "--first-image", 1, "--labels", 5, "--guidance", 1.5)["images"] - second["images"]).mean() > 1e-3


def test_results_that_are_not_finite_are_not_written(tmp_path):
    tensors = load_file(WEIGHTS)
    tensors["model.map_layer1.bias"] = np.full(256, 3e38, np.float32)  # finite itself
    save_file(tensors, tmp_path / "weights.safetensors")
    (tmp_path / "grid.png").write_text("mine")
    result = run("sample", "digits", "--device", "host", "--weights", tmp_path / "weights.safetensors", "--steps", 1, "--count", 2,
                 "--first-image", 5, "--out", tmp_path / "grid.png", "--tensor", tmp_path / "t.safetensors")
    assert result.returncode == 2, result.stderr
    assert "elements of the result are not finite" in result.stderr and "in 2 of 2 images, the first in image 5" in result.stderr
    assert (tmp_path / "grid.png").read_text() == "mine" and not (tmp_path / "t.safetensors").exists()
    result = run("sample", "digits", "--device", "host", "--dtype", "fp16", "--weights", tmp_path / "weights.safetensors", "--out", tmp_path / "grid.png")
    assert result.returncode == 2 and "model.map_layer1.bias has numbers that fp16 cannot hold" in result.stderr


def test_a_plan_is_no_output_and_what_is_refused_writes_none(tmp_path):
    plan = tmp_path / "plan.csv"
    plan.write_text("op,dtype,problem,variant\n")  # names nothing: a run measures, and writes what it chose
    for arguments, says in ((("--out", plan), "is the same file as --plan"), (("--out", tmp_path / "grid.png", "--labels", 10), "--labels 10")):
        result = run("sample", "digits", "--device", "host", "--plan", plan, *arguments)
        assert result.returncode == 2 and says in result.stderr, result.stderr
        assert [file.name for file in tmp_path.iterdir()] == ["plan.csv"] and plan.read_text().count("\n") == 1


# The shipped weights were trained without labels too: nothing is to be said of them, and 1 is the network's own prediction.
def test_guidance_needs_no_note_with_the_shipped_digits(tmp_path):
    drawn = {}
    for strength in (0, 1, 2):
        result = run("sample", "digits", "--device", "host", "--count", 2, "--batch", 1, "--steps", 1, "--guidance", strength, "--out",
                     tmp_path / "grid.png", "--tensor", tmp_path / f"{strength}.safetensors")
        assert result.returncode == 0 and "never trained on" not in result.stderr, result.stderr
        drawn[strength] = load_file(tmp_path / f"{strength}.safetensors")["images"]
    np.testing.assert_allclose(drawn[1], drawn[0], atol=1e-4)
    assert np.abs(drawn[2] - drawn[0]).mean() > 1e-3
    assert "also be trained without labels" in " ".join(run("sample", "--help").stdout.split())


def test_a_plan_names_what_it_cannot_run(tmp_path):
    head, *problems = run("problems", "digits", "--batch", 1, "--dtype", "fp32").stdout.splitlines()
    assert head == "op,dtype,problem,count"

    def drawn(variant, lines, *more):
        text = "".join(f"{line.rsplit(',', 1)[0]},{variant}\n" for line in lines)
        (tmp_path / "plan.csv").write_text(f"op,dtype,problem,variant\n{text}")
        return run("sample", "digits", "--device", "host", "--plan", tmp_path / "plan.csv", "--steps", 3, "--out", tmp_path / "grid.png", *more)

    result = drawn("no_such_variant", problems[:1])
    assert result.returncode == 2 and "this build has no variant no_such_variant" in result.stderr
    result = drawn("host", problems[:1], "--strict")
    assert result.returncode == 2 and "--strict forbids" in result.stderr and "no env.json beside it" in result.stderr
    result = drawn("host", problems, "--strict")
    assert result.returncode == 0, result.stderr
    (tmp_path / "env.json").write_text('{"device": 7, "commit": "a"}')
    result = drawn("host", problems)
    assert result.returncode == 2 and "env.json: field 'device' is not a text" in result.stderr and "json.exception" not in result.stderr


def test_digits_are_recognised(tmp_path):
    """Agreement of a classifier on 60 pictures; a thousand, as the README records, take minutes here."""
    pytest.importorskip("sklearn")
    sample(tmp_path, "--count", 60, "--steps", 8)
    judged = subprocess.run([sys.executable, "-m", "baselines.pytorch.digits.judge", tmp_path / "grid.safetensors"], capture_output=True,
                            text=True, cwd=ROOT)
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["agreement"] >= 0.9
