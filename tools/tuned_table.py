"""Chooses from timings of what a variant can choose from, and writes the table that the op's room compiles in (TABLES says which).

usage: tools/tuned_table.py OP TIMINGS.csv [--keep] [--out FILE.cpp] [--problems OP.csv]

TIMINGS is what `noisefloor tune OP` writes. One choice serves all kinds of a shape (its fusions, its epilogues): that with the least sum of
warm and cold times, weighted by how often the networks meet each kind. It is taken only where that sum is at least 1 % below that of the
estimate's choice, and neither its warm nor its cold part is more than 0.5 % above. Prints what the choice loses in each network against the
best of the timed ones, without the table and with it. --keep leaves the rows of shapes that TIMINGS lacks as they are; the table then names the
GPUs and commits of earlier timings.
"""

import argparse
import csv
import dataclasses
import functools
import math
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from baselines.pytorch.output_file import OutputFile, Refused, exit_code  # noqa: E402

COMPUTE_CAPABILITY = "9.0"  # of the GPUs that run what is timed
LEAST_WIN = 0.01  # of warm and cold time together
MOST_LOSS = 0.005  # of either
UNSAID = {"multicast_a": "1"}  # of a choice that does not say


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What an op's table is made of."""

    shape: tuple  # fields of a problem, whole numbers, that a row is for
    kinds: tuple  # fields that a row serves all values of
    defaults: dict  # of both
    choice: tuple  # the whole numbers that a row says
    arrays: dict = dataclasses.field(default_factory=lambda: {"ptx_sm90a": "kSchedules"})  # of each variant that is timed, the name of its rows
    name: str = "schedule"  # of what is chosen
    header: str = "schedule"  # that declares the table, without its ending
    room: str = ""  # whose the table is, where it is not the op's
    derive: Callable = lambda fields: fields  # adds to a problem's fields what is not one of them
    untabled: tuple = ()  # variants of the op that choose by estimate alone; their times are passed over
    estimated: Callable = lambda fields: False  # whether a problem's choice is by estimate alone; likewise
    stand_in: Callable = lambda shape: False  # whether a shape without a row takes another's, so that the estimate needs one too


def of_gemm(fields):
    same = "2" if fields.get("blend") == "1" else fields.get("residual", "0")  # tensors of D's shape
    return fields | {"gated": str(int(fields.get("act") == "geglu")), "residual": same}


