"""tools/publish: shards that are cut short and carried on, the folder that is made of them, and its list against the problem files."""

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NOISEFLOOR_BINARY", "")
LIST = """# a comment
every  -  --device host --problems problems --kinds host --pytorch off
core   2  --ops gemm --networks all
rest   1  --ops elementwise --networks all
"""
REST = 10  # problems of the last step
ALL = 5 + REST
ENVIRONMENT = {"XDG_CACHE_HOME": str(Path.home() / ".cache"), **os.environ}  # ceilings are measured once for all of these folders
pytestmark = pytest.mark.skipif(not Path(PROGRAM).is_file(), reason="NOISEFLOOR_BINARY names no program")


class Machine:
    def __init__(self, folder):
        self.folder = folder
        (folder / "problems").mkdir()
        (folder / "list").write_text(LIST)
        (folder / "problems/gemm.csv").write_text("network,m,n,k,count\n" + "".join(f"mini,{m},16,24,1\n" for m in range(1, 6)))
        (folder / "problems/elementwise.csv").write_text("network,op,hw,channels,count\n" + "".join(f"mini,silu,{hw},8,1\n" for hw in range(20, 20 + REST)))

    def command(self, command, *more):
        return [sys.executable, ROOT / "tools/publish", command, "--list", "list", "--shards", "shards", *more]

    def run(self, command, *more):
        return subprocess.run(self.command(command, *more), cwd=self.folder, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)

    def pages(self):
        return self.run("pages", "--out", "made")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def rows(folder):
    with open(folder / "sweep.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_published_folder_of_all_shards(machine):
    assert machine.run("measure", "--only", "core", "--gpus", "7,9").returncode == 0
    staged = machine.folder / "shards/.reused.12-0123456789abcdef.partial"
    staged.mkdir()  # of another machine
    (machine.folder / "shards/notes.partial").mkdir()
    status = machine.run("status")
    [said] = status.stderr.splitlines()
    assert staged.name in said and "process 12 of machine 0123456789abcdef" in said and staged.is_dir()
    status = status.stdout.splitlines()
    assert status[0].startswith("core") and "2 of 2 whole" in status[0] and "0 of 1 whole; open (* begun): 1" in status[1]
    made = machine.folder / "made"
    made.mkdir()
    for name in ("README.md", "samples.jsonl.gz", "kernels.csv"):  # published before
        (made / name).write_text("old\n")
    assert machine.run("measure").returncode == 0
    result = machine.pages()
    assert result.returncode == 0 and not result.stdout, result.stderr
    assert len(rows(made)) == ALL and (made / "kernels.csv").read_text() == "old\n"
    names = {file.name for file in made.iterdir()} - {"report.png"}  # drawn where there is a browser
    assert names == {"README.md", "ceilings.csv", "env.json", "kernels.csv", "networks.csv", "plan.csv", "roofline.png", "samples.jsonl.gz", "sweep.csv", "totals.csv"}
    environment = json.loads((made / "env.json").read_text())
    assert environment["merged_from"] == ["core 1/2", "core 2/2", "rest 1/1"] and str(machine.folder) not in json.dumps(environment)
    assert f"| `ok` | {ALL} |" in (made / "README.md").read_text()


def test_a_shard_that_was_cut_short_goes_on(machine):
    with subprocess.Popen(machine.command("measure", "--only", "rest"), cwd=machine.folder, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as session:
        next(line for line in session.stderr if f"[ 3/{REST}]" in line)  # behind it, the first problem's row is on file
        session.send_signal(signal.SIGTERM)
        assert "what it measured is kept" in session.stderr.read()
    assert session.returncode == 2
    assert "open (* begun): 1*" in machine.run("status").stdout
    file = machine.folder / "shards/rest/01-of-01/sweep.csv"
    whole = file.read_text().rpartition("\n")[0] + "\n"
    file.write_text(whole + whole.splitlines()[-1][:-3])  # cut within a write
    begun = len(whole.splitlines()) - 1
    assert 0 < begun < REST
    result = machine.pages()
    assert result.returncode == 1 and result.stdout.splitlines() == ["missing: core 1/2", "missing: core 2/2", "missing: the rest of rest 1/1"]
    assert "missing" not in result.stderr, "told once"
    assert len(rows(machine.folder / "made")) == begun
    assert "Missing: 3 shards" in (machine.folder / "made/README.md").read_text()
    assert machine.run("measure", "--only", "rest").returncode == 0
    assert len(rows(machine.folder / "shards/rest/01-of-01")) == REST
    assert machine.run("pages", "--out", "made", "--shards", "shards", "--only", "rest", "--over").returncode == 0
    assert json.loads((machine.folder / "made/env.json").read_text())["missing"] == ["core 1/2", "core 2/2"], "what never was there stays missing"
    (file.parent / "cases.csv").unlink()
    result = machine.run("measure", "--only", "rest")
    assert result.returncode == 1 and "rest 1/1: shards/rest/01-of-01 has rows and no cases.csv" in result.stderr, result.stderr
    result = machine.pages()
    assert result.returncode == 2 and "rest 1/1: shards/rest/01-of-01 has rows and no cases.csv" in result.stderr, result.stderr


def test_what_is_published_is_brought_up_to_date(machine):
    """By --reuse of the published results, and of a folder of shards: what is true stays, with its date, and the folder says so."""
    assert machine.run("measure").returncode == 0 and machine.pages().returncode == 0
    made, old = machine.folder / "made", {"commit": "0123456789ab", "measured_utc": "2026-01-01T00:00:00Z"}
    table = [{**row, **old} for row in rows(made)]
    table[0]["signature"] = "of other code"
    pandas.DataFrame(table).to_csv(made / "sweep.csv", index=False)
    environment = json.loads((made / "env.json").read_text())
    (made / "env.json").write_text(json.dumps({**environment, "commit": old["commit"]}))
    assert " GPU-minutes" in machine.run("estimate", "--reuse", "made").stdout
    assert machine.run("measure", "--reuse", "made", "--shards", "second").returncode in (0, 1)  # 1: of a busy machine a check may differ
    assert machine.run("pages", "--out", "made", "--shards", "second").returncode in (0, 1)
    kept = [row["problem"] for row in rows(made) if row["commit"] == old["commit"]]
    assert REST / 2 < len(kept) < ALL == len(rows(made)) and table[0]["problem"] not in kept
    said = (made / "README.md").read_text()
    assert f"{len(kept)} of its rows were kept" in said and "2026-01-01" in said and old["commit"] in said
    assert json.loads((made / "env.json").read_text())["reused_from"] == "an earlier run"
    assert machine.run("measure", "--reuse", "second", "--shards", "third", "--only", "core").returncode in (0, 1)
    assert old["measured_utc"] in {row["measured_utc"] for shard in machine.folder.glob("third/core/*-of-*") for row in rows(shard)}
    assert machine.run("pages", "--out", "made", "--shards", "third", "--only", "core", "--over").returncode in (0, 1)
    assert len(rows(made)) == ALL, "of step rest nothing is in third"
    result = machine.run("measure", "--reuse", "problems")
    assert result.returncode == 2 and "problems is neither" in result.stderr
    shard = next(machine.folder.glob("second/core/*/env.json"))
    shard.write_text(json.dumps(json.loads(shard.read_text()) | {"doubted": "a case +9.9 %"}))
    result = machine.run("pages", "--out", "made", "--shards", "second")
    assert result.returncode == 1 and "a case +9.9 %" in result.stdout and "a case" in json.loads((made / "env.json").read_text())["doubted"]


ROWS = [  # op, kind, variant, the kernel that it launches, minutes
    ("attention", "ptx", "ptx_sm90a", "attention::flash<1>", 2), ("attention", "baseline", "cudnn", "cudnn::sdpa", 3), ("gemm", "ptx", "ptx_sm90a", "bulk<gemm::tile>", 4),
    ("network", "network", "plan_own", "attention::flash<1>", 10), ("network", "network", "plan_fastest", "attention::flash<1>", 1)]


@pytest.mark.parametrize("changed, minutes", [
    (set(), 0), ({"gemm"}, 4), ({"cudnn"}, 3), ({"attention::flash"}, 2 + 1 + 1 + 9 * (2 + 7 / 20) / 9)])  # 9 of the plan's 10 minutes chose among 9
def test_the_estimate_is_of_what_launches_a_changed_kernel(tmp_path, monkeypatch, changed, minutes):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import estimate
    table = [{"op": op, "problem": "x", "dtype": "bf16", "variant": variant, "kind": kind, "networks": "net-b1:1", "status": "ok", "reason": "", "spent_s": 60 * spent}
             for op, kind, variant, _, spent in ROWS]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps({**row, "kernels": [kernel]}) + "\n" for row, (*_, kernel, _) in zip(table, ROWS)))
    text = estimate.estimate_text(tmp_path, table, changed, {(row["op"], "x/bf16") for row in table} | {("gemm", "new/bf16")})
    assert f"\n{minutes:.1f} GPU-minutes" in text and "1 problems" in text, text
    with pytest.raises(LookupError, match="'conv2d'"):
        estimate.estimate_text(tmp_path, table, {"conv2d"}, set())


