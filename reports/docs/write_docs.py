"""Writes what stands between markers in the Markdown files: python3 reports/docs/write_docs.py [--check] [FILE...]

A block begins with `<!-- generated: NAME arguments -->` and ends with `<!-- end -->`. What stands between is made from the recorded run
(reports/recorded/nvidia-h200; in a recorded folder from that), from the help texts of the program and of scripts/, or from docs/experiments. So no
measured figure is typed.

  variants OP | PROBLEM | ...        times and percent of roof of every variant
  networks [FOLDER] [N]              whole networks under each plan, beside PyTorch's; FOLDER: of reports/recorded, in place of that one; N: the first N
  gains PAGE                         networks beside torch.compile, least and most, and a patched network by the last table of that experiment
  totals [FOLDER]                    one forward pass, op by op
  slower [FOLDER]                    by op, how many problems are slower than the best baseline, and the worst ratio
  which [FOLDER]                     our fastest beside the baselines, problem by problem, of the sets of bench/problems/transformers.json
  excerpt OP PROBLEM DTYPE           the rows of a problem as a sweep prints them
  ceilings [FOLDER]                  ceilings of the recorded device
  rows                               how many rows have which status, of how many problems and GPUs
  experiments-index                  the finding of each page of docs/experiments, by room
  findings PAGE ...                  the findings of those pages of docs/experiments
  experiment-table PAGE              the table of that one
  commands, scripts                  the help of every command; of every script
  columns, rules                     the columns of sweep.csv, the rules of explain, as `noisefloor list` prints them

--check writes nothing, and exits with 1 where a block differs. Exit code 2: a block cannot be made.
"""

import argparse
import csv
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from reports.docs import experiments  # noqa: E402
from reports.docs.experiments import CannotBeMade  # noqa: E402

FRONT_RECORD = RECORDED = ROOT / "reports" / "recorded" / "nvidia-h200"
TRAINING = "nvidia-h200-training"
TRANSFORMERS = ROOT / "bench" / "problems" / "transformers.json"
BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.S)
PLANS = {"plan_own": "ours", "plan_baseline": "the libraries'", "plan_fastest": "the fastest of both", "torch_compile": "`torch.compile`",
         "torch_eager": "PyTorch, eager"}
VERDICTS = ("won", "lost", "equal", "unresolved")
NOT_A_SCRIPT = (".md", ".txt", ".sh")


def rows_of(file: str, folder: Path | None = None) -> list[dict]:
    folder = folder or RECORDED
    if not (folder / file).is_file():
        raise CannotBeMade(f"{folder / file} is not there")
    with open(folder / file, newline="") as stream:
        return list(csv.DictReader(stream))


def table(head: list[str], lines: list[list[str]], left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, rule, *lines])


def amount(text: str | None) -> str:
    value = float(text or 0)
    return "" if not value else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def time(row: dict | None, column: str = "time_cold_us") -> str:
    return amount(row and row.get(column))


def commits(rows: list[dict]) -> str:
    return ", ".join(f"`{commit}`" for commit in dict.fromkeys(row["commit"] for row in rows))


def variants_of(op: str) -> list[str]:
    """An op's variants on a GPU, best last."""
    rows = [json.loads(line) for line in listed("variants", "--ops", op, "--format", "json").splitlines()]
    return [row["variant"] for row in rows if row["kind"] not in ("host", "baseline")]


