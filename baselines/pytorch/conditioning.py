"""What `noisefloor sample --conditioning` reads: what the networks around a U-Net make of a prompt, or of a picture that is to move.

usage: python3 -m baselines.pytorch.conditioning sd15|sdxl --weights FOLDER "a prompt" ["another" ...] --out FILE.safetensors
       python3 -m baselines.pytorch.conditioning svd --weights FOLDER PICTURE [ANOTHER ...] --out FILE.safetensors

FOLDER is that of a diffusers pipeline, of which it reads the tokenizers and text encoders, or the image encoder and the VAE. Needs PyTorch,
transformers and safetensors, and for svd diffusers and Pillow; of sdxl and svd also the program, which knows the sizes that they draw.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from baselines.pytorch.output_file import OutputFile, Refused, exit_code

# Folders of the pipeline that it reads.
NETWORKS = {
    "sd15": ("tokenizer", "text_encoder"),
    "sdxl": ("tokenizer", "text_encoder", "tokenizer_2", "text_encoder_2"),
    "svd": ("feature_extractor", "image_encoder", "vae"),
}
ROOT = Path(__file__).resolve().parents[2]
MOST_PIXELS = 65536  # of a side


def drawn_by(network):
    """Height and width of what a network draws where none are asked for, and what sides are multiples of: the program's own row of it."""
    built = sorted(ROOT.glob("build/*/bin/noisefloor"), key=lambda file: file.stat().st_mtime, reverse=True)
    places = [Path(os.environ.get("NOISEFLOOR_BINARY", "")), ROOT / "bin/noisefloor", *built]
    program = next((place for place in places if place.is_file()), None)
    if program is None:
        raise Refused("no noisefloor is built, which knows the sizes of pictures; build it, or name one in NOISEFLOOR_BINARY")
    listed = subprocess.run([program, "list", "ops", "--ops", "network", "--format", "json"], capture_output=True, text=True)
    if listed.returncode != 0:
        raise Refused(f"{program} lists no networks: {listed.stderr.strip()}")
    row = next(row for row in json.loads(listed.stdout)["networks"] if row["name"] == network)
    return row["height"], row["width"], row["multiples_of"]


def said_by(folder, file, key):
    """What a folder's settings say; None where they do not."""
    try:
        return json.loads((folder / file).read_text()).get(key) if (folder / file).is_file() else None
    except (OSError, ValueError, AttributeError) as error:
        raise Refused(f"{folder / file} is not a JSON object: {error}") from None


def resolve_sizes(given):
    *sides, step = drawn_by(given.network)
    latents = said_by(given.weights, "unet/config.json", "sample_size") if given.network == "sdxl" else None
    if latents is not None:  # of one side, or both; an eighth of the picture's
        both = latents if isinstance(latents, list) else [latents] * 2
        if len(both) != 2 or not all(type(side) is int and 8 * side % step == 0 and 0 < 8 * side <= MOST_PIXELS for side in both):
            raise Refused(f"{given.weights}/unet/config.json: sample_size must be a multiple of {step // 8}, or two, is {latents!r}")
        sides = [8 * side for side in both]
    for name, side in zip(("height", "width"), sides):
        asked = getattr(given, name)
        if asked is not None and (asked % step or not step <= asked <= MOST_PIXELS):
            raise Refused(f"argument --{name}: {asked} is out of range (multiples of {step}, {step} to {MOST_PIXELS})")
        setattr(given, name, side if asked is None else asked)


def loaded(folder, part, kind, **options):
    try:
        return kind.from_pretrained(folder / part, local_files_only=True, **options)
    except ImportError:
        raise
    except Exception as error:  # of many kinds, where files are damaged
        raise Refused(f"{folder} is not a checkpoint: {part}/: {error}") from None


def loaded_network(folder, part, kind):
    """What the checkpoint lacks, or has in another shape, would be drawn at random."""
    network, info = loaded(folder, part, kind, output_loading_info=True, ignore_mismatched_sizes=True)
    wrong = [f"{name} is missing" for name in sorted(info["missing_keys"])]
    wrong += [f"{name} is {list(there)}, not {list(asked)}" for name, there, asked in sorted(info["mismatched_keys"])]
    if wrong:
        raise Refused("\n  ".join([f"{folder} is not a checkpoint; {len(wrong)} tensors of its {part}/ are wrong:", *wrong]))
    return network.float().eval()


def encoded(folder, suffix, kind, prompts):
    """What a text encoder gives to as many tokens as it takes."""
    import torch
    from transformers import CLIPTokenizer

    tokenizer = loaded(folder, "tokenizer" + suffix, CLIPTokenizer)
    encoder = loaded_network(folder, "text_encoder" + suffix, kind)
    length = encoder.config.max_position_embeddings
    for prompt in prompts if suffix == "" else ():  # all tokenizers have one vocabulary
        if len(tokenizer(prompt).input_ids) > length:
            print(f"'{prompt}' is longer than {length} tokens; the rest is cut off", file=sys.stderr)
    tokens = tokenizer(prompts, padding="max_length", max_length=length, truncation=True, return_tensors="pt").input_ids
    if tokens.max() >= encoder.config.vocab_size:
        raise Refused(f"{folder} is not a checkpoint: tokenizer{suffix}/ has more words than text_encoder{suffix}/")
    with torch.no_grad():
        return encoder(tokens, output_hidden_states=True)


def of_prompts(given):
    """prompt_embeds [n, tokens, width]: the last hidden states, as diffusers' StableDiffusionPipeline gives them to its U-Net."""
    from transformers import CLIPTextModel

    embeds = encoded(given.weights, "", CLIPTextModel, [*given.prompts, given.negative or ""])[0]
    return {"prompt_embeds": embeds[:-1], "negative_prompt_embeds": embeds[-1:]}


