"""The problems of one call of a network."""

import collections
import csv
import re

import pytest

from tests.cli.program import needs_program, run
from tests.bench.python import captured

pytestmark = needs_program


def test_problems_are_those_of_the_size():
    def problems(*arguments):
        result = run("problems", *arguments)
        assert result.returncode == 0, result.stderr
        return list(csv.DictReader(result.stdout.splitlines()))

    assert problems("adm64") == problems("adm64", "--height", 64, "--width", 64)
    ragged = problems("adm64", "--height", 24, "--width", 40, "--batch", 2)
    assert len(problems("adm64", "--batch", 2)) == len(ragged)
    sides = {re.search(r"h=(\d+),w=(\d+)", row["problem"]).groups() for row in ragged if row["op"] == "conv2d"}
    assert sides == {("24", "40"), ("12", "20"), ("6", "10"), ("3", "5")}
    text = problems("sd15", "--tokens", 154, "--height", 32, "--width", 40)
    assert {re.search(r"seq_kv=(\d+)", row["problem"])[1] for row in text if row["op"] == "attention"} == {"154", "1280", "320", "80", "20"}
    for sizes, says in ((("--height", 60), "height 60: adm64 takes multiples of 8; the nearest are 56 and 64"),
                        (("--frames", 2), "frames 2: adm64 makes single images"), (("--tokens", 1), "tokens 1: adm64 takes no text"),
                        (("--height", 65536, "--width", 65536), "node ")):
        result = run("problems", "adm64", *sizes)
        assert result.returncode == 2 and says in result.stderr and result.stdout == "", result


def counts(network):
    result = run("problems", network, "--batch", 2, "--dtype", "fp32", "--unfused")
    assert result.returncode == 0, result.stderr
    return collections.Counter({(row["op"], row["problem"]): int(row["count"]) for row in csv.DictReader(result.stdout.splitlines())})


def fields(text):
    return {name: int(value) for name, value in (pair.split("=") for pair in text.split(",")) if value.isdigit()}


def in_full(table, frames=14, width=1024, embedding=1280):
    """svd as diffusers computes it: ours projects what belongs to a video once for it, attends to no single key, which is not a choice, and has the
    shares of a blend in two last projections instead of a blend."""
    for (op, text), count in list(table.items()):
        f = fields(text)
        if op == "conv3d_temporal":  # two a residual block, whose embedding is repeated for each frame, and whose blend is a sum
            table["gemm", f"m={f['batch']},n={f['cout']},k={embedding}"] -= count // 2
            table["gemm", f"m={f['batch'] * frames},n={f['cout']},k={embedding}"] += count // 2
            table["elementwise", f"op=add,hw={f['batch'] * frames * f['hw']},channels={f['cout']}"] += count // 2
        elif op == "attention" and f["seq_q"] == frames:  # one a transformer, of a spatial block and a temporal one
            c, rows, images, videos = f["heads"] * f["dim"], f["batch"] * frames, 2 * frames, 2
            table["gemm", f"m={videos},n={c},k={width},bias=0"] -= 2 * count
            table["gemm", f"m={videos},n={c},k={c}"] -= 2 * count
            table["gemm", f"m={rows},n={c},k={c}"] += 2 * count - count
            table["gemm", f"m={rows},n={c},k={c},bias=0"] += 2 * count
            table["layernorm", f"rows={rows},channels={c}"] += 2 * count
            table["elementwise", f"op=add,hw={rows},channels={c}"] += 2 * count
            for batch, length in ((images, rows // images), (f["batch"], frames)):
                table["gemm", f"m={batch},n={c},k={width},bias=0"] += 2 * count
                table["attention", f"batch={batch},heads={f['heads']},seq_q={length},seq_kv=1,dim={f['dim']}"] += count
    for op, text in list(table):  # the scheduler's scaling, and what repeats the embedding for the frames
        if op == "edm_precondition" or (op == "resample" and "n=2,h=1,w=1" in text):
            del table[op, text]
    return +table


MORE = {  # activations of the timestep's embedding, by rows: ours, diffusers'; and diffusers' transformers
    "sd15": ({2: (2, 23)}, 16),
    "sdxl": ({2: (3, 19)}, 11),
    "svd": ({2: (3, 2), 28: (5, 49)}, 16),
}


@pytest.mark.parametrize("network", captured.NETWORKS)
def test_unfused_is_what_capture_finds_in_diffusers(network):
    """Each problem and its count, of all that was captured, but what diffusers computes beside what our networks do:

    * SiLU of the timestep's embedding in each residual block, where ours has it once;
    * a copy to channels-first behind each transformer, where ours stays channels-last;
    * in svd what in_full() says.
    """
    ours, theirs = counts(network), captured.table_of(network)
    if network == "svd":
        ours = in_full(ours)
    activations, transformers = MORE[network]
    for rows, each in activations.items():
        name = "elementwise", f"op=silu,hw={rows},channels=1280"
        assert (ours.pop(name), theirs.pop(name)) == each
    copies = [key for key in theirs if "op=nhwc_to_nchw" in key[1]]
    assert sum(map(theirs.pop, copies)) == transformers
    assert ours == theirs
