"""What `noisefloor sample --conditioning` reads: a prompt, as the text encoder of a checkpoint embeds it.

usage: python3 -m baselines.pytorch.conditioning sd15 --weights FOLDER "a prompt" ["another" ...] --out FILE.safetensors

FOLDER is that of a diffusers pipeline, with tokenizer/ and text_encoder/. Needs PyTorch, transformers and safetensors.
"""

import argparse
import os
import sys
from pathlib import Path

NETWORKS = {"sd15": ("tokenizer", "text_encoder")}  # folders of the pipeline that it reads


class Refused(Exception):
    """A message for whoever called."""


def embed(folder, prompts):
    """[n, tokens, width]: the last hidden states, as diffusers' StableDiffusionPipeline gives them to its U-Net."""
    import torch
    from safetensors import SafetensorError
    from transformers import CLIPTextModel, CLIPTokenizer

    try:
        tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer", local_files_only=True)
        encoder = CLIPTextModel.from_pretrained(folder / "text_encoder", local_files_only=True).float().eval()
    except (OSError, ValueError, SafetensorError) as error:
        raise Refused(f"{folder} is not a checkpoint: {error}") from None
    length = encoder.config.max_position_embeddings
    for prompt in prompts:
        if len(tokenizer(prompt).input_ids) > length:
            print(f"'{prompt}' is longer than {length} tokens; the rest is cut off", file=sys.stderr)
    tokens = tokenizer(prompts, padding="max_length", max_length=length, truncation=True, return_tensors="pt").input_ids
    with torch.no_grad():
        return encoder(tokens)[0]


def make(network, folder, prompts, negative_prompt, out):
    missing = [part for part in NETWORKS[network] if not (folder / part).is_dir()]
    if missing:
        raise Refused(f"{folder} is not the folder of a diffusers pipeline: it has no {' and no '.join(f'{part}/' for part in missing)}")
    if not out.absolute().parent.is_dir():
        raise Refused(f"--out {out}: there is no folder {out.parent}")
    try:
        from safetensors.torch import save
        embeds = embed(folder, [*prompts, negative_prompt]).contiguous()
    except ImportError as error:
        raise Refused(f"needs PyTorch, transformers and safetensors: {error}") from None
    tensors = {"prompt_embeds": embeds[:-1].contiguous(), "negative_prompt_embeds": embeds[-1:].contiguous()}
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(save(tensors, {"network": network, "layout": "channels-first"}))
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise Refused(f"--out {out}: {error}") from None
    return tensors


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m baselines.pytorch.conditioning", description=__doc__.split("\n")[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("prompts", nargs="+", metavar="prompt", help="one for each picture; sample takes them in turns")
    parser.add_argument("--negative", default="", metavar="PROMPT", help="what guidance leads away from (default: the empty prompt)")
    parser.add_argument("--weights", required=True, type=Path, metavar="FOLDER", help="of a diffusers pipeline")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="safetensors")
    given = parser.parse_args(arguments)
    try:
        tensors = make(given.network, given.weights, given.prompts, given.negative, given.out)
    except Refused as error:
        print(f"conditioning: {error}", file=sys.stderr)
        return 2
    print(f"{', '.join(f'{name} {list(tensor.shape)}' for name, tensor in tensors.items())}; wrote {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
