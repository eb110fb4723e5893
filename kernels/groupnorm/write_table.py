"""Chooses plans of groupnorm's ptx_sm90a from timings, and writes them as kernels/groupnorm/measured_plans.cpp.

usage: python3 kernels/groupnorm/write_table.py TIMINGS.csv [--out FILE.cpp] [--problems groupnorm.csv]

TIMINGS is what `noisefloor tune groupnorm` writes. One plan serves all fusions of a shape: that with the least sum of warm and cold times,
weighted by how often the networks meet each fusion. It is taken only where that sum is at least 1 % below that of the plan which the
estimate chooses (kernels/groupnorm/cluster_plan.cpp), and neither its warm nor its cold part is more than 0.5 % above. Prints what the
choice loses in each network against the best of the timed plans, without the table and with it.
"""

import argparse
import csv
import math
import os
import sys
import tempfile
import textwrap
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VARIANT, COMPUTE_CAPABILITY = "ptx_sm90a", "9.0"  # which is timed, and the GPUs that run it
TIMING_COLUMNS = "device,sm_count,commit,problem,dtype,variant,choice,estimated,warm_us,cold_us".split(",")
PROBLEM_COLUMNS = "network,n,hw,channels,groups,fusion,packed,count".split(",")
SHAPE, PLAN = ("n", "hw", "channels", "groups"), ("bundle", "blocks", "threads", "held")
LEAST_WIN = 0.01  # of warm and cold time together
MOST_LOSS = 0.005  # of either


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


def read_timings(path):
    """(device, SMs, commit), and {shape: {fusion: {plan: (warm, cold)}}}, and {shape: the estimate's plan}. Problems that differ in eps or
    stats alone are one to the table, and take the same time: the first's are taken."""
    source, times, estimated, problems = None, defaultdict(lambda: defaultdict(dict)), {}, {}
    for line, row in read_rows(path, TIMING_COLUMNS):
        here = (row["device"], whole(path, line, row, "sm_count", 1), row["commit"])
        if source not in (None, here):
            raise Refused(f"{path}:{line}: timed on {here}, lines before on {source}; a table is of one GPU and one commit")
        source = here
        if (row["variant"], row["dtype"]) != (VARIANT, "bf16"):
            raise Refused(f"{path}:{line}: times of {row['variant']} in {row['dtype']}; the table is of {VARIANT} in bf16")
        problem, choice = pairs(path, line, row, "problem"), pairs(path, line, row, "choice")
        shape = tuple(whole(path, line, problem, f, 1) for f in SHAPE)
        plan = tuple(whole(path, line, choice, f, int(f != "held")) for f in PLAN)
        fusion = (problem.get("fusion", "none"), problem.get("packed", "0"))
        if problems.setdefault((shape, fusion), row["problem"]) != row["problem"]:
            continue
        timed = times[shape][fusion]
        if plan in timed:
            raise Refused(f"{path}:{line}: the same plan of the same problem is there twice")
        timed[plan] = (microseconds(path, line, row, "warm_us"), microseconds(path, line, row, "cold_us"))
        if row["estimated"] not in ("0", "1"):
            raise Refused(f"{path}:{line}: estimated is '{row['estimated']}'; it must be 0 or 1")
        if row["estimated"] == "1" and estimated.setdefault(shape, plan) != plan:
            raise Refused(f"{path}:{line}: the estimate's plan is {plan} here and {estimated[shape]} before; it is one for a shape")
    if source is None:
        raise Refused(f"{path}: has no timings")
    for shape, fusions in times.items():
        for fusion, timed in fusions.items():
            if estimated.get(shape) not in timed:
                raise Refused(f"{path}: {shape} with fusion '{fusion[0]}' has no time of the estimate's plan")
    return source, times, estimated


