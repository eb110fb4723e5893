"""Prompts and pictures as files for noisefloor sample: what is refused, and (where transformers is installed) what a small CLIP makes of them."""

import json
import struct
import subprocess
import sys
import types
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from baselines.pytorch.conditioning import NETWORKS, Refused, drawn_by, loaded, loaded_network, make, options, resolve_sizes  # noqa: E402


try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError:
    transformers = None

with_transformers = pytest.mark.skipif(transformers is None, reason="needs PyTorch and transformers")


def conditioning(*arguments):
    return subprocess.run([sys.executable, "-m", "baselines.pytorch.conditioning", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)


@pytest.fixture
def weights(tmp_path):
    (tmp_path / "weights").mkdir()
    return tmp_path / "weights"


def test_what_is_no_pipeline_is_refused(tmp_path, weights):
    out = tmp_path / "f.safetensors"
    result = conditioning("sd15", "a cat", "--weights", weights, "--out", out)
    assert result.returncode == 2 and "it has no tokenizer/ and no text_encoder/" in result.stderr
    for part in ("tokenizer", "text_encoder"):
        (weights / part).mkdir()
    result = conditioning("sd15", "a cat", "--weights", weights, "--out", tmp_path / "nowhere" / "f")
    assert result.returncode == 2 and "there is no folder" in result.stderr
    result = conditioning("sd15", "a cat", "--weights", weights, "--out", out)  # empty, or no transformers here
    assert result.returncode == 2 and "conditioning: " in result.stderr and "Traceback" not in result.stderr
    assert conditioning("adm64", "a cat", "--weights", weights, "--out", out).returncode == 2
    assert not out.exists()


@pytest.mark.parametrize("arguments, says", [
    (("sdxl", "a cat"), "it has no tokenizer_2/ and no text_encoder_2/"),
    (("svd", "cat.png"), "it has no feature_extractor/ and no image_encoder/ and no vae/"),
    (("svd", "cat.png", "--height", 500), "500 is out of range (multiples of 64, 64 to 65536)"),
    (("svd", "cat.png", "--width", 6400000000), "6400000000 is out of range (multiples of 64, 64 to 65536)"),
    (("sdxl", "a cat", "--width", 48), "48 is out of range (multiples of 32, 32 to 65536)"),
    (("svd", "cat.png", "--fps", 0), "argument --fps: 0 is out of range (1 to 1000)"),
    (("svd", "cat.png", "--motion", -7), "argument --motion: -7 is out of range (0 to 1000)"),
    (("svd", "cat.png", "--noise", "inf"), "argument --noise: inf is out of range (0 to 1000)"),
    (("svd", "cat.png", "--seed", 2**70), f"argument --seed: {2**70} is out of range (0 to {2**63 - 1})"),
    (("sd15", "a cat", "--motion", 100), "unrecognized arguments: --motion"),
])
def test_what_a_network_does_not_read_is_refused(tmp_path, weights, arguments, says):
    for part in ("tokenizer", "text_encoder"):
        (weights / part).mkdir()
    result = conditioning(*arguments, "--weights", weights, "--out", tmp_path / "f.safetensors")
    assert result.returncode == 2 and says in result.stderr, result.stderr
    assert not (tmp_path / "f.safetensors").exists()


def test_sides_are_multiples_of_what_sample_takes():
    for network in ("sdxl", "svd"):
        *sides, divisor = drawn_by(network)
        assert all(side >= divisor and side % divisor == 0 for side in sides)
    assert drawn_by("svd") == (576, 1024, 64)


@pytest.mark.parametrize("size", ('"abc"', "[128]", "63", "true", "1e9", "[128, null]"))
def test_a_folder_of_no_size_is_refused(tmp_path, size):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet/config.json").write_text(f'{{"sample_size": {size}}}')
    with pytest.raises(Refused, match="config.json: sample_size must be"):
        resolve_sizes(types.SimpleNamespace(network="sdxl", weights=tmp_path, height=None, width=None))


def test_without_the_program_sizes_are_not_guessed(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules[drawn_by.__module__], "ROOT", tmp_path)
    monkeypatch.delenv("NOISEFLOOR_BINARY", raising=False)
    with pytest.raises(Refused, match="no noisefloor is built, which knows the sizes"):
        drawn_by("svd")


def test_files_that_are_read_are_not_written(tmp_path):
    for part in NETWORKS["svd"]:
        (tmp_path / "svd" / part).mkdir(parents=True)
    picture, weights, link = tmp_path / "pic.png", tmp_path / "svd/vae/model.safetensors", tmp_path / "link"
    for file in (picture, weights):
        file.write_text("kept")
    link.symlink_to(picture)
    for out, says in ((picture, "is a picture that is read"), (link, "is a picture that is read"), (weights, "is in the folder of --weights"),
                      (tmp_path / "svd/new.safetensors", "is in the folder of --weights")):
        result = conditioning("svd", picture, "--weights", tmp_path / "svd", "--out", out)
        assert result.returncode == 2 and says in result.stderr, result.stderr
    assert picture.read_text() == weights.read_text() == "kept" and link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"svd", "pic.png", "link"}


