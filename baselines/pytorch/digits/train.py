"""Trains `digits` and `moving-digits` as Karras et al. train EDM (NeurIPS 2022, table 1): log-normal noise levels, weighted denoising error, a
moving average of the weights, which is what is written.

Digits are not symmetric, so the only augmentation of `digits` is a shift of a tenth of the images by up to one pixel; those of videos
move. A tenth of the images come without their label, as no class at all, so that the network also denoises unconditionally: classifier-free
guidance (Ho and Salimans 2022) needs both.
"""

import argparse
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable

import torch
from safetensors.torch import save_file

from baselines.pytorch import networks
from baselines.pytorch.digits import data
from baselines.pytorch.networks import edm
from baselines.pytorch.output_file import OutputFile, Refused, exit_code

SHIFTED = 0.1  # of the images
DROPOUT = 0.1
UNLABELLED = 0.1  # of the images
EMA_HALF_LIFE = 500  # steps
WARM_UP = 200  # steps of growing learning rate


def shifted(images, generator):
    """Some of the images, moved by -1, 0 or 1 pixel each way; what comes in is background."""
    n = images.shape[0]
    padded = torch.nn.functional.pad(images[:, None], (1, 1, 1, 1), value=-1)
    offsets = torch.randint(0, 3, (n, 2), generator=generator, device=images.device)
    offsets[torch.rand(n, generator=generator, device=images.device) >= SHIFTED] = 1
    rows = offsets[:, :1] + torch.arange(8, device=images.device)
    columns = offsets[:, 1:] + torch.arange(8, device=images.device)
    return padded[torch.arange(n, device=images.device)[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]


def moved(images, generator):
    """Videos [n, frames, 1, height, width] of images that go a straight way."""
    with images.device:
        uniform = torch.rand(len(images), 1 + data.ENDS, 2, generator=generator)
        return data.placed(torch, images, data.path(torch, uniform))[:, :, None]


@dataclasses.dataclass(frozen=True)
class Recipe:
    build: Callable  # the network that is trained
    drawn: Callable  # what is learnt, of images [n, 8, 8] and a generator
    unseen: Callable  # the same of images that were held out
    p_mean: float
    p_std: float
    batch: int
    steps: int
    rate: float
    judgements: int  # times that the held-out images are judged by
    autocast: bool  # to bf16, on a GPU
    stills: int = 0  # single frames beside each video of a batch: a frame shows a digit as a video does, at a sixteenth of its cost


RECIPES = {
    "digits": Recipe(lambda: edm.digits(DROPOUT), shifted, lambda images, _: images[:, None],
                     p_mean=-0.4, p_std=1.2, batch=512, steps=4000, rate=1e-3, judgements=10, autocast=False),
    # Sixteen frames of one digit say four times as much of it as one: the noise that hides it is as much higher.
    "moving-digits": Recipe(lambda: networks.build("moving-digits"), moved, moved, p_mean=0.4, p_std=1.4, batch=128, steps=8000, rate=2e-3,
                            judgements=1, autocast=True, stills=8),
}


def without_some(one_hot, generator):
    """The labels, some of them zero in every class."""
    kept = torch.rand(len(one_hot), 1, generator=generator, device=one_hot.device) >= UNLABELLED
    return one_hot * kept


def loss_of(recipe, network, images, labels, generator):
    def of_each(numbers):
        return numbers.reshape(-1, *[1] * (images.dim() - 1))
    sigma = torch.exp(recipe.p_std * torch.randn(len(images), generator=generator, device=images.device) + recipe.p_mean)
    weight = (sigma**2 + network.sigma_data**2) / (sigma * network.sigma_data) ** 2
    noise = torch.randn(images.shape, generator=generator, device=images.device) * of_each(sigma)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=recipe.autocast and images.is_cuda):
        denoised = network(images + noise, sigma, labels)
    return (of_each(weight) * (denoised - images) ** 2).mean()


def without_fused_attention():
    """Temporal attention is a call of as many sequences as a batch has pixels; PyTorch's fused kernels take 65,535 of them."""
    for enable in (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_mem_efficient_sdp, torch.backends.cuda.enable_cudnn_sdp):
        enable(False)


