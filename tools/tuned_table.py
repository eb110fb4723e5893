"""Chooses from timings of what a variant can choose from, and writes the table that the op's room compiles in. For kernels/OP/write_table.py.

usage: python3 kernels/OP/write_table.py TIMINGS.csv [--keep] [--out FILE.cpp] [--problems OP.csv]

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
from baselines.pytorch.output_file import CannotWrite, OutputFile  # noqa: E402

COMPUTE_CAPABILITY = "9.0"  # of the GPUs that run what is timed
TIMING_COLUMNS = "device,sm_count,commit,problem,dtype,variant,choice,estimated,warm_us,cold_us".split(",")
LEAST_WIN = 0.01  # of warm and cold time together
MOST_LOSS = 0.005  # of either
SCHEDULE = (("rows", 1), ("columns", 1), ("pingpong", 0), ("multicast", 1), ("splits", 1))  # of the products' ptx rungs
UNSAID = {"multicast_a": "1"}  # of a choice that does not say


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What an op's table is made of."""

    op: str
    arrays: dict  # of each variant that is timed, the name of its rows in the table
    shape: tuple  # whole numbers of a problem that a row is for: (field, default or None, least)
    kinds: tuple  # fields that a row serves all values of: (field, default)
    choice: tuple  # what a row says: (field, least)
    name: str  # of what is chosen: "plan"
    record: str  # C++: the type of a row
    file: str  # that is written, without its ending
    table: Callable  # C++: the function that gives it, from the number of SMs
    derive: Callable = lambda fields: fields  # adds to a problem's fields what is not one of them
    header: str = "schedule"  # that declares the table, without its ending
    room: str = ""  # whose the table is, where it is not the op's
    untabled: tuple = ()  # variants of the op that choose by estimate alone; their times are passed over
    stand_in: Callable = lambda shape: False  # whether a shape without a row takes another's, so that the estimate needs one too

    def __post_init__(self):
        object.__setattr__(self, "room", self.room or self.op)


class Refused(Exception):
    pass