class Network:
    def __init__(self, missing, mismatched):
        self.info = {"missing_keys": missing, "mismatched_keys": mismatched}

    def from_pretrained(self, folder, **options):
        assert options == {"local_files_only": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
        return self, self.info

    def float(self):
        return self

    eval = float


def test_tensors_that_would_be_drawn_at_random_are_named_all_at_once():
    with pytest.raises(Refused) as refused:
        loaded_network(Path("sd"), "vae", Network({"b", "a"}, {("c", (5, 5), (24,))}))
    assert str(refused.value) == "sd is not a checkpoint; 3 tensors of its vae/ are wrong:\n  a is missing\n  b is missing\n  c is [5, 5], not [24]"
    whole = Network([], [])
    assert loaded_network(Path("sd"), "vae", whole) is whole


@pytest.mark.parametrize("error", [TypeError("a"), RuntimeError("a"), OSError("a"), KeyError("a"), Exception("a")])
def test_whatever_a_loader_throws_is_refused(error):
    def fails(*_, **__):
        raise error

    with pytest.raises(Refused, match="sd is not a checkpoint: vae/: '?a"):
        loaded(Path("sd"), "vae", types.SimpleNamespace(from_pretrained=fails))


LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "<|startoftext|>", "<|endoftext|>"]
BEGIN, END = WORDS.index("<|startoftext|>"), WORDS.index("<|endoftext|>")
CAT = [BEGIN, WORDS.index("a</w>"), WORDS.index("c"), WORDS.index("a"), WORDS.index("t</w>"), END, END, END, END]


def save_encoder(folder, suffix="", width=24, projection=None):
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


@with_transformers
def test_prompts_are_what_the_encoder_makes_of_them(tmp_path, weights):
    torch.manual_seed(0)
    encoder = save_encoder(weights)
    result = conditioning("sd15", "a cat", "longer than that", "--weights", weights, "--out", tmp_path / "f.safetensors")
    assert result.returncode == 0, result.stderr
    assert "'longer than that' is longer than 9 tokens" in result.stderr and "'a cat'" not in result.stderr
    tensors = load_file(tmp_path / "f.safetensors")
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == {"prompt_embeds": [2, 9, 24], "negative_prompt_embeds": [1, 9, 24]}
    with torch.no_grad():
        expected = encoder(torch.tensor([CAT, [BEGIN] + [END] * 8]))[0]
    torch.testing.assert_close(tensors["prompt_embeds"][0], expected[0])
    torch.testing.assert_close(tensors["negative_prompt_embeds"][0], expected[1])


