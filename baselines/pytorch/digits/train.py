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
from baselines.pytorch.output_file import CannotWrite, OutputFile

SHIFTED = 0.1  # of the images
DROPOUT = 0.1
UNLABELLED = 0.1  # of the images
EMA_HALF_LIFE = 500  # steps
WARM_UP = 200  # steps of growing learning rate
KEPT_EVERY = 500  # steps, in the file of --state


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
    "digits": Recipe(lambda: edm.Preconditioned(edm.CONFIGURATIONS["digits"], dropout=DROPOUT), shifted, lambda images, _: images[:, None],
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
    sigma_data = network.configuration.sigma_data
    sigma = torch.exp(recipe.p_std * torch.randn(len(images), generator=generator, device=images.device) + recipe.p_mean)
    weight = (sigma**2 + sigma_data**2) / (sigma * sigma_data) ** 2
    noise = torch.randn(images.shape, generator=generator, device=images.device) * of_each(sigma)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=recipe.autocast and images.is_cuda):
        denoised = network(images + noise, sigma, labels)
    return (of_each(weight) * (denoised - images) ** 2).mean()


class Training:
    """A network, its average and its optimizer: all that a later process needs to go on."""

    def __init__(self, arguments):
        self.recipe, self.device = RECIPES[arguments.network], arguments.device
        torch.manual_seed(arguments.seed)
        self.generator = torch.Generator(self.device).manual_seed(arguments.seed)
        self.network = self.recipe.build().to(self.device)
        self.average = networks.build(arguments.network).to(self.device).eval()
        self.average.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=arguments.rate, betas=(0.9, 0.99))
        self.random = torch.cuda if torch.device(self.device).type == "cuda" else torch  # whose numbers dropout takes
        self.step, self.seconds = 0, 0.0
        self.asked = {name: getattr(arguments, name) for name in ("network", "steps", "batch", "rate", "seed")}

    def state(self):
        return {"asked": self.asked, "step": self.step, "seconds": self.seconds, "network": self.network.state_dict(),
                "average": self.average.state_dict(), "optimizer": self.optimizer.state_dict(), "generator": self.generator.get_state(),
                "dropout": self.random.get_rng_state()}

    def resume(self, file):
        """Raises ValueError where the file has no state, or one of other arguments."""
        try:
            state = torch.load(file, map_location=self.device, weights_only=True)
            for name, value in self.asked.items():
                if state["asked"][name] != value:
                    raise ValueError(f"is of a training with --{name} {state['asked'][name]}, not {value}")
            self.step, self.seconds = state["step"], state["seconds"]
            for part in ("network", "average", "optimizer"):
                getattr(self, part).load_state_dict(state[part])
            self.generator.set_state(state["generator"].cpu())
            self.random.set_rng_state(state["dropout"].cpu())
        except Exception as error:  # whatever PyTorch says of a damaged file
            raise ValueError(f"--state {file}: {str(error).splitlines()[0]}") from error
        print(f"from step {self.step} on", file=sys.stderr, flush=True)


def without_fused_attention():
    """Temporal attention is a call of as many sequences as a batch has pixels; PyTorch's fused kernels take 65,535 of them."""
    for enable in (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_mem_efficient_sdp, torch.backends.cuda.enable_cudnn_sdp):
        enable(False)


