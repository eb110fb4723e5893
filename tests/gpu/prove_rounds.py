#!/usr/bin/env python3
"""Cold times of PyTorch's rows beside those that this program finds by a loop of its own, over many rows. Run by hand; no test.

usage: prove_rounds.py --out DIR (--rows RUN | --program NOISEFLOOR) [--most N] [--flush read|write] [--flush-mib MIB] [--rounds N] [--ms MS] [--device D] [--minutes M]
                       [-- SWEEP ARGUMENTS]

RUN is a run folder of this GPU with `torch_eager` rows of gemm and conv2d and `torch_cudnn` rows of attention, else --program sweeps them into
DIR/rows. N of those of 20 us and more (default 40), evenly over their times, are called here as a user does: F.linear (cuBLASLt), F.conv2d on
channels-last images with cudnn.benchmark (cuDNN), scaled_dot_product_attention by cuDNN. Rows that are more than this one call (activations,
residuals, upsampling) are left out. The loop is that of triton.testing.do_bench: flush L2 through a buffer of 256 MiB (--flush-mib), event, launch, event, all
enqueued without a kernel that holds the stream; the median. In turns with it, on the same tensors, goes the loop that times the rows
(baselines/pytorch/timing.py). Behind each round a kernel that spins for a known number of cycles tells the SM clock. DIR/rounds-FLUSH.md has the table;
rows that DIR has are not timed again.

do_bench flushes by writing. The lines that it leaves dirty are written back while the launch runs, which costs five percent and more where a
result depends on L2; the rows' own loop flushes by reading (docs/measuring.md, Cold time). So --flush read, the default, compares loops, and
--flush write shows what is do_bench's own.

cudnn.benchmark chooses by times, in each process anew, and tensors lie elsewhere: so the two loops are compared in one process, and the row beside
both. A launch that computes takes cycles: the row is compared at equal clocks where these differ by more than 1 %.

Exit codes: 0 the loops agree within 3 % on every row; 1 on one they do not; 2 it could not be done, or time ran out (the same call goes on).
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # baselines.pytorch

LEAST_US, LIMIT_PCT, CLOCK_PCT = 20, 3, 1
FLUSHED_MIB = 256
VARIANT = {"gemm": "torch_eager", "conv2d": "torch_eager", "attention": "torch_cudnn"}
# The fields of a problem that is one call, with their defaults (none: always there).
FIELDS = {
    "gemm": {"m": None, "n": None, "k": None, "bias": "1"},
    "conv2d": {"n": None, "h": None, "w": None, "cin": None, "cout": None, "kernel": "3", "stride": "1", "pad": None, "bias": "1"},
    "attention": {"batch": None, "heads": None, "seq_q": None, "seq_kv": None, "dim": None, "layout": "separate", "scale": "0"},
}
COLUMNS = "case", "us", "loop_us", "mhz", "gpu"
AXIS = {"packed_3hd": 2, "packed_h3d": 3, "packed_hd3": 4}  # of q, k and v in their tensor


def die(text):
    print(f"prove_rounds: error: {text}", file=sys.stderr)
    sys.exit(2)


def fields_of(op, problem):
    """The problem's fields as text, or None where it is more than one call."""
    given = dict(pair.split("=", 1) for pair in problem.split(","))
    if not set(given) <= set(FIELDS[op]):
        return None
    fields = {name: given.get(name, default) for name, default in FIELDS[op].items()}
    if op == "conv2d":
        fields["pad"] = fields["pad"] or str(int(fields["kernel"]) // 2)
    return None if None in fields.values() else fields


def case_of(row):
    return "/".join(row[name] for name in ("op", "problem", "dtype", "variant"))


def chosen(rows, most):
    """`most` of the rows, evenly over their times."""
    fit = [row for row in rows if row["status"] == "ok" and VARIANT.get(row["op"]) == row["variant"] and float(row["time_cold_us"]) >= LEAST_US
           and fields_of(row["op"], row["problem"])]
    fit.sort(key=lambda row: float(row["time_cold_us"]))
    if len(fit) < most:
        raise ValueError(f"only {len(fit)} rows of {LEAST_US} us and more are one call; --most is {most}")
    return [fit[i * len(fit) // most] for i in range(most)]


def number(text):
    return float(text) if text else 0.0


def loops_differ_by(found):
    """The rows' loop less this one, in percent: both here."""
    return 100 * (number(found["loop_us"]) / number(found["us"]) - 1)


def compared(row, found):
    """Of a row and what was found here: raw difference in percent (the row less the program), and at equal clocks, or None where times are compared raw."""
    ours, theirs = float(row["time_cold_us"]), number(found["us"])
    ours_mhz, theirs_mhz = number(row["sm_clock_mhz"]), number(found["mhz"])
    raw = 100 * (ours / theirs - 1)
    if row["bound"].startswith("memory") or not ours_mhz or not theirs_mhz or abs(ours_mhz / theirs_mhz - 1) <= CLOCK_PCT / 100:
        return raw, None
    return raw, 100 * (ours * ours_mhz / (theirs * theirs_mhz) - 1)


def table(rows, found, flush):
    """The Markdown table, and on how many rows the loops agree."""
    lines = ["| row | bound | this loop, us | the rows' loop here | differs | the row, us | differs, raw | at equal clocks | SM clocks, MHz | loops within 3 % |",
             "|---|---|---:|---:|---:|---:|---:|---:|---|---|"]
    within, rows_within, others = 0, 0, 0
    for row in rows:
        one = found[case_of(row)]
        raw, equal = compared(row, one)
        loops = loops_differ_by(one)
        good = abs(loops) <= LIMIT_PCT
        within += good
        rows_within += abs(raw if equal is None else equal) <= LIMIT_PCT
        others += row.get("gpu_uuid", "").removeprefix("GPU-") != one["gpu"]
        clocks = " ".join(f"{number(mhz):.0f}" if mhz else "-" for mhz in (row["sm_clock_mhz"], one["mhz"]))
        lines.append(f"| `{case_of(row)}` | {row['bound'].partition(':')[0] or '-'} | {number(one['us']):.2f} | {number(one['loop_us']):.2f} | {loops:+.1f} % "
                     f"| {float(row['time_cold_us']):.2f} | {raw:+.1f} % | {'-' if equal is None else f'{equal:+.1f} %'} | {clocks} | {'yes' if good else 'no'} |")
    lines.append(f"\nL2 flushed by {'reading' if flush == 'read' else 'writing'}: the loops agree within {LIMIT_PCT} % on {within} of {len(rows)} rows; "
                 f"{rows_within} rows of the run are within it"
                 + (f"; {others} of them were timed here on another GPU than in the run" if others else "") + ".")
    return "\n".join(lines) + "\n", within


def launch_of(torch, op, fields, dtype, device):
    """The call of a problem, on tensors of its own."""
    functional = torch.nn.functional

    def normal(*shape, deviation=1.0):
        return (torch.randn(*shape, device=device) * deviation).to(dtype)

    if op == "gemm":
        m, n, k = (int(fields[name]) for name in "mnk")
        a, b, bias = normal(m, k), normal(n, k, deviation=k**-0.5), normal(n) if fields["bias"] == "1" else None
        return lambda: functional.linear(a, b, bias)
    if op == "conv2d":
        n, h, w, cin, cout, kernel, stride, pad = (int(fields[name]) for name in ("n", "h", "w", "cin", "cout", "kernel", "stride", "pad"))
        x = normal(n, cin, h, w).to(memory_format=torch.channels_last)
        weights = normal(cout, cin, kernel, kernel, deviation=(kernel * kernel * cin) ** -0.5).to(memory_format=torch.channels_last)
        bias = normal(cout) if fields["bias"] == "1" else None
        return lambda: functional.conv2d(x, weights, bias, stride=stride, padding=pad)
    batch, heads, seq_q, seq_kv, dim = (int(fields[name]) for name in ("batch", "heads", "seq_q", "seq_kv", "dim"))
    if fields["layout"] == "separate":
        q, k, v = normal(batch, seq_q, heads, dim), normal(batch, seq_kv, heads, dim), normal(batch, seq_kv, heads, dim)
    else:
        shape, axis = [batch, seq_q, heads, dim], AXIS[fields["layout"]]
        shape.insert(axis, 3)
        q, k, v = normal(*shape).unbind(axis)
    q, k, v, scale = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), float(fields["scale"]) or None
    return lambda: functional.scaled_dot_product_attention(q, k, v, scale=scale)


class Rounds:
    def __init__(self, torch, device, flush, mib):
        from baselines.pytorch import timing
        self.torch = torch
        self.timer, self.hold = timing.Timer(device), timing.Hold(1e-3)
        self.buffer = torch.zeros(mib << 18, device=device)
        self.sum = torch.zeros((), device=device)
        self.flush = self.buffer.zero_ if flush == "write" else lambda: torch.sum(self.buffer, 0, out=self.sum)

    def _event(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _round(self, launch, samples):
        """Median time in microseconds, and the clock in MHz behind it: two spins whose lengths differ, so that what a launch costs falls away."""
        pairs = []
        for _ in range(samples):
            self.flush()
            start = self._event()
            launch()
            pairs.append((start, self._event()))
        short, long = 20_000, 420_000  # cycles
        marks = [self._event()]
        for cycles in (short, long):
            self.torch.cuda._sleep(cycles)
            marks.append(self._event())
        self.torch.cuda.synchronize()
        one, two = (1e3 * a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
        return median(1e3 * start.elapsed_time(end) for start, end in pairs), (long - short) / (two - one)

    def time(self, launch, rounds, ms):
        for _ in range(3):
            launch()
        self.torch.cuda._sleep(1000)
        us, _ = self._round(launch, 5)
        samples = min(2000, max(20, int(1e3 * ms / (us + 70))))  # 70: a flush
        found, loop = [], []
        for _ in range(rounds):
            found.append(self._round(launch, samples))
            loop += self.timer.samples(launch, min(samples, 100), self.hold, prepare=self.timer.evict)
        return median(us for us, _ in found), median(loop), median(mhz for _, mhz in found)


def swept(options):
    run = options.rows or options.out / "rows"
    if not options.rows:
        command = [options.program, "sweep", "--out", run, "--ops", ",".join(VARIANT), "--variants", ",".join(sorted(set(VARIANT.values()))),
                   "--pytorch", "require", "--counters", "off", "--no-duels", "--budget", f"{60 * options.minutes:.0f}", *options.arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode == 2:
            die(f"the sweep failed: {done.stderr.strip()}")
    with open(run / "sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    environment = run / "env.json"
    return rows, json.loads(environment.read_text()).get("pytorch") if environment.exists() else None


def kept(file):
    if not file.exists():
        return {}
    with open(file, newline="") as text:
        return {row["case"]: row for row in csv.DictReader(text)}


def keep(file, found):
    part = file.with_suffix(".part")
    with open(part, "w", newline="") as text:
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.values())
    part.rename(file)


def parsed(words):
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    for name in ("out", "rows", "program"):
        parser.add_argument(f"--{name}", type=Path, required=name == "out")
    for name, kind, default in (("most", int, 40), ("rounds", int, 5), ("ms", float, 100), ("device", int, 0), ("minutes", float, 1e6)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--flush-mib", type=int, default=FLUSHED_MIB)
    parser.add_argument("--flush", choices=("read", "write"), default="read")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args(words)
    if (options.rows is None) == (options.program is None):
        parser.error("one of --rows and --program")
    if min(options.most, options.rounds, options.flush_mib) < 1:
        parser.error("--most, --rounds and --flush-mib are at least 1")
    return options


def main():
    options = parsed(sys.argv[1:])
    until = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError as error:
        die(f"this Python has no PyTorch ({error})")
    rows, version = swept(options)
    if version not in (None, "", str(torch.__version__)):
        die(f"the rows are of PyTorch {version}, this is {torch.__version__}")
    try:
        rows = chosen(rows, options.most)
    except ValueError as error:
        die(error)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    device = torch.device("cuda", options.device)
    torch.cuda.set_device(device)
    gpu = str(getattr(torch.cuda.get_device_properties(device), "uuid", "")).removeprefix("GPU-")
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    rounds, file = Rounds(torch, device, options.flush, options.flush_mib), options.out / f"rounds-{options.flush}.csv"
    found = kept(file)
    for row in rows:
        if case_of(row) in found:
            continue
        if time.monotonic() > until:
            die(f"out of time after {sum(case_of(one) in found for one in rows)} of {len(rows)} rows; the same call goes on")
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            launch = launch_of(torch, row["op"], fields_of(row["op"], row["problem"]), dtypes[row["dtype"]], device)
            us, loop_us, mhz = rounds.time(launch, options.rounds, options.ms)
        found[case_of(row)] = {"case": case_of(row), "us": f"{us:.4f}", "loop_us": f"{loop_us:.4f}", "mhz": f"{mhz:.0f}", "gpu": gpu}
        keep(file, found)
        del launch
        torch.cuda.empty_cache()
    page, within = table(rows, found, options.flush)
    (options.out / f"rounds-{options.flush}.md").write_text(page)
    print(page, end="")
    sys.exit(0 if within == len(rows) else 1)


if __name__ == "__main__":
    main()