def read_rows(path, columns):
    """Rows of a CSV file as (line, dict); columns beyond `columns` may be there too."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [c for c in columns if c not in (reader.fieldnames or [])]
            if missing:
                raise Refused(f"{path}: has no column {', '.join(missing)}")
            for row in reader:
                if None in row or None in row.values():
                    raise Refused(f"{path}:{reader.line_num}: has too {'many' if None in row else 'few'} columns; the header has {len(reader.fieldnames)}")
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"{path}: {error}") from error


def pairs(path, line, row, column):
    """The fields of a text like a=1,b=2."""
    fields = dict(part.split("=", 1) for part in row[column].split(",") if "=" in part)
    if ",".join(f"{key}={value}" for key, value in fields.items()) != row[column]:
        raise Refused(f"{path}:{line}: {column} is '{row[column]}'; it must be fields like a=1,b=2")
    return fields


def whole(path, line, row, field, least=0):
    text = row.get(field, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) >= least):
        raise Refused(f"{path}:{line}: {field} is '{text}'; it must be a whole number, {least} or more")
    return int(text)


def microseconds(path, line, row, field):
    try:
        value = float(row[field])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise Refused(f"{path}:{line}: {field} is '{row[field]}'; it must be a number above 0")
    return value


def key_of(tuned, path, line, fields):
    """(shape, kind) of a problem, from its fields as text."""
    fields = tuned.derive({name: text for name, text in fields.items() if text not in (None, "")})
    default = {name: text for name, text, _ in tuned.shape if text is not None}
    shape = tuple(whole(path, line, default | fields, name, least) for name, _, least in tuned.shape)
    return shape, tuple(fields.get(name, text) for name, text in tuned.kinds)


def read_timings(tuned, path):
    """(device, SMs, [commit]), and {(variant, shape): {kind: {choice: (warm, cold)}}}, and {(variant, shape): the estimate's choice}, and {(shape, kind):
    how often graphs ask for it}. Problems that differ in nothing of these are one to the table, and take the same time: the first's are taken."""
    gpu, times, estimated, problems, commits, asked = None, defaultdict(lambda: defaultdict(dict)), {}, {}, {}, {}
    for line, row in read_rows(path, TIMING_COLUMNS):
        here = (row["device"], whole(path, line, row, "sm_count", 1))
        if gpu not in (None, here):
            raise Refused(f"{path}:{line}: timed on {here}, lines before on {gpu}; a table is of one GPU")
        gpu = here
        if row["variant"] in tuned.untabled:
            continue
        if row["variant"] not in tuned.arrays or row["dtype"] != "bf16":
            raise Refused(f"{path}:{line}: times of {row['variant']} in {row['dtype']}; the table is of {' and '.join(tuned.arrays)} in bf16")
        problem, choice = pairs(path, line, row, "problem"), UNSAID | pairs(path, line, row, "choice")
        shape, kind = key_of(tuned, path, line, problem)
        if row.get("asked"):
            asked[shape, kind, row["problem"]] = whole(path, line, row, "asked")
        shape = (row["variant"], shape)
        plan = tuple(whole(path, line, choice, name, least) for name, least in tuned.choice)
        if problems.setdefault((shape, kind), row["problem"]) != row["problem"]:
            continue
        if commits.setdefault(shape, row["commit"]) != row["commit"]:
            raise Refused(f"{path}:{line}: timed at {row['commit']}, other lines of that shape at {commits[shape]}; what is compared is of one commit")
        timed = times[shape][kind]
        if plan in timed:
            raise Refused(f"{path}:{line}: the same {tuned.name} of the same problem is there twice")
        timed[plan] = (microseconds(path, line, row, "warm_us"), microseconds(path, line, row, "cold_us"))
        if row["estimated"] not in ("0", "1"):
            raise Refused(f"{path}:{line}: estimated is '{row['estimated']}'; it must be 0 or 1")
        if row["estimated"] == "1" and estimated.setdefault(shape, plan) != plan:
            raise Refused(f"{path}:{line}: the estimate's {tuned.name} is {plan} here and {estimated[shape]} before; it is one for a shape")
    if gpu is None:
        raise Refused(f"{path}: has no timings")
    for shape, kinds in times.items():
        for kind, timed in kinds.items():
            if estimated.get(shape) not in timed:
                raise Refused(f"{path}: {shape[1]} with {tuned.kinds[0][0]} '{kind[0]}' has no time of the estimate's {tuned.name}")
    graphs = defaultdict(int)
    for (shape, kind, _), count in asked.items():
        graphs[shape, kind] += count
    return (*gpu, list(dict.fromkeys(commits.values()))), times, estimated, graphs


def read_networks(tuned, path):
    """{network: {(shape, kind): count}}"""
    networks = defaultdict(lambda: defaultdict(int))
    needed = ["network", *(name for name, default, _ in tuned.shape if default is None), "count"]
    for line, row in read_rows(path, needed):
        networks[row["network"]][key_of(tuned, path, line, row)] += whole(path, line, row, "count", 1)
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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}") from error

    def damaged(why):
        return Refused(f"{path}: {why}: --keep takes a table as write_table wrote it")

    about = " ".join(re.sub(r"^// ?", "", line) for line in text.partition("#include")[0].splitlines())
    source = re.search(rf"not by hand\. (.*?, (\d+) SMs, .*?): \d+ {tuned.name}s,", about)
    if source is None:
        raise damaged("does not say what it was timed on")
    fields = [(name, least) for name, _, least in tuned.shape] + list(tuned.choice)
    table = {}
    for variant, array in tuned.arrays.items():
        found = re.search(rf"^constexpr std::array<{tuned.record}, (\d+)> {array} = {{{{\n(.*?)^}}}};$", text, re.DOTALL | re.MULTILINE)
        if found is None:
            raise damaged(f"has no array {array}")
        lines = found[2].splitlines()
        if len(lines) != int(found[1]):
            raise damaged(f"{array} says {found[1]} rows and has {len(lines)} lines")
        for line in lines:
            row = re.fullmatch(r"    {(\d+(?:, \d+)*)},", line, re.ASCII)
            numbers = [int(number) for number in row[1].split(", ")] if row else []
            numbers += [int(UNSAID[name]) for name, _ in fields[len(numbers):] if name in UNSAID]  # of a table from before that column
            if len(numbers) != len(fields) or any(number < least for number, (_, least) in zip(numbers, fields)):
                raise damaged(f"a line of {array} is no row of {len(fields)} numbers: '{line}'")
            shape = variant, tuple(numbers[:len(tuned.shape)])
            if shape in table:
                raise damaged(f"{array} has a shape twice: '{line}'")
            table[shape] = tuple(numbers[len(tuned.shape):])
    older = re.search(r"Rows of other shapes are of earlier timings: (.*?)\.(?: |$)", about)
    sources = [source[1], *(older[1].split("; ") if older else ())]
    return (int(source[2]), "; ".join(dict.fromkeys(sources))), table