def variants(arguments: str) -> str:
    op, *problems = [part.strip() for part in arguments.split("|")]
    recorded, found, lacking = [row for row in rows_of("sweep.csv") if row["op"] == op], [], []
    for problem in problems:
        rows = {row["variant"]: row for row in recorded if (row["problem"], row["dtype"]) == (problem, "bf16")}
        if rows:
            found.append((problem, rows))
        else:
            lacking.append(f"`{problem}`")
    if not recorded and (ROOT / "kernels" / op).is_dir():
        return "The recorded run has no row of this op.\n"
    if not found:
        raise CannotBeMade(f"sweep.csv has no row of {op} {' or '.join(lacking).replace('`', '')} in bf16")
    names = list(dict.fromkeys(name for _, rows in found for name, row in rows.items() if row["status"] == "ok"))
    ours = variants_of(op)
    names.sort(key=lambda name: ours.index(name) if name in ours else len(ours))
    lacking += [f"`{name}`" for name in ours if not any(name in rows for _, rows in found)]
    lines = []
    for name in names:
        line = [f"`{name}`"]
        for _, rows in found:
            row = rows.get(name)
            ok = row is not None and row["status"] == "ok"
            line += [time(row), time(row, "time_warm_us"), f"{float(row['pct_of_roof']):.0f}" if ok and row["pct_of_roof"] else ""] if ok else [
                "" if row is None else row["status"].removesuffix("_problem"), "", ""]
        lines.append(line)
    head = ["variant"] + [text for number in range(1, len(found) + 1) for text in (f"{number}: cold us", "warm us", "% of roof")]
    named = "; ".join(f"{number}: `{problem}`" for number, (problem, _) in enumerate(found, 1))
    every = [row for _, rows in found for row in rows.values()]
    named += f". Not recorded: {', '.join(lacking)}" if lacking else ""
    return f"{every[0]['device']}, bf16, recorded at {commits(every)}. {named}.\n\n" + table(head, lines)


def network_times(folder: Path | None = None) -> list[tuple[str, dict[str, dict]]]:
    """Of each whole network its problem, and its rows by variant."""
    networks = {}
    for row in rows_of("sweep.csv", folder):
        if (row["op"], row["dtype"], row["status"]) == ("network", "bf16", "ok") and row["variant"] in PLANS:
            networks.setdefault(row["problem"], {})[row["variant"]] = row
    # Our own, of digits, last; by length first, so that a network's batches stand in the order of their size.
    return sorted(networks.items(), key=lambda network: ("digits" in network[0], len(network[0]), network[0]))


def recorded_folder(name: str) -> Path:
    return ROOT / "reports" / "recorded" / name if name else RECORDED


def networks(arguments: str) -> str:
    words = arguments.split()
    rows_shown = int(words.pop()) if words and words[-1].isdigit() else None
    times = network_times(recorded_folder(words[0] if words else ""))
    if not times:
        raise CannotBeMade("sweep.csv has no row of a whole network in bf16 that is ok")
    rows = [row for _, variants in times for row in variants.values()]
    shown = [variant for variant in PLANS if any(variant in variants for _, variants in times)]
    what = "training step" if all("training=1" in problem for problem, _ in times) else "denoising call"
    return (f"Microseconds of one {what} in bf16 on one {rows[0]['device']}, from `sweep.csv` at commit {commits(rows)}. Blank: no time.\n\n" +
            table(["network", *(PLANS[variant] for variant in shown)],
                  [[f"`{problem}`", *(time(variants.get(variant)) for variant in shown)] for problem, variants in times[:rows_shown]]))


def shares_of_compiled(folder: Path | None = None) -> tuple[dict[str, float], list[dict]]:
    """What whole networks take of torch.compile's time, and our rows of them."""
    found = {problem: (variants["plan_own"], variants["torch_compile"]) for problem, variants in network_times(folder)
             if {"plan_own", "torch_compile"} <= set(variants) and variants["plan_own"]["commit"] == variants["torch_compile"]["commit"]}  # not of two dates
    return {problem: float(ours["time_cold_us"]) / float(compiled["time_cold_us"]) for problem, (ours, compiled) in found.items()}, [
        ours for ours, _ in found.values()]


def gains(page: str) -> str:
    """What networks, and their training steps, take of torch.compile's time, and a network patched from Python, which `page` of docs/experiments
    measured last."""
    measured = {}  # the last table's rows stay
    for line in experiments.table_of(page):
        name, value, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        if name in ("patched", "torch.compile, mode default"):
            measured[name] = float(value.removesuffix(" us").replace(",", ""))
    if len(measured) != 2 or not network_times():
        raise CannotBeMade(f"docs/experiments/{page} lacks a time of `patched` or torch.compile, or sweep.csv of networks")
    patched, compiled = measured["patched"], measured["torch.compile, mode default"]
    lines = ""
    for what, folder in (("networks", None), ("training steps", recorded_folder(TRAINING))):
        ratios, rows = shares_of_compiled(folder)
        if ratios:
            least, most = (choose(ratios, key=ratios.get) for choose in (max, min))
            lines += (f"* **{len(ratios)} {what} take {ratios[most]:.2f} (`{most}`) to {ratios[least]:.2f} (`{least}`) of `torch.compile`'s time** (cold, bf16, mode "
                      f"default, as a CUDA graph; {rows[0]['device']}, commit {commits(rows)}).\n")
    return lines + (
            f"* **One line, `noisefloor.torch.patch(unet)`**, takes diffusers' U-Net of SD 1.5 from `torch.compile`'s {compiled:,.0f} us to {patched:,.0f} us, "
            f"{patched / compiled:.2f} of it ([measured](docs/experiments/{page}) at `{experiments.last_commit(page)}`).\n")