def train(arguments):
    """The average of the trained network's weights."""
    without_fused_attention()
    recipe, device, steps = RECIPES[arguments.network], arguments.device, arguments.steps
    if arguments.bf16:
        recipe = dataclasses.replace(recipe, build=lambda: networks.build(arguments.network), autocast=True)
    torch.manual_seed(arguments.seed)
    generator = torch.Generator(device).manual_seed(arguments.seed)
    network = recipe.build().to(device)
    average = networks.build(arguments.network).to(device).eval()
    average.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=arguments.rate, betas=(0.9, 0.99))
    images, labels, held_out, held_out_labels = (torch.as_tensor(part, device=device) for part in data.load())
    one_hot = torch.eye(data.CLASSES, device=device)

    start, total, first = time.monotonic(), 0.0, 0
    for step in range(1, steps + 1):
        # Cosine decay to a tenth: the last steps settle.
        decay = 0.55 + 0.45 * torch.cos(torch.tensor(torch.pi * step / steps)).item()
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(1.0, step / WARM_UP) * decay
        loss = 0.0
        for count, of in ((arguments.batch, lambda x0: x0), (arguments.batch * recipe.stills, lambda x0: x0[:, :1])):
            if count > 0:
                chosen = torch.randint(0, len(images), (count,), generator=generator, device=device)
                loss = loss + loss_of(recipe, network, of(recipe.drawn(images[chosen], generator)), without_some(one_hot[labels[chosen]], generator), generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        keep = 0.5 ** (1 / min(EMA_HALF_LIFE, step / 10 + 1))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - keep)
        total += loss.detach()
        if step % 1000 == 0 or step == steps:
            with torch.no_grad():
                fixed = torch.Generator(device).manual_seed(1)
                unseen = sum(loss_of(recipe, average, recipe.unseen(held_out, fixed), one_hot[held_out_labels], fixed).item()
                             for _ in range(recipe.judgements)) / recipe.judgements
            print(f"step {step}: loss {float(total) / (step - first):.4f}, held out {unseen:.4f}, {time.monotonic() - start:.0f} s",
                  file=sys.stderr, flush=True)
            total, first = 0.0, step
    return average


def check(arguments):
    """Before minutes are spent on them."""
    for name in ("steps", "batch"):
        if getattr(arguments, name) < 1:
            raise Refused(f"--{name} {getattr(arguments, name)}: the range is 1 and more")
    if not (math.isfinite(arguments.rate) and arguments.rate > 0):
        raise Refused(f"--rate {arguments.rate}: must be a finite number above 0")
    if not 0 <= arguments.seed < 2**63:
        raise Refused(f"--seed {arguments.seed}: the range is 0 to {2**63 - 1}")
    try:
        torch.empty(1, device=arguments.device)
    except (RuntimeError, AssertionError) as error:
        raise Refused(f"--device {arguments.device}: {str(error).splitlines()[0]}") from None


def train_and_write(arguments):
    for name in ("steps", "batch", "rate"):
        if getattr(arguments, name) is None:
            setattr(arguments, name, getattr(RECIPES[arguments.network], name))
    check(arguments)
    out = OutputFile(arguments.out)
    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in train(arguments).state_dict().items()}
    wrong = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if wrong:
        raise Refused(f"{len(wrong)} of {len(tensors)} tensors are not finite after training ({wrong[0]} is the first); nothing is written. Lower --rate")
    out.write(lambda part: save_file(tensors, part, metadata={name: str(getattr(arguments, name)) for name in ("network", "steps", "batch", "seed")}))
    count = sum(tensor.numel() for tensor in tensors.values())
    print(f"{arguments.out}: {len(tensors)} tensors, {count} parameters, {os.path.getsize(arguments.out)} bytes", file=sys.stderr)


def main(argv):
    parser = argparse.ArgumentParser(prog="scripts/train-digits", description=__doc__)
    parser.add_argument("--network", choices=RECIPES, default="digits")
    parser.add_argument("--out", required=True, metavar="FILE", help="the safetensors file to write")
    for name, what in (("steps", ""), ("batch", ""), ("rate", "learning rate; ")):
        default = ", ".join(f"{getattr(recipe, name)} of {network}" for network, recipe in RECIPES.items())
        parser.add_argument(f"--{name}", type=float if name == "rate" else int, help=f"{what}default: {default}")
    parser.add_argument("--bf16", action="store_true", help="as `noisefloor train` trains: in bf16 (autocast, on a GPU), and without dropout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return exit_code("train-digits", train_and_write, parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