def cpp(tuned, source, table, problems, plans, kept=None):
    device, sm_count, commits = source
    fields = [name for name, _, _ in tuned.shape], [name for name, _ in tuned.choice]
    about = (f"Written by `tools/tune {tuned.op}`; not by hand. {device}, {sm_count} SMs, {'commit' if len(commits) == 1 else 'commits'} {' and '.join(commits)}: {plans} {tuned.name}s, the best of those "
             f"timed of {problems} problems of bench/problems and of its networks as they run here (bf16), warm (in a CUDA graph) and cold. A shape is here where one "
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
        arrays += f"constexpr std::array<{tuned.record}, {rows.count(chr(10))}> {array} = {{{{\n{rows}}}}};\n"
    return f"""{about}
#include "kernels/{tuned.room}/{tuned.header}.h"

namespace noisefloor::{tuned.room} {{
namespace {{

// clang-format off
// {", ".join(fields[0])}; {", ".join(fields[1])}
{arrays}// clang-format on

}}  // namespace

{tuned.table(sm_count)}

}}  // namespace noisefloor::{tuned.room}
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


def run(tuned):
    """The program of kernels/OP/write_table.py."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute-capability", action="version", version=COMPUTE_CAPABILITY, help="print that of the GPUs which run what is timed")
    parser.add_argument("timings", metavar="TIMINGS.csv", type=Path)
    parser.add_argument("--keep", action="store_true", help="the rows of shapes that TIMINGS lacks, in the table at --out")
    parser.add_argument("--out", type=Path, default=ROOT / f"kernels/{tuned.room}/{tuned.file}.cpp")
    parser.add_argument("--problems", type=Path, default=ROOT / f"bench/problems/{tuned.op}.csv", help="with the networks' counts")
    arguments = parser.parse_args()
    try:
        make(tuned, arguments)
    except (Refused, CannotWrite) as error:
        print(f"write_table: {error}", file=sys.stderr)
        sys.exit(2)


def make(tuned, arguments):
    out = OutputFile(arguments.out)
    source, times, estimated, counts = read_timings(tuned, arguments.timings)
    networks = read_networks(tuned, arguments.problems)
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
    text = cpp(tuned, source, written, problems, plans, kept if before else None)
    try:
        out.write(lambda part: Path(part).write_text(text, encoding="utf-8"))
    except OSError as error:
        raise Refused(f"--out {out.name}: cannot be written: {error.strerror}") from error
    words = functools.partial(print, file=out.words)
    words(f"{arguments.out}: {tuned.name}s of {len(table)} of {len(times)} shapes, for {source[1]} SMs" + (f"; {len(before)} kept" if arguments.keep else ""))
    for variant in tuned.arrays:
        if len(tuned.arrays) > 1:
            words(variant)
        words("\n".join(losses(variant, times, estimated, table, networks)))