def train(arguments):
    training = Training(arguments)
    without_fused_attention()
    if arguments.state and os.path.exists(arguments.state):
        training.resume(arguments.state)
    recipe, device, generator, steps = training.recipe, arguments.device, training.generator, arguments.steps
    images, labels, held_out, held_out_labels = (torch.as_tensor(part, device=device) for part in data.load())
    one_hot = torch.eye(data.CLASSES, device=device)
    evaluate = torch.compile(loss_of) if arguments.compile else loss_of

    start = time.monotonic() - training.seconds
    total, first = 0.0, training.step
    for step in range(training.step + 1, steps + 1):
        # Cosine decay to a tenth: the last steps settle.
        decay = 0.55 + 0.45 * torch.cos(torch.tensor(torch.pi * step / steps)).item()
        for group in training.optimizer.param_groups:
            group["lr"] = arguments.rate * min(1.0, step / WARM_UP) * decay
        loss = 0.0
        for count, of in ((arguments.batch, lambda x0: x0), (arguments.batch * recipe.stills, lambda x0: x0[:, :1])):
            if count > 0:
                chosen = torch.randint(0, len(images), (count,), generator=generator, device=device)
                loss = loss + evaluate(recipe, training.network, of(recipe.drawn(images[chosen], generator)),
                                       without_some(one_hot[labels[chosen]], generator), generator)
        training.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        training.optimizer.step()
        keep = 0.5 ** (1 / min(EMA_HALF_LIFE, step / 10 + 1))
        with torch.no_grad():
            torch._foreach_lerp_(list(training.average.parameters()), list(training.network.parameters()), 1 - keep)
        total += loss.detach()
        if step % 1000 == 0 or step == steps:
            with torch.no_grad():
                fixed = torch.Generator(device).manual_seed(1)
                unseen = sum(loss_of(recipe, training.average, recipe.unseen(held_out, fixed), one_hot[held_out_labels], fixed).item()
                             for _ in range(recipe.judgements)) / recipe.judgements
            print(f"step {step}: loss {float(total) / (step - first):.4f}, held out {unseen:.4f}, {time.monotonic() - start:.0f} s",
                  file=sys.stderr, flush=True)
            total, first = 0.0, step
        training.step, training.seconds = step, time.monotonic() - start
        if arguments.state and step % KEPT_EVERY == 0:
            OutputFile(arguments.state, "--state").write(lambda part: torch.save(training.state(), part))
    return training.average


def refusal(arguments):
    """What is wrong with the arguments, before minutes are spent on them; None where nothing is."""
    for name, low in (("steps", 1), ("batch", 1)):
        if getattr(arguments, name) < low:
            return f"--{name} {getattr(arguments, name)}: the range is {low} and more"
    if not (math.isfinite(arguments.rate) and arguments.rate > 0):
        return f"--rate {arguments.rate}: must be a finite number above 0"
    if not 0 <= arguments.seed < 2**63:
        return f"--seed {arguments.seed}: the range is 0 to {2**63 - 1}"
    try:
        torch.empty(1, device=arguments.device)
    except (RuntimeError, AssertionError) as error:
        return f"--device {arguments.device}: {str(error).splitlines()[0]}"
    if arguments.state and os.path.realpath(arguments.state) == os.path.realpath(arguments.out):
        return f"--state {arguments.state}: is the file of --out"
    try:
        for option in ("out", "state"):
            if (file := getattr(arguments, option)) is not None:
                OutputFile(file, f"--{option}")
    except CannotWrite as error:
        return str(error)
    return None


def main(argv):
    parser = argparse.ArgumentParser(prog="scripts/train-digits", description=__doc__)
    parser.add_argument("--network", choices=RECIPES, default="digits")
    parser.add_argument("--out", required=True, metavar="FILE", help="the safetensors file to write")
    for name, what in (("steps", ""), ("batch", ""), ("rate", "learning rate; ")):
        default = ", ".join(f"{getattr(recipe, name)} of {network}" for network, recipe in RECIPES.items())
        parser.add_argument(f"--{name}", type=float if name == "rate" else int, help=f"{what}default: {default}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", metavar="FILE", help=f"written every {KEPT_EVERY} steps; where it is there, training goes on from it")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    arguments = parser.parse_args(argv)
    for name in ("steps", "batch", "rate"):
        if getattr(arguments, name) is None:
            setattr(arguments, name, getattr(RECIPES[arguments.network], name))
    if (why := refusal(arguments)) is not None:
        print(f"train-digits: {why}", file=sys.stderr)
        return 2
    try:
        network = train(arguments)
    except ValueError as error:
        print(f"train-digits: {error}", file=sys.stderr)
        return 2
    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in network.state_dict().items()}
    wrong = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if wrong:
        print(f"train-digits: {len(wrong)} of {len(tensors)} tensors are not finite after training ({wrong[0]} is the first); nothing is "
              "written. Lower --rate", file=sys.stderr)
        return 2
    try:
        metadata = {name: str(getattr(arguments, name)) for name in ("network", "steps", "batch", "seed")}
        OutputFile(arguments.out).write(lambda part: save_file(tensors, part, metadata=metadata))
    except Exception as error:  # safetensors has its own for a full disk
        print(f"train-digits: --out {arguments.out}: cannot be written: {error}", file=sys.stderr)
        return 2
    count = sum(tensor.numel() for tensor in tensors.values())
    print(f"{arguments.out}: {len(tensors)} tensors, {count} parameters, {os.path.getsize(arguments.out)} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