def test_shards_of_two_builds_are_refused(machine):
    assert machine.run("measure", "--only", "core").returncode == 0
    file = machine.folder / "shards/core/02-of-02/env.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "commit": "another"}))
    for command in ("measure", "pages"):
        result = machine.run(command, *(["--out", "made"] if command == "pages" else []))
        assert result.returncode == 2 and "another" in result.stderr, result.stderr
    assert not (machine.folder / "made").exists() and not (machine.folder / "shards/rest").exists()


def test_what_is_no_published_folder_is_left_alone(machine):
    assert machine.run("measure", "--only", "core").returncode == 0
    result = machine.run("pages", "--out", "problems")
    assert result.returncode == 2 and "not a published folder" in result.stderr
    assert sorted(file.name for file in (machine.folder / "problems").iterdir()) == ["elementwise.csv", "gemm.csv"]


@pytest.mark.parametrize("arguments, says", [
    (["measure", "--only", "conv"], "unknown 'conv'; the steps are core, rest"),
    (["measure", "--minutes", "0"], "--minutes is 0"),
    (["measure", "--gpus", "0,1,0"], "--gpus '0,1,0'"),
    (["status"], "there is no folder shards"),
])
def test_wrong_arguments_are_named(machine, arguments, says):
    result = machine.run(*arguments)
    assert result.returncode == 2 and says in result.stderr


