#!/usr/bin/env python3
"""What `noisefloor gate` says of equal builds, and of rows that are slower by a known share. Run by hand; no test.

usage: prove_gate.py cases N FOLDER                problems of N rows, over all ops and lengths; prints the options of sweep
       prove_gate.py judge NOISEFLOOR OUT RUN...   five sweeps of one build or more; needs no GPU

Equal: all pairs of runs, by the noise of the other runs (gate calibrate), and by what is assumed where nothing was measured. What regressed
is asked again of a third run (--confirm). Slowed: the samples of the second run of each pair times 1.05, then 1.03; the clock stays, so cycles
grow alike. OUT/proof.md gets the table, OUT/wrong.csv the equal rows that regressed and the slowed ones that passed.

Exit code: 0 as asked: of 30,480 equal rows 8 regressed at most, none of them confirmed; of rows slowed by 5 % nine in ten found, and none
passed. 1 it is not so; 2 it could not be done.
"""

import gzip
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

RECORDED = Path(__file__).resolve().parents[2] / "reports" / "recorded" / "nvidia-h200" / "sweep.csv"
KEY = "op", "dtype", "problem", "variant"
TIMES = "time_cold_us", "time_warm_us", "time_warm_serial_us"
COLUMNS = *KEY, "kind", "networks", "status", "device", *TIMES, "samples", "sm_clock_mhz", "warm_clock_mhz", "buffer_slots", "places", "throttle", "load", "commit"
SAMPLES = "cold_us", "warm_us", "warm_serial_us"
MOST_SECONDS = 1.5  # that a row took in published results
VERDICTS = {"failure": "regressed", "skipped": "ambiguous", "": "passed"}  # JUnit does not tell an improved row from one that passed


def die(text):
    print(f"prove_gate: error: {text}", file=sys.stderr)
    sys.exit(2)


def cases(count, folder):
    """One of each op and third of a decade of its time, then another, ..."""
    rows = pd.read_csv(RECORDED, low_memory=False).query("status == 'ok' and dtype == 'bf16' and op != 'network' and spent_s <= @MOST_SECONDS")
    rows = rows[rows["variant"].str.startswith("ptx")].sample(frac=1, random_state=1)
    groups = [rows["op"], (3 * np.log10(rows["time_cold_us"])).astype(int)]
    chosen = rows.assign(turn=rows.groupby(groups).cumcount()).sort_values("turn", kind="stable").head(count)
    folder.mkdir(parents=True)
    for op, of_op in chosen.drop_duplicates(["op", "problem"]).groupby("op"):
        problems = pd.DataFrame([dict(field.split("=") for field in text.split(",")) for text in of_op["problem"]])
        problems.assign(network="gate", count=1).to_csv(folder / f"{op}.csv", index=False)
    print(f"--problems {folder} --networks gate --variants {','.join(sorted(set(chosen['variant'])))}")


def slowed(run, out, factor):
    """A copy whose launches took `factor` times as long."""
    out.mkdir(parents=True)
    rows = pd.read_csv(run / "sweep.csv", dtype=str, keep_default_na=False)
    rows = rows[[name for name in COLUMNS if name in rows]]
    for name in rows.columns.intersection(TIMES):
        rows[name] = [f"{float(us) * factor:.6g}" if us else "" for us in rows[name]]
    rows.to_csv(out / "sweep.csv", index=False)
    packed = run / "samples.jsonl.gz"
    with gzip.open(packed, "rt") if packed.exists() else open(run / "samples.jsonl") as file, open(out / "samples.jsonl", "w") as slow:
        for line in file:
            row = json.loads(line)
            slow.write(json.dumps(row | {name: [us * factor for us in row[name]] for name in SAMPLES if name in row}) + "\n")
    (out / "env.json").write_bytes((run / "env.json").read_bytes())
    return out


def program(*arguments):
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


def gate(noisefloor, out, baseline, candidate, *more):
    """By row: regressed, ambiguous or passed."""
    report = out / "gate.xml"
    report.unlink(missing_ok=True)
    _, said = program(noisefloor, "gate", "--baseline", baseline, "--candidate", candidate, "--junit", report, *more)
    if not report.exists():
        die(f"gate of {candidate}: {said}")
    cases = [case for case in ElementTree.parse(report).iter("testcase") if not case.get("classname").startswith("launches.")]
    return {f"{case.get('classname')} {case.get('name')}": VERDICTS[case[0].tag if len(case) else ""]
            for case in cases if not (len(case) and case[0].tag == "error")}


def judge(noisefloor, out, *runs):
    out, runs = Path(out), [Path(run) for run in runs]
    if len(runs) < 5 or out.exists():
        die("judge takes five runs, and an OUT that is not there yet")
    slow = {(percent, run): slowed(run, out / f"{i}-slowed-{percent}", 1 + percent / 100) for i, run in enumerate(runs) for percent in (5, 3)}
    found, wrong = defaultdict(Counter), []
    for a, b in combinations(runs, 2):
        others = [run for run in runs if run not in (a, b)]
        kept = out / "baseline"
        shutil.rmtree(kept, ignore_errors=True)
        code, said = program(noisefloor, "gate", "accept", "--baseline", kept, "--candidate", a, "--force")
        code = code or (measured := program(noisefloor, "gate", "calibrate", "--baseline", kept, *others))[0]
        if code:
            die(f"{a.name}: {said or measured[1]}")
        for noise, baseline in (("measured", kept), ("assumed", a)):
            for percent, candidate in ((0, b), (5, slow[5, b]), (3, slow[3, b])):
                verdicts = gate(noisefloor, out, baseline, candidate)
                found[noise, percent] += Counter(verdicts.values())
                bad = "passed" if percent else "regressed"
                wrong += [(noise, percent, a.name, b.name, row) for row, verdict in verdicts.items() if verdict == bad and percent != 3]
                if not percent and "regressed" in verdicts.values():
                    again = gate(noisefloor, out, baseline, candidate, "--confirm", others[0])
                    found[noise, "confirmed"]["regressed"] += list(again.values()).count("regressed")
    lines = ["| noise | rows | compared | regressed | ambiguous | passed |", "|---|---|---:|---:|---:|---:|"]
    for (noise, percent), counts in sorted(found.items(), key=str):
        what = {0: "equal", "confirmed": "equal, asked again"}.get(percent, f"slowed by {percent} %")
        lines.append(f"| {noise} | {what} | {sum(counts.values())} | {counts['regressed']} | {counts['ambiguous']} | {counts['passed']} |")
    (out / "proof.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    pd.DataFrame(wrong, columns=["noise", "percent", "baseline", "candidate", "row"]).to_csv(out / "wrong.csv", index=False)
    equal, five = found["measured", 0], found["measured", 5]
    good = 30480 * equal["regressed"] <= 8 * sum(equal.values()) and not found["measured", "confirmed"]["regressed"]
    return 0 if good and 10 * five["regressed"] >= 9 * sum(five.values()) and not five["passed"] else 1


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "cases" and sys.argv[2].isdigit():
        cases(int(sys.argv[2]), Path(sys.argv[3]))
    elif len(sys.argv) > 4 and sys.argv[1] == "judge":
        sys.exit(judge(*sys.argv[2:]))
    elif set(sys.argv[1:]) & {"-h", "--help"}:
        print(__doc__)
    else:
        die(__doc__.split("\n\n")[1])