def of_conv2d(fields):
    """A convolution's pad is half its kernel where the problem does not say."""
    return {"pad": str(int(fields.get("kernel", 3)) // 2)} | fields


PRODUCT = ("rows", "columns", "pingpong", "multicast", "splits")
TABLES = {
    "attention": Tuned(
        shape=("batch", "heads", "seq_q", "seq_kv", "dim"),
        kinds=("layout", "lse", "scale"),
        defaults={"layout": "separate", "lse": "0", "scale": "0"},
        choice=("rows", "keys", "blocks", "turns", "splits"),
        untabled=("ptx_sm90a_wide",)),
    "conv2d": Tuned(
        shape=("n", "h", "w", "cin", "cout", "kernel", "stride", "pad", "upsample", "side", "side_skip"),
        kinds=("act", "bias", "affine", "image_shift", "residual", "residual_upsample", "gain", "stats"),
        defaults={"kernel": "3", "stride": "1", "upsample": "0", "side": "0", "side_skip": "0", "act": "none", "bias": "1", "affine": "0",
                  "image_shift": "0", "residual": "0", "residual_upsample": "0", "gain": "1", "stats": "0"},
        choice=PRODUCT,
        arrays={"ptx_sm90a": "kIm2col", "ptx_sm90a_halo": "kHalo"},
        room="convolution",
        derive=of_conv2d,
        stand_in=lambda shape: shape[-2] > 0),  # that of the same shape without a second source
    "gemm": Tuned(
        shape=("m", "n", "k", "gated", "residual", "part_columns"),
        kinds=("act", "bias", "image_shift", "scale"),
        defaults={"part_columns": "0", "act": "none", "bias": "1", "image_shift": "0", "scale": "1"},
        choice=(*PRODUCT, "multicast_a"),
        estimated=lambda fields: fields.get("layout", "") in ("nn", "tn"),
        derive=of_gemm),
    "groupnorm": Tuned(
        shape=("n", "hw", "channels", "groups", "down_w"),
        kinds=("fusion", "packed"),
        defaults={"down_w": "0", "fusion": "none", "packed": "0"},
        choice=("bundle", "blocks", "threads", "held"),
        arrays={"ptx_sm90a": "kPlans"},
        name="plan",
        header="cluster_plan"),
}  # fmt: skip


def lines_of(path, take):
    """`take` of each row of a CSV file. What it makes nothing of is not what `noisefloor tune` writes."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.DictReader(file, strict=True), 2):
                try:
                    take(row)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise Refused(f"{path}:{number}: a field is missing, or is {error}") from None
                except Refused as error:
                    raise Refused(f"{path}:{number}: {error}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"{path}: {error}") from error


def fields_of(text):
    return dict(part.split("=", 1) for part in text.split(","))


def key_of(tuned, fields):
    """(shape, kind) of a problem, from its fields as text."""
    fields = tuned.defaults | tuned.derive({name: text for name, text in fields.items() if text not in (None, "")})
    return tuple(int(fields[name]) for name in tuned.shape), tuple(fields[name] for name in tuned.kinds)


def read_timings(tuned, path):
    """(device, SMs, [commit]), and {(variant, shape): {kind: {choice: (warm, cold)}}}, and {(variant, shape): the estimate's choice}. Problems that
    differ in nothing of these are one to the table, and take the same time: the first's are taken."""
    gpus, times, estimated, problems, commits = set(), defaultdict(lambda: defaultdict(dict)), {}, {}, {}

    def same(known, key, value, what):
        if known.setdefault(key, value) != value:
            raise Refused(f"{what} is {value}, and {known[key]} in lines before; it is one for a shape")

    def take(row):
        gpus.add((row["device"], int(row["sm_count"])))
        if len(gpus) > 1:
            raise Refused(f"a table is of one GPU, not of {gpus}")
        if row["variant"] in tuned.untabled or tuned.estimated(fields_of(row["problem"])):
            return
        if row["variant"] not in tuned.arrays or row["dtype"] != "bf16":
            raise Refused(f"times of {row['variant']} in {row['dtype']}; the table is of {' and '.join(tuned.arrays)} in bf16")
        shape, kind = key_of(tuned, fields_of(row["problem"]))
        choice = UNSAID | fields_of(row["choice"])
        plan, us = tuple(int(choice[name]) for name in tuned.choice), (float(row["warm_us"]), float(row["cold_us"]))
        shape = (row["variant"], shape)
        if problems.setdefault((shape, kind), row["problem"]) != row["problem"]:
            return
        same(commits, shape, row["commit"], "the commit")
        if row["estimated"] == "1":
            same(estimated, shape, plan, f"the estimate's {tuned.name}")
        if plan in times[shape][kind] or not all(0 < value < math.inf for value in us):
            raise Refused(f"{us[0]} and {us[1]} us of {row['choice']}; each choice has one time above 0")
        times[shape][kind][plan] = us

    lines_of(path, take)
    if not times:
        raise Refused(f"{path}: has no timings")
    for shape, kinds in times.items():
        for kind, timed in kinds.items():
            if estimated.get(shape) not in timed:
                raise Refused(f"{path}: {shape[1]} with {tuned.kinds[0]} '{kind[0]}' has no time of the estimate's {tuned.name}")
    return (*gpus.pop(), list(dict.fromkeys(commits.values()))), times, estimated


def read_networks(tuned, path):
    """{network: {(shape, kind): count}}"""
    networks = defaultdict(lambda: defaultdict(int))

    def take(row):
        if not tuned.estimated(row):
            networks[row["network"]][key_of(tuned, row)] += int(row["count"])

    lines_of(path, take)
    return networks


def choose(tuned, times, estimated, counts):
    """{(variant, shape): choice}, of those where a timed one is clearly better than the estimate's, or another shape's row stands in for them."""
    table = {}
    for shape, kinds in times.items():
        weights = {kind: counts.get((shape[1], kind)) or 1 for kind in kinds}
        common = set.intersection(*(set(timed) for timed in kinds.values()))
        total = {plan: [sum(weights[k] * kinds[k][plan][i] for k in kinds) for i in (0, 1)] for plan in common}
        now = total[estimated[shape]]
        fit = [plan for plan, t in total.items() if all(t[i] <= (1 + MOST_LOSS) * now[i] for i in (0, 1))]
        best = min(fit, key=lambda plan: (sum(total[plan]), plan))
        if sum(total[best]) <= (1 - LEAST_WIN) * sum(now):
            table[shape] = best
        elif tuned.stand_in(shape[1]):
            table[shape] = estimated[shape]
    return table


def read_table(tuned, path):
    """Of a table that `cpp` wrote: (number of SMs, what it was timed on), and {(variant, shape): choice}. A line that `cpp` would not write is refused:
    what is not understood would be lost."""
    table = {}
    try:
        text = path.read_text(encoding="utf-8")
        about = " ".join(re.sub(r"^// ?", "", line) for line in text.partition("#include")[0].splitlines())
        source = re.search(rf"not by hand\. (.*?, (\d+) SMs, .*?): \d+ {tuned.name}s,", about)
        for variant, array in tuned.arrays.items():
            count, rows = re.search(rf"^constexpr std::array<Measured{tuned.name.title()}, (\d+)> {array} = {{{{\n(.*?)^}}}};$", text, re.DOTALL | re.MULTILINE).groups()
            for line in rows.splitlines():
                numbers = tuple(map(int, re.fullmatch(r"    {(\d+(?:, \d+)*)},", line, re.ASCII)[1].split(", ")))
                if len(numbers) != len(tuned.shape) + len(tuned.choice):
                    raise ValueError(line)
                table[variant, numbers[:len(tuned.shape)]] = numbers[len(tuned.shape):]
            if rows.count("\n") != int(count):
                raise ValueError(f"{array} has not its {count} rows")
        older = re.search(r"Rows of other shapes are of earlier timings: (.*?)\.(?: |$)", about)
        sources = [source[1], *(older[1].split("; ") if older else ())]
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"{path}: {error}: --keep takes a table as this program wrote it") from None
    return (int(source[2]), "; ".join(dict.fromkeys(sources))), table


def cpp(op, source, table, problems, plans, kept=None):
    tuned = TABLES[op]
    room, measured = tuned.room or op, f"measured_{tuned.name}s"
    device, sm_count, commits = source
    about = (f"Written by `tools/tune {op}`; not by hand. {device}, {sm_count} SMs, {'commit' if len(commits) == 1 else 'commits'} {' and '.join(commits)}: {plans} {tuned.name}s, the best of those "
             f"timed of {problems} problems of bench/problems (bf16), warm (in a CUDA graph) and cold. A shape is here where one "
             f"{tuned.name} took at least {100 * LEAST_WIN:g} % less than the estimate's, over all its kinds that were timed.")
    if any(tuned.stand_in(shape[1]) for shape in table):
        about += " Where a shape without a row takes another's, the estimate's has one too."
    if kept:
        about += f" Rows of other shapes are of earlier timings: {kept}."
    about = textwrap.fill(about, 117, initial_indent="// ", subsequent_indent="// ", break_long_words=False, break_on_hyphens=False)
    arrays = ""
    for variant, array in tuned.arrays.items():
        rows = sorted((shape[1], plan) for shape, plan in table.items() if shape[0] == variant)
        rows = "".join("    {%s},\n" % ", ".join(map(str, shape + plan)) for shape, plan in rows)
        arrays += f"constexpr std::array<Measured{tuned.name.title()}, {rows.count(chr(10))}> {array} = {{{{\n{rows}}}}};\n"
    return f"""{about}
#include "kernels/{room}/{tuned.header}.h"

namespace noisefloor::{room} {{
namespace {{

// clang-format off
// {", ".join(tuned.shape)}; {", ".join(tuned.choice)}
{arrays}// clang-format on

}}  // namespace

Measured{tuned.name.title()}s {measured}() {{
  return {{{", ".join([str(sm_count), *tuned.arrays.values()])}}};
}}

}}  // namespace noisefloor::{room}
"""


def losses(variant, times, estimated, table, networks):
    """Lines: of each network what the choice takes, and loses to the best timed ones, warm and cold, without the table and with it."""
    times = {shape[1]: kinds for shape, kinds in times.items() if shape[0] == variant}
    estimated, table = ({shape[1]: plan for shape, plan in some.items() if shape[0] == variant} for some in (estimated, table))
    lines = ["%-16s %9s %9s %7s %9s %7s   %9s %9s %7s %9s %7s" % ("network", "best warm", "before", "%", "now", "%", "best cold", "before", "%", "now", "%")]
    for network, problems in networks.items():
        timed = {k: count for k, count in problems.items() if k[1] in times.get(k[0], {})}
        if not timed:
            continue
        cells = [network + ("" if len(timed) == len(problems) else f" ({len(timed)} of {len(problems)} problems)")]
        for i in (0, 1):
            best = sum(count * min(t[i] for t in times[s][f].values()) for (s, f), count in timed.items())
            before = sum(count * times[s][f][estimated[s]][i] for (s, f), count in timed.items())
            now = sum(count * times[s][f][table.get(s, estimated[s])][i] for (s, f), count in timed.items())
            cells += [best, before, 100 * (before / best - 1), now, 100 * (now / best - 1)]
        lines.append("%-16s %9.1f %9.1f %7.2f %9.1f %7.2f   %9.1f %9.1f %7.2f %9.1f %7.2f" % tuple(cells))
    return lines


def main():
    parser = argparse.ArgumentParser(prog="tuned_table", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", metavar="OP", choices=TABLES)
    parser.add_argument("--compute-capability", action="version", version=COMPUTE_CAPABILITY, help="print that of the GPUs which run what is timed")
    parser.add_argument("timings", metavar="TIMINGS.csv", type=Path)
    parser.add_argument("--keep", action="store_true", help="the rows of shapes that TIMINGS lacks, in the table at --out")
    parser.add_argument("--out", type=Path, help="instead of the room's own")
    parser.add_argument("--problems", type=Path, help="with the networks' counts, instead of bench/problems/OP.csv")
    arguments = parser.parse_args()
    tuned = arguments.tuned = TABLES[arguments.op]
    arguments.out = arguments.out or ROOT / f"kernels/{tuned.room or arguments.op}/measured_{tuned.name}s.cpp"
    arguments.problems = arguments.problems or ROOT / f"bench/problems/{arguments.op}.csv"
    return exit_code("tuned_table", make, arguments)


def make(arguments):
    tuned, out = arguments.tuned, OutputFile(arguments.out)
    source, times, estimated = read_timings(tuned, arguments.timings)
    networks, counts = read_networks(tuned, arguments.problems), defaultdict(int)
    for problems in networks.values():
        for key, count in problems.items():
            counts[key] += count
    table = choose(tuned, times, estimated, counts)
    if not table and not arguments.keep:
        raise Refused(f"no timed {tuned.name} is clearly better than the estimate's; nothing is written")
    kept, before, written = None, {}, table
    if arguments.keep:
        (sm_count, kept), before = read_table(tuned, arguments.out)
        if sm_count != source[1]:
            raise Refused(f"{arguments.out}: is of a GPU with {sm_count} SMs, {arguments.timings} of one with {source[1]}; a table is of one")
        before = {shape: plan for shape, plan in before.items() if shape not in times}
        written = before | table
        if not written:
            raise Refused(f"no {tuned.name}, timed now or before, is clearly better than the estimate's; nothing is written")
    problems = sum(len(kinds) for kinds in times.values())
    plans = sum(len(timed) for kinds in times.values() for timed in kinds.values())
    text = cpp(arguments.op, source, written, problems, plans, kept if before else None)
    out.write(lambda part: Path(part).write_text(text, encoding="utf-8"))
    words = functools.partial(print, file=out.words)
    words(f"{arguments.out}: {tuned.name}s of {len(table)} of {len(times)} shapes, for {source[1]} SMs" + (f"; {len(before)} kept" if arguments.keep else ""))
    for variant in tuned.arrays:
        if len(tuned.arrays) > 1:
            words(variant)
        words("\n".join(losses(variant, times, estimated, table, networks)))


if __name__ == "__main__":
    sys.exit(main())