def read_networks(path):
    """{network: {(shape, fusion): count}}"""
    networks = defaultdict(lambda: defaultdict(int))
    for line, row in read_rows(path, PROBLEM_COLUMNS):
        shape = tuple(whole(path, line, row, f, 1) for f in SHAPE)
        fusion = (row["fusion"] or "none", row["packed"] or "0")
        networks[row["network"]][shape, fusion] += whole(path, line, row, "count", 1)
    return networks


def choose(times, estimated, counts):
    """{shape: plan}, of those shapes where a timed plan is clearly better than the estimate's."""
    table = {}
    for shape, fusions in times.items():
        weights = {fusion: counts.get((shape, fusion), 1) for fusion in fusions}
        common = set.intersection(*(set(timed) for timed in fusions.values()))
        total = {plan: [sum(weights[f] * fusions[f][plan][i] for f in fusions) for i in (0, 1)] for plan in common}
        now = total[estimated[shape]]
        fit = [plan for plan, t in total.items() if all(t[i] <= (1 + MOST_LOSS) * now[i] for i in (0, 1))]
        best = min(fit, key=lambda plan: (sum(total[plan]), plan))
        if sum(total[best]) <= (1 - LEAST_WIN) * sum(now):
            table[shape] = best
    return table


def cpp(source, table, problems, plans):
    device, sm_count, commit = source
    rows = "".join("    {%s},\n" % ", ".join(map(str, shape + plan)) for shape, plan in sorted(table.items()))
    about = (f"Written by `scripts/tune groupnorm`; not by hand. {device}, {sm_count} SMs, commit {commit}: {plans} plans, the best of those timed "
             f"of {problems} problems of bench/problems/groupnorm.csv (bf16), warm (in a CUDA graph) and cold. A shape is here where one plan took "
             f"at least {100 * LEAST_WIN:g} % less than the estimate's, over all fusions that were timed.")
    about = textwrap.fill(about, 117, initial_indent="// ", subsequent_indent="// ", break_long_words=False)
    return f"""{about}
#include "kernels/groupnorm/measured_plans.h"

namespace noisefloor::groupnorm {{
namespace {{

// clang-format off
// n, hw, channels, groups; bundle, blocks, threads, held
constexpr MeasuredPlan kPlans[] = {{
{rows}}};
// clang-format on

}}  // namespace

MeasuredPlans measured_plans() {{
  return {{{sm_count}, kPlans}};
}}

}}  // namespace noisefloor::groupnorm
"""


def losses(times, estimated, table, networks):
    """Lines: of each network what the choice takes, and loses to the best timed plans, warm and cold, without the table and with it."""
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


def write(path, text):
    part = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8") as file:
            part = file.name
            file.write(text)
        os.chmod(part, 0o644)
        os.replace(part, path)
    except OSError as error:
        if part is not None:
            os.unlink(part)
        raise Refused(f"cannot write {path}: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute-capability", action="version", version=COMPUTE_CAPABILITY, help="print that of the GPUs which run what is timed")
    parser.add_argument("timings", metavar="TIMINGS.csv", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "kernels/groupnorm/measured_plans.cpp")
    parser.add_argument("--problems", type=Path, default=ROOT / "bench/problems/groupnorm.csv", help="with the networks' counts")
    arguments = parser.parse_args()
    source, times, estimated = read_timings(arguments.timings)
    networks = read_networks(arguments.problems)
    counts = defaultdict(int)
    for problems in networks.values():
        for key, count in problems.items():
            counts[key] += count
    table = choose(times, estimated, counts)
    if not table:
        raise Refused("no timed plan is clearly better than the estimate's; nothing is written")
    problems = sum(len(fusions) for fusions in times.values())
    plans = sum(len(timed) for fusions in times.values() for timed in fusions.values())
    write(arguments.out, cpp(source, table, problems, plans))
    print(f"{arguments.out}: plans of {len(table)} of {len(times)} shapes, for {source[1]} SMs")
    print("\n".join(losses(times, estimated, table, networks)))


if __name__ == "__main__":
    try:
        main()
    except Refused as error:
        print(f"write_table: {error}", file=sys.stderr)
        sys.exit(2)
