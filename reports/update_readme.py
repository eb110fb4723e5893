"""Writes the recorded figures into README.md, between its markers: python3 reports/update_readme.py [RECORDED_DIR]

So that no figure is typed: totals of one forward pass per network and op, ours against each baseline, from the recorded sweep.
"""

import json
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- recorded:begin -->", "<!-- recorded:end -->"


VENDOR = ("cublaslt", "cudnn")  # one of them an op


def totals(rows: pd.DataFrame, problems: pd.DataFrame) -> pd.DataFrame:
    """One line per (network, op): cold and warm microseconds of the best own variant, cold ones of every baseline that has them all. Whole
    networks are lines of their plans."""
    ok = rows[rows["status"] == "ok"]
    lines = []
    for (network, op), needs in problems.groupby(["network", "op"], sort=False):
        timed = needs.merge(ok, on=["op", "problem"], suffixes=("", "_row"))
        own = timed[~timed["kind"].isin(["baseline", "network"])]
        choices = {"ours": own.loc[own.groupby("problem")["time_cold_us"].idxmin()]}
        choices |= dict(list(timed[timed["kind"] == "network"].groupby("variant", sort=False)))
        others = dict(list(timed[timed["kind"] == "baseline"].groupby("variant", sort=False)))
        whole = {name: rows for name, rows in choices.items() if rows["problem"].nunique() == len(needs)}
        for name, chosen in whole.items():  # a sum over fewer problems would be another figure
            line = {"network": network, "op": op if name == "ours" else f"whole, {name}", "problems": len(needs)}
            line["ours, cold"] = (chosen["time_cold_us"] * chosen["count"]).sum()
            line["ours, warm"] = (chosen["time_warm_us"] * chosen["count"]).sum()
            torch = timed[timed["variant"].str.startswith("torch_") & (timed["kind"] == "baseline")]
            sides = {"library": [others[n] for n in VENDOR if n in others],
                     "PyTorch": [torch.loc[torch.groupby("problem")["time_cold_us"].idxmin()]]}
            for column, side in sides.items():
                for other in (rows for rows in side if rows["problem"].nunique() == len(needs)):
                    line[f"{column}, cold"] = (other["time_cold_us"] * other["count"]).sum()
                    line[f"{column}, warm"] = (other["time_warm_us"] * other["count"]).sum()
            lines.append(line)
    return pd.DataFrame(lines)


def cell(value: float) -> str:
    return "" if pd.isna(value) else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def markdown(recorded: Path) -> str:
    rows = pd.read_csv(recorded / "sweep.csv")
    environment = json.loads((recorded / "env.json").read_text())
    table = totals(rows[rows["dtype"] == "bf16"], pd.read_csv(recorded / "networks.csv"))
    names = [f"{who}, {state}" for who in ("ours", "library", "PyTorch") for state in ("cold", "warm") if f"{who}, {state}" in table]
    text = (f"{environment['device']}, driver {environment['driver']}, CUDA {environment['cuda_runtime']}, commit "
            f"`{environment['commit']}`, bf16; microseconds of one forward pass (time x count over all of the network's problems), ours the "
            "fastest own variant of each problem, the library cuDNN or cuBLASLt, PyTorch the fastest of its rows of each (eager, compile, each SDPA). "
            "Blank: this run does not have a row of that baseline for every problem.\n\n")
    text += "| network | op | problems | " + " | ".join(names) + " |\n"
    text += "|---|---|---:|" + "---:|" * len(names) + "\n"
    for _, line in table.iterrows():
        text += f"| {line['network']} | {line['op']} | {line['problems']} | " + " | ".join(cell(line[n]) for n in names) + " |\n"
    return text


def main() -> int:
    recorded = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "reports" / "recorded" / "nvidia-h200"
    readme = ROOT / "README.md"
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        print(f"{readme}: has no markers {BEGIN} and {END}", file=sys.stderr)
        return 2
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    readme.write_text(head + BEGIN + "\n" + markdown(recorded) + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