def totals(name: str) -> str:
    """From totals.csv, which `noisefloor roofline` writes: the one place that adds up."""
    groups, folder = {}, recorded_folder(name)
    for row in rows_of("totals.csv", folder):
        if (row["dtype"], row["missing"]) == ("bf16", "0") and row["op"] != "all ops":
            groups.setdefault((row["network"], row["op"]), {})[row["choice"]] = row
    lines = []
    for (network, op), choices in groups.items():
        whole = op == "network"
        for choice, own in choices.items():
            if choice != "own best" if not whole else own["kind"] != "network":
                continue
            sides = own, choices.get("plan_baseline" if whole else "library"), choices.get("pytorch")

            def line(what: str, problems: str, form: str = "") -> list[str]:
                times = [amount(side and side.get(f"{form}{time}_us")) for side in sides for time in ("cold", "warm", "serial") if side is own or time != "serial"]
                return [network + (" (set)" if own["set"] else ""), what, problems, *times]

            judged = any(int(own[verdict]) for verdict in VERDICTS)
            lines.append([*line(f"whole, `{choice}`" if whole else op, own["problems"]), *(own[verdict] if judged else "" for verdict in VERDICTS),
                          f"{float(own['worst_ratio']):.2f}" if own["worst_ratio"] else ""])
            if own.get("launches"):
                ratio = f"; it takes {own['over_launches']} of their sum" if own["over_launches"] else ""
                if own.get("over_weights_cold"):
                    ratio += f", {own['over_weights_cold']} with their weights cold ({amount(own['launches_weights_cold_us'])})"
                lines.append([*line(f"its launches, {100 * int(own['covered']) / int(own['launches']):.0f} % timed{ratio}", "", "launches_"), *[""] * (len(VERDICTS) + 1)])
            if int(own["shortcuts"] or 0) > 0:
                lines.append([*line(f"{op}, no shortcuts", str(int(own["problems"]) - int(own["shortcuts"])), "plain_"), *[""] * (len(VERDICTS) + 1)])
    environment = json.loads((folder / "env.json").read_text())
    return (f"{environment['device']}, driver {environment['driver']}, CUDA {environment['cuda_runtime']}, commit {commits(rows_of('sweep.csv', folder))}, bf16, us: "
            "time x count over all problems. Serial: warm with ordinary edges between our kernels too. Ours is the own variant with the shortest cold time of each problem, the library cuDNN or cuBLASLt, PyTorch the "
            "row of it with the shortest; a paired comparison may be another variant's; of a whole network the library is the plan of library kernels. Won, lost, equal "
            "(within 3 %) and unresolved count problems against the fastest baseline, warm: by that where there was one, else by medians; the worst "
            "ratio is our time over its. A problem with a shortcut is one-key attention or an upsampled convolution. Blank: not every "
            "problem has a time.\n\n"
            + table(["network", "op", "problems", "ours, cold", "ours, warm", "ours, serial", *(f"{who}, {state}" for who in ("library", "PyTorch") for state in ("cold", "warm")),
                     *VERDICTS, "worst ratio"], lines, left=2))


def slower(name: str) -> str:
    """By op, problems lost to the best baseline, warm, and the worst of them; a problem counts in each of its networks."""
    ops = {}
    for row in rows_of("totals.csv", recorded_folder(name)):
        if (row["dtype"], row["choice"]) == ("bf16", "own best") and row["op"] not in ("all ops", "network") and any(int(row[verdict]) for verdict in VERDICTS):
            ops.setdefault(row["op"], []).append(row)
    lines = []
    for op, rows in ops.items():
        lost, judged = (sum(int(row[verdict]) for row in rows for verdict in which) for which in (("lost",), VERDICTS))
        worst = max((row for row in rows if int(row["lost"])), key=lambda row: float(row["worst_ratio"]), default=None)
        if worst:
            lines.append((lost / judged, f"* {op}: {lost} of {judged}, at worst {float(worst['worst_ratio']):.2f} of the baseline's time (`{worst['network']}`)\n"))
    return "".join(line for _, line in sorted(lines, reverse=True))