def of_prompts_xl(given):
    """As StableDiffusionXLPipeline has it: the states before the last of two encoders side by side, what the second makes of all tokens, and
    three sizes. Without a negative prompt guidance leads away from zeros."""
    import torch
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

    prompts = [*given.prompts, given.negative or ""]
    outputs = [encoded(given.weights, *which, prompts) for which in (("", CLIPTextModel), ("_2", CLIPTextModelWithProjection))]
    embeds, pooled = torch.cat([output.hidden_states[-2] for output in outputs], -1), outputs[1].text_embeds
    zeros = said_by(given.weights, "model_index.json", "force_zeros_for_empty_prompt") is not False
    without = 0 if given.negative is None and zeros else 1
    sizes = [given.height, given.width, 0, 0, given.height, given.width]  # of the original, its corner, what is asked for
    return {"prompt_embeds": embeds[:-1], "negative_prompt_embeds": without * embeds[-1:], "pooled_prompt_embeds": pooled[:-1],
            "negative_pooled_prompt_embeds": without * pooled[-1:], "time_ids": torch.tensor([sizes], dtype=torch.float32)}


def of_pictures(given):
    """As StableVideoDiffusionPipeline has it, by its own functions: CLIP's embedding, and the latents of a picture with a little noise."""
    import torch
    from diffusers import AutoencoderKLTemporalDecoder, StableVideoDiffusionPipeline
    from PIL import Image
    from transformers import CLIPImageProcessor, CLIPVisionModelWithProjection

    pictures = []
    for path in given.prompts:
        try:
            pictures.append(Image.open(path).convert("RGB").resize((given.width, given.height)))
        except Exception as error:  # of many kinds too; one too large is none of Pillow's OSErrors
            raise Refused(f"{path} is not a picture: {error}") from None
    pipeline = StableVideoDiffusionPipeline(
        vae=loaded_network(given.weights, "vae", AutoencoderKLTemporalDecoder), unet=None, scheduler=None,
        image_encoder=loaded_network(given.weights, "image_encoder", CLIPVisionModelWithProjection),
        feature_extractor=loaded(given.weights, "feature_extractor", CLIPImageProcessor))
    with torch.no_grad():
        embeds = pipeline._encode_image(pictures, "cpu", 1, False)
        pixels = pipeline.video_processor.preprocess(pictures, height=given.height, width=given.width)
        noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(given.seed))
        latents = pipeline._encode_vae_image(pixels + given.noise * noise, "cpu", 1, False)
    return {"image_embeds": embeds, "image_latents": latents, "added_time_ids": torch.tensor([[given.fps - 1, given.motion, given.noise]])}


MAKERS = {"sd15": of_prompts, "sdxl": of_prompts_xl, "svd": of_pictures}


def make(given):
    if "height" in given:
        resolve_sizes(given)
    missing = [part for part in NETWORKS[given.network] if not (given.weights / part).is_dir()]
    if missing:
        raise Refused(f"{given.weights} is not the folder of a diffusers pipeline: it has no {' and no '.join(f'{part}/' for part in missing)}")
    out = given.out
    file = OutputFile(out)
    if out.resolve().is_relative_to(given.weights.resolve()):
        raise Refused(f"--out {out}: is in the folder of --weights")
    if given.network == "svd" and out.resolve() in [Path(picture).resolve() for picture in given.prompts]:
        raise Refused(f"--out {out}: is a picture that is read")
    try:
        from safetensors.torch import save
        tensors = {name: tensor.float().contiguous() for name, tensor in MAKERS[given.network](given).items()}
    except ImportError as error:
        raise Refused(f"needs PyTorch, transformers, safetensors, and for svd diffusers and Pillow: {error}") from None
    file.write(lambda part: Path(part).write_bytes(save(tensors, {"network": given.network, "layout": "channels-first"})))
    print(f"{', '.join(f'{name} {list(tensor.shape)}' for name, tensor in tensors.items())}; wrote {out}", file=file.words)


def within(kind, least, most):
    """Numbers of a range; not a number is in none."""

    def parsed(text):
        try:
            if least <= (value := kind(text)) <= most:
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text} is out of range ({least} to {most})")

    return parsed


def options():
    parser = argparse.ArgumentParser(prog="python3 -m baselines.pytorch.conditioning", description=__doc__.split("\n")[0])
    networks = parser.add_subparsers(dest="network", required=True)
    for name in NETWORKS:
        network = networks.add_parser(name)
        what = "picture" if name == "svd" else "prompt"
        network.add_argument("prompts", nargs="+", metavar=what, help="one for each picture; sample takes them in turns")
        network.add_argument("--weights", required=True, type=Path, metavar="FOLDER", help="of a diffusers pipeline")
        network.add_argument("--out", required=True, type=Path, metavar="FILE", help="safetensors")
        if name != "svd":
            network.add_argument("--negative", metavar="PROMPT", help="what guidance leads away from (default: the empty prompt; sdxl: zeros)")
        if name != "sd15":
            network.add_argument("--height", type=int, help="of what is drawn, in pixels (default: the network's own)")
            network.add_argument("--width", type=int, help="(default: the network's own)")
        if name == "svd":
            network.add_argument("--fps", type=within(int, 1, 1000), default=7, help="frames a second that the network is told (default: 7)")
            network.add_argument("--motion", type=within(int, 0, 1000), default=127, help="how much moves: its motion bucket (default: 127)")
            network.add_argument("--noise", type=within(float, 0, 1000), default=0.02, help="on the picture; with more less is kept of it (default: 0.02)")
            network.add_argument("--seed", type=within(int, 0, 2**63 - 1), default=0, help="of that noise (default: 0)")
    return parser


def main(arguments=None):
    return exit_code("conditioning", make, options().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
