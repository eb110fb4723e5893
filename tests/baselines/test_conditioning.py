"""Prompts as files for noisefloor sample: what is refused, and (where transformers is installed) what a small CLIP makes of them."""

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


def test_prompts_are_what_the_encoder_makes_of_them(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (tmp_path / "tokenizer" / "merges.txt").write_text("#version: 0.2\n")
    torch.manual_seed(0)
    begin, end = words.index("<|startoftext|>"), words.index("<|endoftext|>")
    encoder = transformers.CLIPTextModel(transformers.CLIPTextConfig(
        vocab_size=len(words), hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=9,
        bos_token_id=begin, eos_token_id=end, pad_token_id=end)).eval()
    encoder.save_pretrained(tmp_path / "text_encoder")

    result = conditioning("sd15", "a cat", "longer than that", "--weights", tmp_path, "--out", tmp_path / "f.safetensors")
    assert result.returncode == 0, result.stderr
    assert "'longer than that' is longer than 9 tokens" in result.stderr and "'a cat'" not in result.stderr
    tensors = load_file(tmp_path / "f.safetensors")
    assert {name: list(tensor.shape) for name, tensor in tensors.items()} == {"prompt_embeds": [2, 9, 24], "negative_prompt_embeds": [1, 9, 24]}
    cat = [begin, words.index("a</w>"), words.index("c"), words.index("a"), words.index("t</w>"), end, end, end, end]
    with torch.no_grad():
        expected = encoder(torch.tensor([cat, [begin] + [end] * 8]))[0]
    torch.testing.assert_close(tensors["prompt_embeds"][0], expected[0])
    torch.testing.assert_close(tensors["negative_prompt_embeds"][0], expected[1])
