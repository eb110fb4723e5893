"""What the attacks share: the program, a small run to damage, the time that a kind of attack may take, and what must hold whatever is tried.

NOISEFLOOR_ATTACK_SECONDS is the time of each kind (default 8, so that nine kinds take a minute and a half, with a seed that is always the same;
where it is given, the seed is another each time). NOISEFLOOR_ATTACK_SEED repeats a battery.
"""

import os
import random
import re
import resource
import subprocess
import time
from collections import Counter

import numpy as np
from safetensors.numpy import save_file

from tests.cli.program import PROGRAM

SECONDS = float(os.environ.get("NOISEFLOOR_ATTACK_SECONDS", "8"))
PROBLEMS = "network,m,n,k,count\n" + "".join(f"mini,{m},16,24,1\n" for m in range(1, 7))
MOST_MEMORY = 4 << 30
MOST_SECONDS = 120  # of one command: a pipe or an endless file must not hold it
LIBRARY = re.compile(r"terminate called|std::|basic_string|vector::|json\.exception|filesystem error|Assertion|Traceback|Segmentation")


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def bounded():
    """Before the program starts: memory, no core dumps, and nothing left of pytest's own handling of signals."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(*arguments, cwd=None, limits=None, timeout=MOST_SECONDS):
    def prepare():
        bounded()
        if limits:
            limits()
    return subprocess.run([PROGRAM, *(a if isinstance(a, bytes) else str(a) for a in arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout, cwd=cwd, preexec_fn=prepare, env=environment())


def sweep_arguments(folder, out):
    return ["sweep", "--device", "host", "--problems", folder / "problems", "--networks", "all", "--counters", "off", "--out", out]


def small_runs(folder):
    """folder/problems and two finished runs of it, a and b."""
    (folder / "problems").mkdir()
    (folder / "problems" / "gemm.csv").write_text(PROBLEMS)
    for name in "ab":
        result = run(*sweep_arguments(folder, folder / name), timeout=300)
        assert result.returncode == 0, result.stderr.decode()
    return folder


def training(folder):
    """The command of a short training with a checkpoint behind each step, and its data."""
    images = np.random.default_rng(0).uniform(-1, 1, (20, 1, 8, 8)).astype(np.float32)
    save_file({"images": images, "labels": np.arange(20) % 10}, folder / "data")
    return ["train", "digits", "--device", "host", "--data", folder / "data", "--out", folder / "w", "--losses", folder / "losses", "--batch", 2, "--steps", 5,
            "--checkpoint", folder / "checkpoint", "--every", 1]


class Battery:
    """Tries attacks until the time is over, and counts what came of them."""

    def __init__(self, name):
        self.name = name
        seed = int(os.environ.get("NOISEFLOOR_ATTACK_SEED", time.time_ns() % 1_000_000 if "NOISEFLOOR_ATTACK_SECONDS" in os.environ else 1))
        self.random = random.Random(seed)
        self.seed = seed
        self.counts = Counter()
        self.begin = time.monotonic()

    def time_left(self):
        return time.monotonic() - self.begin < SECONDS

    def judge(self, attack, result, codes=(0, 1, 2)):
        """Exit codes are ours, and a refusal is a sentence of ours: no signal, no abort, no text of a library, no control characters."""
        told = f"{self.name}, seed {self.seed}: {attack}\nexit code {result.returncode}\n{result.stderr.decode(errors='replace')[-2000:]}"
        assert result.returncode in codes, told
        assert not LIBRARY.search(result.stderr.decode(errors="replace")), told
        assert b"\x1b" not in result.stderr + result.stdout, told
        if result.returncode == 2:
            # The gate's report says it where it reports everything else.
            assert result.stderr.strip() or b"could not be compared" in result.stdout, told + "(without a word)"
        self.counts["refused" if result.returncode == 2 else "found" if result.returncode == 1 else "passed"] += 1

    def report(self, capsys, **more):
        counts = ", ".join(f"{count} {what}" for what, count in (self.counts | Counter(more)).items())
        with capsys.disabled():
            print(f"\nattack {self.name} (seed {self.seed}): {sum(self.counts.values())} tried: {counts}", flush=True)