def test_a_program_or_a_list_that_is_none(machine, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "NOISEFLOOR_BINARY", str(machine.folder / "none"))
    result = machine.run("measure")
    assert result.returncode == 2 and str(machine.folder / "none") in result.stderr
    (machine.folder / "list").write_text("core --ops gemm\n")
    result = machine.run("measure")
    assert result.returncode == 2 and "list: each line needs" in result.stderr


def listed(*arguments):
    result = subprocess.run([PROGRAM, "sweep", "--device", "host", *arguments, "--benchmark_list_tests"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def problems(cases):
    return {case.rsplit("/", 1)[0] for case in cases}


def test_the_list_has_every_problem_once():
    lines = [line.split() for line in (ROOT / "tools/publish.txt").read_text().splitlines() if line and not line.startswith("#")]
    every, *steps = [words[2:] for words in lines if not words[1].startswith("+")]
    cases = [case for arguments in steps for case in listed(*every, *arguments)]
    assert len(cases) == len(set(cases)), "a case is in two steps"
    wanted = listed(*every, "--networks", "all"), listed(*every, "--networks", "adm64-b1,stream", "--dtypes", "fp16,fp32")
    assert problems(cases) >= problems(wanted[0]) | problems(wanted[1])
    kinds = {json.loads(row)["kind"] for row in subprocess.run([PROGRAM, "list", "variants", "--format", "json"], capture_output=True, text=True).stdout.splitlines()}
    assert set(every[every.index("--kinds") + 1].split(",")) == kinds - {"host"}, "all of a GPU"


# What a published folder has behind a variant that stands before it, of that commit alone, and why the order stays.
BEHIND = {
    ("nvidia-h100-80gb-hbm3", "669a945c19cc"): {
        # A block took more units than an SM's share of them. Mended since: docs/experiments/runs/2026-11-28-beside-the-libraries.md.
        ("temporal_attention", "tensor_core_sm80", "ptx_sm90a")},
    ("nvidia-h200", "ac17973a15e6"): {
        # The convolutions share their variants, and conv2d and conv_transpose2d bear the order out.
        ("conv3d_temporal", "ptx_sm90a", "ptx_sm90a_halo"),
        # A warp per column of D is made for one row or two. With 8 rows and thousands of columns tiles are faster.
        ("gemm", "ptx_sm90a", "ptx_sm90a_small_m"),
        # Averaged over 2x2 blocks: PTX is faster on one image and as fast on stream's, slower on networks' batches of 8 to 64.
        ("resample", "tensor_core_sm80", "ptx_sm90a"),
        # The only problem that both have: warm 7 % slower, cold 30 % faster.
        ("timestep_embedding", "tensor_core_sm80", "ptx_sm90a")},
    ("nvidia-h200-built", "5238c6f156c2"): {
        # The decoders' images of 100 MB and more weigh most. There `tiled` is as fast as any, and a launch of all SMs is faster than clusters.
        ("groupnorm", "tiled", "tensor_core_sm80"), ("groupnorm", "tiled", "ptx_sm90a_grid"), ("groupnorm", "tensor_core_sm80", "ptx_sm90a_grid"),
        ("groupnorm", "ptx_sm90a_grid", "ptx_sm90a"),
        # One problem, and four of a few kilobytes: one launch's latency.
        ("elementwise", "naive", "tensor_core_sm80"), ("sampler_step", "naive", "tiled")},
}


def test_variants_are_in_order_of_what_is_published():
    """Best last: over the problems that two variants run, the later one takes no longer in total, warm, or as long (within 1 %)."""
    order = {}
    for line in subprocess.run([PROGRAM, "list", "variants", "--format", "json"], capture_output=True, text=True).stdout.splitlines():
        order.setdefault(json.loads(line)["op"], []).append(json.loads(line)["variant"])
    folders = [file.parent for file in (ROOT / "reports/recorded").glob("*/sweep.csv")]
    assert {folder.name for folder in folders} >= {name for name, _ in BEHIND}
    for folder in folders:
        table = pandas.read_csv(folder / "sweep.csv", low_memory=False)
        behind, compared = set(), 0
        for op, ok in table[(table["status"] == "ok") & (table["kind"] != "baseline")].groupby("op"):
            times = ok.pivot(index=["problem", "dtype"], columns="variant", values="time_warm_us")
            for before, after in itertools.combinations([name for name in order[op] if name in times], 2):
                both = times[[before, after]].dropna()
                compared += len(both)
                if both[after].sum() > 1.01 * both[before].sum():
                    behind.add((op, before, after))
        assert (compared > 300 or set(table["op"]) == {"network"}) and behind == BEHIND.get((folder.name, table["commit"][0]), set()), folder