def which(name: str) -> str:
    """As `noisefloor which --networks` writes it."""
    folder = recorded_folder(name)
    rows = rows_of("sweep.csv", folder)
    known = {use.split(":")[0] for row in rows for use in row["networks"].split(";")}
    sets = [network for network in json.loads(TRANSFORMERS.read_text()) if network in known]
    if not sets:
        return "The recorded run has no row of these problems.\n"
    ops = [op for op in ("attention", "gemm", "groupnorm", "layernorm") if any(row["op"] == op for row in rows)]
    with tempfile.NamedTemporaryFile("r", suffix=".md") as made:
        run_program("which", "--networks", ",".join(sets), "--ops", ",".join(ops), "--run", folder, "--markdown", made.name)
        return Path(made.name).read_text().removeprefix("## noisefloor: ").replace("\n### ", "\n## ").rstrip("\n") + "\n"


def excerpt(arguments: str) -> str:
    """The rows of one problem that are ok, as a sweep prints them."""
    op, problem, dtype = arguments.split()
    rows = [row for row in rows_of("sweep.csv") if (row["op"], row["problem"], row["dtype"], row["status"]) == (op, problem, dtype, "ok")]
    if not rows:
        raise CannotBeMade(f"sweep.csv has no such rows: {arguments}")
    baseline = min((float(row["time_cold_us"]) for row in rows if row["kind"] == "baseline" and not row.get("lossy")), default=0)
    lines = [["op", "problem", "dtype", "variant", "cold us", "warm us", "% roof", "x baseline", "status"]]
    for row in rows:
        cold = float(row["time_cold_us"])
        lines.append([op, problem, dtype, row["variant"], f"{cold:.2f}", f"{float(row['time_warm_us']):.2f}", f"{float(row['pct_of_roof']):.1f}",
                      f"{baseline / cold:.2f}" if baseline else "-", row["status"]])
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join(cell.rjust(width) if 4 <= place <= 7 else cell.ljust(width) for place, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines]
    return "```\n" + "\n".join(text) + f"\n```\n\n{rows[0]['device']}, commit {commits(rows)}.\n"


def ceilings(name: str) -> str:
    rows = rows_of("ceilings.csv", recorded_folder(name))
    lines = [[f"`{row['name']}`", f"{float(row['value']):,.0f}", f"{float(row['datasheet']):,.0f}" if row["datasheet"] else "", row["unit"]]
             for row in rows]
    return f"{rows[0]['device']}, driver {rows[0]['driver']}, commit {commits(rows)}.\n\n" + table(["ceiling", "measured", "datasheet", "unit"], lines)


def row_counts(_: str) -> str:
    rows = rows_of("sweep.csv")
    counts = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    environment = json.loads((RECORDED / "env.json").read_text())
    lines = [[f"`{status}`", f"{count:,}"] for status, count in sorted(counts.items(), key=lambda item: -item[1])]
    problems = {(row["op"], row["problem"], row["dtype"]) for row in rows}
    gpus = {row["gpu_uuid"] for row in rows} - {""}
    kept = [row for row in rows if row["commit"] != environment["commit"]]
    oldest = min(row.get("measured_utc") or "" for row in kept)[:10] if kept else ""
    said = f"{len(kept):,} of its rows were kept: commits {commits(kept)}{f', the oldest of {oldest}' if oldest else ''}. " if kept else ""
    said += f"Missing: {len(environment['missing'])} shards (env.json). " if "missing" in environment else ""
    return (f"{environment['device']}, driver {environment['driver']}, CUDA {environment['cuda_runtime']}, commit `{environment['commit']}`: "
            f"{len(problems):,} problems on {len(gpus)} GPUs. {said}".rstrip() + "\n\n" + table(["status", "rows of `sweep.csv`"], lines))


def help_of(program: str, *command: str) -> str:
    result = subprocess.run([program, *command, "--help"], capture_output=True, text=True, timeout=60)
    if result.returncode != 0:
        raise CannotBeMade(f"{program} {' '.join(command)} --help exits with {result.returncode}")
    return re.sub(r"[ \t]+$", "", result.stdout.replace(program, "noisefloor").replace(str(ROOT) + "/", ""), flags=re.M).strip("\n") + "\n"


