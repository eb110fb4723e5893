"""Writes the rows of the networks that noisefloor runs into bench/problems/*.csv, from what the program says they ask for.

usage: python3 bench/problems/update.py [PROGRAM]      (default: scripts/noisefloor)

The networks are those of network.csv. Each has the problems of its graph under its own name, a training step all but those of OF_A_RECIPE; of UNFUSED
those of the published network, layer by layer, under NAME-unfused-bBATCH; and under NAME-folded-bBATCH what only plans on sm_90a launch, where skip connections and norms are folded into other nodes.

After a change to a network's builder or to the fusions: tests/bench/pipeline/network_problems_test.cpp holds the files to them. Rows of other networks stay
as they are, and so do those of ops that a forward pass does not have (sampler_step, q_sample, network).
"""

import argparse
import csv
import pathlib
import subprocess
import sys

NOT_OF_A_PASS = {"sampler_step", "q_sample", "network", "sets", "not_written"}
OF_A_RECIPE = {"training_batch", "grad_norm", "adamw"}  # whose fields say how a network is trained: by hand
UNFUSED = {"adm64", "edm-cifar", "unetcu"}  # those of Stable Diffusion were read off diffusers, and stay as they are
FOLDER = pathlib.Path(__file__).resolve().parent
DTYPE = "bf16"  # of the networks; nodes of another dtype say so in a column


def counted(program, network, batch, *options):
    """(op, dtype, problem) -> count."""
    command = [program, "problems", network, "--batch", batch, "--dtype", DTYPE, *options]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with exit code {answer.returncode}: {answer.stderr.strip()}")
    return {(line["op"], line["dtype"], line["problem"]): line["count"] for line in csv.DictReader(answer.stdout.splitlines())}


def problems_of(program, network):
    """The names of a row of network.csv, each with its problems and their counts."""
    label, name, batch = network["network"], network["name"], network["batch"]
    if network["training"]:
        return {label: {problem: count for problem, count in counted(program, name, batch, "--training").items() if problem[0] not in OF_A_RECIPE}}
    family, built = label.removesuffix(f"-b{batch}"), counted(program, name, batch)
    folded = counted(program, name, batch, "--folded")
    sets = {label: built, f"{family}-folded-b{batch}": {problem: count for problem, count in folded.items() if problem not in built}}
    if name in UNFUSED:
        sets[f"{family}-unfused-b{batch}"] = counted(program, name, batch, "--unfused")
    return sets


def row_of(network, dtype, problem, count):
    """{column: text}"""
    row = {"network": network, **dict(pair.split("=", 1) for pair in problem.split(",")), "count": count}
    return row if dtype == DTYPE else {**row, "dtype": dtype}


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
    program = parser.parse_args().program
    with open(FOLDER / "network.csv", newline="") as stream:
        networks = list(csv.DictReader(stream))
    sets, generated = {}, {}
    for network in networks:
        sets.update(problems_of(program, network))
    for name, problems in sets.items():
        for (op, dtype, problem), count in problems.items():
            generated.setdefault(op, []).append(row_of(name, dtype, problem, count))
    for file in sorted(FOLDER.glob("[!.~#]*.csv")):
        if file.stem not in NOT_OF_A_PASS | OF_A_RECIPE:
            update(file, generated.pop(file.stem, []), set(sets))
    if generated:
        sys.exit(f"no file for {', '.join(sorted(generated))}")


if __name__ == "__main__":
    main()
