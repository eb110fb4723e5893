"""Writes what is generated between markers: python3 reports/update_readme.py [RECORDED_DIR] [--check]

README.md has the totals of one forward pass per network and op, ours against the baselines (totals.csv of the recorded run, which
`noisefloor roofline RECORDED_DIR` writes); docs/columns.md the columns of sweep.csv (reports/run/columns.def, as `noisefloor list columns`
prints them). --check writes nothing and exits with 1 where they differ. The program is $NOISEFLOOR_BINARY, else scripts/noisefloor.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
SIDES = {"ours": "own best", "library": "library", "PyTorch": "pytorch"}


def lines_of(totals: pd.DataFrame) -> list[dict]:
    """One line per network and op, and one per plan of a whole network, for choices that have all of the problems."""
    lines = []
    whole = totals[totals["missing"] == 0]
    for (network, op), group in whole.groupby(["network", "op"], sort=False):
        by_choice = {choice: row for choice, row in zip(group["choice"], group.to_dict("records"))}
        ours = [("own best", op)]
        if op == "network":
            ours = [(name, f"whole, {name}") for name, row in by_choice.items() if row["kind"] == "network"]
        for choice, label in ours:
            if choice not in by_choice:
                continue
            line = {"network": network, "op": label, "problems": by_choice[choice]["problems"]}
            for who, side in {**SIDES, "ours": choice}.items():
                if side in by_choice:
                    line |= {f"{who}, {state}": by_choice[side][f"{state}_us"] for state in ("cold", "warm")}
            lines.append(line)
    return lines


def cell(value: float) -> str:
    return "" if pd.isna(value) else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def markdown(recorded: Path) -> str:
    totals = pd.read_csv(recorded / "totals.csv", keep_default_na=False, na_values={"worst_ratio": ""})
    environment = json.loads((recorded / "env.json").read_text())
    table = pd.DataFrame(lines_of(totals[(totals["dtype"] == "bf16") & (totals["op"] != "all ops")]))
    names = [f"{who}, {state}" for who in SIDES for state in ("cold", "warm") if f"{who}, {state}" in table]
    text = (f"{environment['device']}, driver {environment['driver']}, CUDA {environment['cuda_runtime']}, commit "
            f"`{environment['commit']}`, bf16; microseconds of one forward pass (time x count over all of the network's problems), ours the "
            "fastest own variant of each problem, the library cuDNN or cuBLASLt, PyTorch the fastest of its rows of each (eager, compile, each SDPA). "
            "Blank: this run does not have a row of that baseline for every problem.\n\n")
    text += "| network | op | problems | " + " | ".join(names) + " |\n"
    text += "|---|---|---:|" + "---:|" * len(names) + "\n"
    for _, line in table.iterrows():
        text += f"| {line['network']} | {line['op']} | {line['problems']} | " + " | ".join(cell(line[n]) for n in names) + " |\n"
    return text


def columns_table(_recorded: Path) -> str:
    program = os.environ.get("NOISEFLOOR_BINARY") or ROOT / "scripts" / "noisefloor"
    return subprocess.run([program, "list", "columns"], capture_output=True, text=True, check=True).stdout


GENERATED = [("README.md", "recorded", markdown), ("docs/columns.md", "columns", columns_table)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path, nargs="?", default=ROOT / "reports" / "recorded" / "nvidia-h200")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    differs = 0
    for name, marker, make in GENERATED:
        begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
        text = (ROOT / name).read_text()
        if begin not in text or end not in text:
            print(f"{name}: has no markers {begin} and {end}", file=sys.stderr)
            return 2
        head, rest = text.split(begin, 1)
        made = head + begin + "\n" + make(arguments.recorded) + end + rest.split(end, 1)[1]
        if arguments.check and made != text:
            print(f"{name}: not what python3 reports/update_readme.py writes", file=sys.stderr)
            differs = 1
        elif not arguments.check:
            (ROOT / name).write_text(made)
    return differs


if __name__ == "__main__":
    sys.exit(main())