def the_program() -> str:
    named = os.environ.get("NOISEFLOOR_BINARY", "")
    if Path(named).is_file():
        return named
    built = sorted(ROOT.glob("build/*/bin/noisefloor"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise CannotBeMade("no noisefloor is built; build it, or name one in NOISEFLOOR_BINARY")
    return str(built[-1])


def run_program(*words) -> str:
    result = subprocess.run([the_program(), *words], capture_output=True, text=True, timeout=60)
    if result.returncode != 0:
        raise CannotBeMade(f"noisefloor {words[0]} {words[1]}: {result.stderr.strip()}")
    return result.stdout


def listed(what: str, *options: str) -> str:
    return run_program("list", what, *options)


def commands(_: str) -> str:
    program = the_program()
    top = help_of(program)

    def subcommands(text):
        before, *behind = re.split(r"^\w*subcommands:\s*$", text, flags=re.M | re.I)
        return re.findall(r"^  ([a-z][a-z-]*)\b", behind[-1], re.M) if behind else []

    names = [[name, *more] for name in subcommands(top) for more in ([], *([sub] for sub in subcommands(help_of(program, name))))]
    if not names:
        raise CannotBeMade(f"{program} --help names no command")
    text = f"## noisefloor\n\n```\n{top}```\n"
    for name in names:
        text += f"\n## {' '.join(name)}\n\n```\n{help_of(program, *name)}```\n"
    return text


def scripts(_: str) -> str:
    text = ""
    for path in sorted((ROOT / "scripts").iterdir()):
        if path.is_file() and not path.is_symlink() and path.suffix not in NOT_A_SCRIPT and path.stat().st_mode & 0o100:
            lines = path.read_text().split("\n")[1:]
            comment = [line.removeprefix("#").removeprefix(" ") for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]]
            text += f"### scripts/{path.name}\n\n```\n" + "\n".join(comment).strip() + "\n```\n\n"
    return text.rstrip("\n") + "\n"


MAKERS = {"variants": variants, "networks": networks, "gains": gains, "totals": totals, "slower": slower, "which": which, "excerpt": excerpt, "ceilings": ceilings,
          "rows": row_counts, "experiments-index": experiments.index, "findings": experiments.findings, "experiment-table": experiments.table,
          "commands": commands, "scripts": scripts, "columns": lambda _: listed("columns"), "rules": lambda _: listed("rules")}


def made(block: str) -> str:
    name, _, arguments = block.partition(" ")
    if name not in MAKERS:
        raise CannotBeMade(f"nothing is called {name}: there are {', '.join(MAKERS)}")
    return MAKERS[name](arguments)


def markdown_files() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], capture_output=True, text=True,
                            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")})
    if listed.returncode == 0:
        return [ROOT / line for line in listed.stdout.split("\n") if line and (ROOT / line).is_file()]
    return [path for path in sorted(ROOT.rglob("*.md")) if not {".venv", "build"} & set(path.relative_to(ROOT).parts)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="Markdown files (default: all of the project)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a block differs")
    arguments = parser.parse_args()
    global RECORDED
    differing = False
    for file in [path.resolve() for path in arguments.files] or markdown_files():
        RECORDED = file.parent if (file.parent / "env.json").is_file() else FRONT_RECORD
        text = file.read_text()
        try:
            fresh = BLOCK.sub(lambda match: match[1] + made(match[2]) + match[3], text)
        except CannotBeMade as reason:
            print(f"{file}: {reason}", file=sys.stderr)
            return 2
        if len(BLOCK.findall(text)) != text.count("<!-- generated: "):
            print(f"{file}: a block has no <!-- end -->", file=sys.stderr)
            return 2
        if fresh == text:
            continue
        if not arguments.check:
            file.write_text(fresh)
            continue
        differing = True
        for old, new in zip(BLOCK.finditer(text), BLOCK.finditer(fresh)):
            if old[0] != new[0]:
                print(f"{file}: block '{old[2]}' differs; python3 reports/docs/write_docs.py writes it", file=sys.stderr)
                print("\n".join(list(difflib.unified_diff(old[0].split("\n"), new[0].split("\n"), "there", "made", lineterm=""))[:20]), file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
