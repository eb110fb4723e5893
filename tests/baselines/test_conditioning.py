"""Prompts and pictures as files for noisefloor sample: what is refused, and (where transformers is installed) what a small CLIP makes of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def conditioning(*arguments):
    return subprocess.run([sys.executable, "-m", "baselines.pytorch.conditioning", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)


def test_what_is_no_pipeline_is_refused(tmp_path):
    out = tmp_path / "f.safetensors"
    result = conditioning("sd15", "a cat", "--weights", tmp_path, "--out", out)
    assert result.returncode == 2 and "it has no tokenizer/ and no text_encoder/" in result.stderr
    for part in ("tokenizer", "text_encoder"):
        (tmp_path / part).mkdir()
    result = conditioning("sd15", "a cat", "--weights", tmp_path, "--out", tmp_path / "nowhere" / "f")
    assert result.returncode == 2 and "there is no folder" in result.stderr
    result = conditioning("sd15", "a cat", "--weights", tmp_path, "--out", out)  # empty, or no transformers here
    assert result.returncode == 2 and "conditioning: " in result.stderr and "Traceback" not in result.stderr
    assert conditioning("adm64", "a cat", "--weights", tmp_path, "--out", out).returncode == 2
    assert not out.exists()


@pytest.mark.parametrize("arguments, says", [
    (("sdxl", "a cat"), "it has no tokenizer_2/ and no text_encoder_2/"),
    (("svd", "cat.png"), "it has no feature_extractor/ and no image_encoder/ and no vae/"),
    (("svd", "cat.png", "--height", 500), "500 is not a multiple of 64"),
    (("sd15", "a cat", "--motion", 100), "unrecognized arguments: --motion"),
])
def test_what_a_network_does_not_read_is_refused(tmp_path, arguments, says):
    for part in ("tokenizer", "text_encoder"):
        (tmp_path / part).mkdir()
    result = conditioning(*arguments, "--weights", tmp_path, "--out", tmp_path / "f.safetensors")
    assert result.returncode == 2 and says in result.stderr, result.stderr
    assert not (tmp_path / "f.safetensors").exists()


LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "<|startoftext|>", "<|endoftext|>"]
BEGIN, END = WORDS.index("<|startoftext|>"), WORDS.index("<|endoftext|>")
CAT = [BEGIN, WORDS.index("a</w>"), WORDS.index("c"), WORDS.index("a"), WORDS.index("t</w>"), END, END, END, END]


def save_encoder(transformers, folder, suffix="", width=24, projection=None):
    (folder / f"tokenizer{suffix}").mkdir()
    (folder / f"tokenizer{suffix}" / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(WORDS)}))
    (folder / f"tokenizer{suffix}" / "merges.txt").write_text("#version: 0.2\n")
    (folder / f"tokenizer{suffix}" / "tokenizer_config.json").write_text('{"model_max_length": 9}')
    kind = transformers.CLIPTextModelWithProjection if projection else transformers.CLIPTextModel
    encoder = kind(transformers.CLIPTextConfig(
        vocab_size=len(WORDS), hidden_size=width, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=9,
        bos_token_id=BEGIN, eos_token_id=END, pad_token_id=END, projection_dim=projection or 512)).eval()
    encoder.save_pretrained(folder / f"text_encoder{suffix}")
    return encoder


def test_prompts_are_what_the_encoder_makes_of_them(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    torch.manual_seed(0)
    encoder = save_encoder(transformers, tmp_path)
    result = conditioning("sd15", "a cat", "longer than that", "--weights", tmp_path, "--out", tmp_path / "f.safetensors")
    assert result.returncode == 0, result.stderr
    assert "'longer than that' is longer than 9 tokens" in result.stderr and "'a cat'" not in result.stderr
    tensors = load_file(tmp_path / "f.safetensors")
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == {"prompt_embeds": [2, 9, 24], "negative_prompt_embeds": [1, 9, 24]}
    with torch.no_grad():
        expected = encoder(torch.tensor([CAT, [BEGIN] + [END] * 8]))[0]
    torch.testing.assert_close(tensors["prompt_embeds"][0], expected[0])
    torch.testing.assert_close(tensors["negative_prompt_embeds"][0], expected[1])


@pytest.mark.parametrize("negative", [None, "a dog"])
def test_prompts_of_two_encoders_are_as_diffusers_has_them(tmp_path, negative):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    diffusers = pytest.importorskip("diffusers")
    from safetensors.torch import load_file

    torch.manual_seed(0)
    encoders = [save_encoder(transformers, tmp_path), save_encoder(transformers, tmp_path, "_2", 32, 20)]
    tokenizers = [transformers.CLIPTokenizer.from_pretrained(tmp_path / f"tokenizer{suffix}") for suffix in ("", "_2")]
    pipeline = diffusers.StableDiffusionXLPipeline(None, *encoders, *tokenizers, None, None)
    with torch.no_grad():
        expected = pipeline.encode_prompt(["a cat", "a hat"], negative_prompt=negative and [negative] * 2, device="cpu")
    result = conditioning("sdxl", "a cat", "a hat", "--weights", tmp_path, "--out", tmp_path / "f.safetensors", "--width", 768,
                          *(("--negative", negative) if negative else ()))
    assert result.returncode == 0, result.stderr
    tensors = load_file(tmp_path / "f.safetensors")
    assert tensors.pop("time_ids").tolist() == [[1024, 768, 0, 0, 1024, 768]]
    names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
    assert set(tensors) == set(names)
    for name, tensor in zip(names, expected):
        torch.testing.assert_close(tensors[name].expand_as(tensor), tensor)


def test_pictures_are_as_diffusers_has_them(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    diffusers = pytest.importorskip("diffusers")
    image_module = pytest.importorskip("PIL.Image")
    from safetensors.torch import load_file

    torch.manual_seed(0)
    vision = transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=224, patch_size=56, projection_dim=20)).eval()
    vae = diffusers.AutoencoderKLTemporalDecoder(block_out_channels=(32, 32, 32, 32), down_block_types=("DownEncoderBlock2D",) * 4).eval()
    processor = transformers.CLIPImageProcessor()
    for part, module in (("image_encoder", vision), ("vae", vae), ("feature_extractor", processor)):
        module.save_pretrained(tmp_path / part)
    pictures = [image_module.effect_noise((128, 64), 60 + 40 * i).convert("RGB") for i in range(2)]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    out = tmp_path / "f.safetensors"
    result = conditioning("svd", tmp_path / "0.png", tmp_path / "1.png", "--weights", tmp_path, "--out", out, "--height", 64, "--width", 128,
                          "--noise", 0, "--fps", 12, "--motion", 30)
    assert result.returncode == 0, result.stderr
    tensors = load_file(out)
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == {
        "image_embeds": [2, 1, 20], "image_latents": [2, 4, 8, 16], "added_time_ids": [1, 3]}
    assert tensors["added_time_ids"].tolist() == [[11, 30, 0]]
    pipeline = diffusers.StableVideoDiffusionPipeline(vae, vision, None, None, processor)
    with torch.no_grad():
        torch.testing.assert_close(tensors["image_embeds"], pipeline._encode_image(pictures, "cpu", 1, False))
        expected = vae.encode(pipeline.video_processor.preprocess(pictures, height=64, width=128)).latent_dist.mode()
    torch.testing.assert_close(tensors["image_latents"], expected)
    assert "is not a picture" in conditioning("svd", out, "--weights", tmp_path, "--out", out).stderr
