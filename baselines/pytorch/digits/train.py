"""Trains `digits` as Karras et al. train EDM (NeurIPS 2022, table 1): log-normal noise levels, weighted denoising error, a moving average of
the weights, which is what is written.

Digits are not symmetric, so the only augmentation is a shift of a tenth of the images by up to one pixel. A tenth of the images come
without their label, as no class at all, so that the network also denoises unconditionally: classifier-free guidance (Ho and Salimans
2022) needs both.
"""

import argparse
import math
import os
import sys
import time

import torch
from safetensors.torch import save_file

from baselines.pytorch.digits import data
from baselines.pytorch.networks import edm

P_MEAN, P_STD = -0.4, 1.2
SHIFTED = 0.1  # of the images
DROPOUT = 0.1
UNLABELLED = 0.1  # of the images
EMA_HALF_LIFE = 500  # steps
WARM_UP = 200  # steps of growing learning rate


def shifted(images, generator):
    """Some of the images, moved by -1, 0 or 1 pixel each way; what comes in is background."""
    n = images.shape[0]
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), value=-1)
    offsets = torch.randint(0, 3, (n, 2), generator=generator, device=images.device)
    offsets[torch.rand(n, generator=generator, device=images.device) >= SHIFTED] = 1
    rows = offsets[:, :1] + torch.arange(8, device=images.device)
    columns = offsets[:, 1:] + torch.arange(8, device=images.device)
    return padded[torch.arange(n, device=images.device)[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]


def without_some(one_hot, generator):
    """The labels, some of them zero in every class."""
    kept = torch.rand(len(one_hot), 1, generator=generator, device=one_hot.device) >= UNLABELLED
    return one_hot * kept


def loss_of(network, images, labels, generator):
    sigma_data = network.configuration.sigma_data
    sigma = torch.exp(P_STD * torch.randn(len(images), generator=generator, device=images.device) + P_MEAN)
    weight = (sigma**2 + sigma_data**2) / (sigma * sigma_data) ** 2
    noise = torch.randn(images.shape, generator=generator, device=images.device) * sigma[:, None, None, None]
    denoised = network(images + noise, sigma, labels)
    return (weight[:, None, None, None] * (denoised - images) ** 2).mean()


def train(steps, batch, rate, seed, device, compiled):
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    images, labels, held_out, held_out_labels = (torch.as_tensor(part, device=device) for part in data.load())
    images, held_out = images[:, None], held_out[:, None]
    one_hot = torch.eye(data.CLASSES, device=device)
    network = edm.Preconditioned(edm.CONFIGURATIONS["digits"], dropout=DROPOUT).to(device)
    average = edm.Preconditioned(edm.CONFIGURATIONS["digits"]).to(device).eval()
    average.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.99))
    evaluate = torch.compile(loss_of) if compiled else loss_of

    start = time.monotonic()
    total = 0.0
    for step in range(1, steps + 1):
        # Cosine decay to a tenth: the last steps settle.
        decay = 0.55 + 0.45 * torch.cos(torch.tensor(torch.pi * step / steps)).item()
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / WARM_UP) * decay
        chosen = torch.randint(0, len(images), (batch,), generator=generator, device=device)
        loss = evaluate(network, shifted(images[chosen], generator), without_some(one_hot[labels[chosen]], generator),
                        generator)
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
                unseen = sum(loss_of(average, held_out, one_hot[held_out_labels], fixed).item() for _ in range(10)) / 10
            print(f"step {step}: loss {float(total) / (step % 1000 or 1000):.4f}, held out {unseen:.4f}, "
                  f"{time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            total = 0.0
    return average


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
    if os.path.exists(arguments.out) and not os.path.isfile(arguments.out):
        return f"--out {arguments.out}: is not a regular file"
    try:
        with open(partial_of(arguments.out), "xb"):
            os.remove(partial_of(arguments.out))
    except OSError as error:
        return f"--out {arguments.out}: cannot be written: {error.strerror}"
    return None


def partial_of(out):
    return f"{out}.{os.getpid()}.partial"


def main(argv):
    parser = argparse.ArgumentParser(prog="scripts/train-digits", description=__doc__)
    parser.add_argument("--out", required=True, metavar="FILE", help="the safetensors file to write")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    arguments = parser.parse_args(argv)
    if (why := refusal(arguments)) is not None:
        print(f"train-digits: {why}", file=sys.stderr)
        return 2
    network = train(arguments.steps, arguments.batch, arguments.rate, arguments.seed, arguments.device, arguments.compile)
    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in network.state_dict().items()}
    wrong = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if wrong:
        print(f"train-digits: {len(wrong)} of {len(tensors)} tensors are not finite after training ({wrong[0]} is the first); nothing is "
              "written. Lower --rate", file=sys.stderr)
        return 2
    part = partial_of(arguments.out)
    try:
        save_file(tensors, part, metadata={"network": "digits", "steps": str(arguments.steps), "batch": str(arguments.batch),
                                           "seed": str(arguments.seed)})
        os.replace(part, arguments.out)
    except Exception as error:  # safetensors has its own for a full disk
        print(f"train-digits: --out {arguments.out}: cannot be written: {error}", file=sys.stderr)
        return 2
    finally:
        if os.path.exists(part):
            os.remove(part)
    count = sum(tensor.numel() for tensor in tensors.values())
    print(f"{arguments.out}: {len(tensors)} tensors, {count} parameters, {os.path.getsize(arguments.out)} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