@with_transformers
def test_damaged_checkpoints_are_refused_and_no_file_is_written(tmp_path, weights):
    save_encoder(weights)
    encoder, config, vocabulary = (weights / part for part in ("text_encoder/model.safetensors", "text_encoder/config.json", "tokenizer/vocab.json"))

    def refusal(*says):
        with pytest.raises(Refused) as refused:
            make(options().parse_args(["sd15", "a cat", "--weights", str(weights), "--out", str(tmp_path / "f.safetensors")]))
        assert all(words in str(refused.value) for words in says), refused.value

    def damaged(file, text, *says):
        kept = file.read_bytes()
        file.write_text(text)
        refusal(*says)
        file.write_bytes(kept)

    for text in ("[]", '{"hidden_size": "x"}', "no json"):
        damaged(config, text, "is not a checkpoint: text_encoder/: ")
    damaged(vocabulary, "no json", "is not a checkpoint: tokenizer/: ")
    damaged(vocabulary, json.dumps({word: 3 * i for i, word in enumerate(WORDS)}), "tokenizer/ has more words than text_encoder/")
    tensors = load_file(encoder)
    names = sorted(tensors)
    save_file({names[0]: torch.zeros(5, 5), **{name: tensors[name] for name in names[3:]}}, encoder, {"format": "pt"})
    refusal("3 tensors of its text_encoder/ are wrong:", *(f"{name} is missing" for name in names[1:3]), f"{names[0]} is [5, 5], not ")
    assert list(tmp_path.iterdir()) == [weights]


@with_transformers
@pytest.mark.parametrize("negative", [None, "a dog"])
def test_prompts_of_two_encoders_are_as_diffusers_has_them(tmp_path, weights, negative):
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    encoders = [save_encoder(weights), save_encoder(weights, "_2", 32, 20)]
    tokenizers = [transformers.CLIPTokenizer.from_pretrained(weights / f"tokenizer{suffix}") for suffix in ("", "_2")]
    pipeline = diffusers.StableDiffusionXLPipeline(None, *encoders, *tokenizers, None, None)
    with torch.no_grad():
        expected = pipeline.encode_prompt(["a cat", "a hat"], negative_prompt=negative and [negative] * 2, device="cpu")
    result = conditioning("sdxl", "a cat", "a hat", "--weights", weights, "--out", tmp_path / "f.safetensors", "--width", 768,
                          *(("--negative", negative) if negative else ()))
    assert result.returncode == 0, result.stderr
    tensors = load_file(tmp_path / "f.safetensors")
    assert tensors.pop("time_ids").tolist() == [[1024, 768, 0, 0, 1024, 768]]
    names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
    assert set(tensors) == set(names)
    for name, tensor in zip(names, expected):
        torch.testing.assert_close(tensors[name].expand_as(tensor), tensor)


@with_transformers
def test_pictures_are_as_diffusers_has_them(tmp_path, weights):
    diffusers, image_module = pytest.importorskip("diffusers"), pytest.importorskip("PIL.Image")
    torch.manual_seed(0)
    vision = transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=224, patch_size=56, projection_dim=20)).eval()
    vae = diffusers.AutoencoderKLTemporalDecoder(block_out_channels=(32, 32, 32, 32), down_block_types=("DownEncoderBlock2D",) * 4).eval()
    processor = transformers.CLIPImageProcessor()
    for part, module in (("image_encoder", vision), ("vae", vae), ("feature_extractor", processor)):
        module.save_pretrained(weights / part)
    pictures = [image_module.effect_noise((128, 64), 60 + 40 * i).convert("RGB") for i in range(2)]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    out = tmp_path / "f.safetensors"
    result = conditioning("svd", tmp_path / "0.png", tmp_path / "1.png", "--weights", weights, "--out", out, "--height", 64, "--width", 128,
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
    bomb = tmp_path / "60000x60000.png"  # of so many pixels, by its header
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0), b"IDAT" + zlib.compress(b"")]
    bomb.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks))
    for file in (bomb, out):
        with pytest.raises(Refused, match="is not a picture: "):
            make(options().parse_args(["svd", str(file), "--weights", str(weights), "--out", str(tmp_path / "other")]))
    file, tensors = weights / "vae/diffusion_pytorch_model.safetensors", vae.state_dict()
    first, second, *others = sorted(tensors)
    save_file({first: torch.zeros(5, 5), **{name: tensors[name] for name in others}}, file, {"format": "pt"})
    with pytest.raises(Refused) as refused:
        loaded_network(weights, "vae", diffusers.AutoencoderKLTemporalDecoder)
    assert f"2 tensors of its vae/ are wrong:\n  {second} is missing\n  {first} is [5, 5], not [" in str(refused.value)
