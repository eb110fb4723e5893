"""Writes the rows of the networks that noisefloor runs into bench/problems/*.csv, from what the program says they ask for.

usage: python3 bench/problems/update.py [PROGRAM] [--new NETWORK-bBATCH]      (default: scripts/noisefloor)

The networks are those of network.csv, at the batches that the files have them at; --new brings one in.

After a change to a network's builder: tests/bench/pipeline/network_problems_test.cpp holds the files to the builders. Rows of other networks stay as they
are, and so do those of ops that a forward pass does not have (sampler_step, q_sample, network).
"""

import argparse
import csv
import pathlib
import subprocess
import sys

NOT_OF_A_PASS = {"sampler_step", "q_sample", "network", "sets"}
FOLDER = pathlib.Path(__file__).resolve().parent
DTYPE = "bf16"  # of the networks; nodes of another dtype say so in a column


def problems_of(program, network, batch):
    """op -> its rows, as {column: text}."""
    command = [program, "problems", network, "--batch", str(batch), "--dtype", DTYPE]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with exit code {answer.returncode}: {answer.stderr.strip()}")
    rows = {}
    for line in csv.DictReader(answer.stdout.splitlines()):
        row = {"network": f"{network}-b{batch}", **dict(pair.split("=", 1) for pair in line["problem"].split(",")), "count": line["count"]}
        if line["dtype"] != DTYPE:
            row["dtype"] = line["dtype"]
        rows.setdefault(line["op"], []).append(row)
    return rows


def swept():
    """(network, batch) of the networks that the program runs, where a file of a pass's op has it."""
    found = {}
    with open(FOLDER / "network.csv", newline="") as stream:
        known = {row["network"].rpartition("-b")[0] for row in csv.DictReader(stream)}
    for file in sorted(FOLDER.glob("[!.~#]*.csv")):
        with open(file, newline="") as stream:
            for row in csv.DictReader(stream):
                name, _, batch = row["network"].rpartition("-b")
                if file.stem not in NOT_OF_A_PASS and name in known and batch.isdigit():
                    found[name, int(batch)] = None
    return sorted(found)


def update(file, generated, names):
    """Puts the generated rows where the first of their network stood, or before all others."""
    with open(file, newline="") as stream:
        reader = csv.DictReader(stream)
        header, old = list(reader.fieldnames), list(reader)
    at = next((i for i, row in enumerate(old) if row["network"] in names), 0)
    rows = [row for row in old[:at] if row["network"] not in names] + generated + [row for row in old[at:] if row["network"] not in names]
    columns = list(header)
    columns[-1:-1] = [column for column in dict.fromkeys(column for row in generated for column in row) if column not in columns]
    with open(file, "w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(FOLDER.parents[1] / "scripts" / "noisefloor"))
    parser.add_argument("--new", metavar="NETWORK-bBATCH")
    arguments = parser.parse_args()
    networks, generated = swept(), {}
    if arguments.new:
        name, _, batch = arguments.new.rpartition("-b")
        if not name or not batch.isdigit():
            parser.error(f"--new {arguments.new}: it should be like adm64-b8")
        networks.append((name, int(batch)))
    for network, batch in networks:
        for op, rows in problems_of(arguments.program, network, batch).items():
            generated.setdefault(op, []).extend(rows)
    for file in sorted(FOLDER.glob("[!.~#]*.csv")):
        if file.stem not in NOT_OF_A_PASS:
            update(file, generated.pop(file.stem, []), {f"{network}-b{batch}" for network, batch in networks})
    if generated:
        sys.exit(f"no file for {', '.join(sorted(generated))}")


if __name__ == "__main__":
    main()
