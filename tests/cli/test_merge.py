"""A sweep that is split into shards, and the shards made one run folder again."""

import csv
import json
import shutil

import pytest

from tests.cli.program import edit_json, needs_program, read_table, rows, run, write_rows
from tests.cli.split_sweep import SIZES, set_gpu, sizes, split, swept  # noqa: F401

pytestmark = needs_program


def test_merged_parts_are_the_sweep_that_was_not_split(split):
    result = split.merge(shards=(3, 1, 2))  # in any order
    assert result.returncode == 0, result.stderr
    merged = split.folder / "merged"
    assert sizes(merged) == list(SIZES)
    assert {row["status"] for row in rows(merged)} == {"ok"}
    lines = {line for index in (1, 2, 3) for line in (split.folder / f"shard{index}" / "samples.jsonl").read_text().splitlines()}
    assert set((merged / "samples.jsonl").read_text().splitlines()) == lines
    environment = json.loads((merged / "env.json").read_text())
    assert len(environment["merged_from"]) == len(environment["command_lines"]) == 3
    assert not (merged / "shard.json").exists()
    assert len((merged / "cases.csv").read_text().splitlines()) == 1 + len(SIZES)
    assert run("roofline", merged).returncode == 0
    # What was merged is a run folder like any other: nothing of the whole sweep is left to do.
    again = split.sweep(merged)
    assert again.returncode == 0 and "5 cases are already in" in again.stderr


def test_ceilings_are_the_median(split):
    for index, factor in ((1, 1), (2, 7), (3, 2)):
        file = split.folder / f"shard{index}" / "ceilings.csv"
        lines = [line.split(",") for line in file.read_text().splitlines()]
        for line in lines[1:]:
            line[1] = str(100 * factor)
        file.write_text("".join(",".join(line) + "\n" for line in lines))
    assert split.merge().returncode == 0
    assert {float(row["value"]) for row in read_table(split.folder / "merged" / "ceilings.csv")} == {200}


def test_parts_are_of_one_build_and_of_one_version_of_each_library(split):
    first = {"pytorch": "2.11.0", "triton": "3.6.0", "cudnn": "9.13.0", "plugin mine.so": "old", "peer_quack": "quack-kernels 0.6.5"}
    edit_json(split.folder / "shard2" / "env.json", **first)  # the others have none of its rows
    assert split.merge().returncode == 0
    assert json.loads((split.folder / "merged" / "env.json").read_text())["pytorch"] == "2.11.0"
    for changed, says in (({"pytorch": "2.12.0"}, 'shard3: is of pytorch "2.12.0", '),
                          ({"cudnn": "9.14.1"}, 'shard3: is of cudnn "9.14.1", '),
                          ({"peer_quack": "quack-kernels 0.7.0"}, 'shard3: is of peer_quack '),
                          ({"plugin mine.so": "new"}, 'shard3: is of plugin mine.so "new", '),
                          ({"build_type": "Debug"}, 'shard3: is of build_type "Debug", ')):
        edit_json(split.folder / "shard3" / "env.json", **first | changed)
        result = split.merge("--replace")
        assert result.returncode == 2 and says in result.stderr, result.stderr
    assert sizes(split.folder / "merged") == list(SIZES), "what was merged before stays"


def test_what_is_measured_again_replaces_problems_of_an_earlier_run(split):
    """Of any commit, for a published run is brought up to date by what changed."""
    earlier, out = split.folder / "shard2", split.folder / "merged"
    spoil_commit(split, 2, "0123456789ab")
    table = rows(earlier)
    of_two = sizes(earlier)
    extra = [row | {"problem": rows(split.folder / "shard1")[0]["problem"], "variant": "tiled", "status": "unsupported_problem"} for row in table[:1]]
    write_rows(earlier, table + extra)  # of a problem that shard 1 has, a variant that it has not
    edit_json(earlier / "env.json", peer_made_up="made-up 1.0")
    merge = ["merge", "--partial", split.folder / "shard1", split.folder / "shard3", "--out", out]
    result = run(*merge, "--over", earlier)
    assert result.returncode == 0, result.stderr
    assert sorted(sizes(out)) == list(SIZES) and "tiled" not in {row["variant"] for row in rows(out)}
    assert {int(row["problem"].split(",")[0][2:]) for row in rows(out) if row["commit"] == "0123456789ab"} == set(of_two)
    environment = json.loads((out / "env.json").read_text())
    assert environment["commit"] != "0123456789ab" and environment["reused_from"].endswith("shard2")
    assert environment["peer_made_up"] == "made-up 1.0", "kept rows are of it"
    assert run("roofline", out).returncode == 0
    for told in ({"driver": "1.2"}, {"sm_count": 7}):
        kept = json.loads((earlier / "env.json").read_text())
        edit_json(earlier / "env.json", **told)
        result = run(*merge, "--replace", "--over", earlier)
        assert result.returncode == 2 and f"shard2: is of {next(iter(told))} " in result.stderr, result.stderr
        (earlier / "env.json").write_text(json.dumps(kept))
    result = run(*merge, "--replace", "--over", split.folder / "shard1")
    assert result.returncode == 2 and "twice" in result.stderr


def test_what_an_earlier_run_lacked_stays_missing(split, tmp_path):
    anew, whole, out = tmp_path / "anew", tmp_path / "whole", tmp_path / "out"
    assert split.sweep(anew, "--dtypes", "fp16").returncode == 0 and split.sweep(whole).returncode == 0
    write_rows(split.folder / "shard2", rows(split.folder / "shard2")[:-1])
    assert split.merge("--partial", shards=(1, 2)).returncode == 0
    result = run("merge", anew, "--out", out, "--over", split.folder / "shard1")
    assert result.returncode == 0 and "missing: shard 2, 3 of 3" in result.stderr, result.stderr
    write_rows(whole, rows(whole)[:-1])
    lacked = ["shard 3 of 3", f"1 of the 4 cases of {split.folder / 'merged'}"]
    for earlier, missing in ((split.folder / "merged", lacked), (whole, [f"1 of the 5 cases of {whole}"])):
        result = run("merge", anew, "--out", out, "--replace", "--over", earlier)
        assert result.returncode == 0 and f"missing: {missing[0]}" in result.stderr, result.stderr
        assert json.loads((out / "env.json").read_text()).get("missing") == missing
    shutil.rmtree(anew)
    assert split.sweep(anew).returncode == 0
    assert run("merge", anew, "--out", out, "--replace", "--over", whole).returncode == 0
    assert "missing" not in json.loads((out / "env.json").read_text()), "it is measured now"
    assert run("merge", anew, "--out", out, "--replace", "--over", split.folder / "merged").returncode == 0
    assert "missing" not in json.loads((out / "env.json").read_text()), "nothing of it is left"
    cases, table = (whole / "cases.csv").read_text(), rows(whole)
    (whole / "cases.csv").write_text(cases + cases.splitlines()[1].replace(",host", ",naive") + "\n")
    write_rows(whole, table + [table[0] | {"variant": "naive", "status": "unsupported_problem"}])
    assert run("merge", anew, "--out", out, "--replace", "--over", whole).returncode == 0
    assert json.loads((out / "env.json").read_text())["missing"] == [f"1 of the 6 cases of {whole}"], "it goes with its problem"


def test_what_is_missing_behind_over_is_told_once_and_truly(split, tmp_path):
    """A shard is there if the folders or the earlier run have it, a case if a row of either is."""
    shard, out = {index: split.folder / f"shard{index}" for index in (1, 2, 3)}, tmp_path / "out"

    def missing(new, earlier):
        result = run("merge", "--partial", "--replace", *new, "--out", out, "--over", earlier)
        assert result.returncode == 0, result.stderr
        said = [line.removeprefix("missing: ") for line in result.stderr.splitlines() if line.startswith("missing: ")]
        assert json.loads((out / "env.json").read_text()).get("missing", []) == said
        return said

    assert missing([shard[1], shard[3]], shard[2]) == [] and sorted(sizes(out)) == list(SIZES)
    assert missing([shard[1]], shard[2]) == ["shard 3 of 3"]
    assert split.merge("--partial", shards=(1, 2)).returncode == 0
    merged = split.folder / "merged"
    assert missing([shard[3]], merged) == [] and missing([shard[1]], merged) == ["shard 3 of 3"]
    shutil.copytree(out, tmp_path / "second")
    assert missing([shard[2]], tmp_path / "second") == ["shard 3 of 3"], "and so on, merge by merge"
    assert run("merge", merged, shard[3], "--out", tmp_path / "both").returncode == 0, "nor is it where no run is an earlier one"
    shutil.copytree(shard[2], tmp_path / "cut")
    write_rows(tmp_path / "cut", rows(shard[2])[:1])
    assert missing([tmp_path / "cut", shard[3]], merged) == [], "its second problem is the earlier run's"
    assert missing([tmp_path / "cut"], shard[1]) == ["shard 3 of 3", f"1 of the 2 cases of shard 2/3, {tmp_path / 'cut'}"]
    edit_json(merged / "env.json", missing=["core 2/2"])  # in words of others
    assert missing([shard[3]], merged) == ["core 2/2"]
    shutil.copytree(out, tmp_path / "third")
    assert missing([shard[3]], tmp_path / "third") == ["core 2/2"]
    for wrong in (["x 4/3"], None, "x 1/3", [5], {}):
        edit_json(merged / "env.json", shards=wrong)
        result = run("merge", "--partial", shard[3], "--out", tmp_path / "no", "--over", merged)
        assert result.returncode == 2 and "merged/env.json: 'shards' " in result.stderr and not (tmp_path / "no").exists(), result.stderr


def test_code_without_a_name_is_no_code_like_another(split):
    for shard in (1, 2, 3):
        spoil_commit(split, shard, "unknown")
    result = split.merge()
    assert result.returncode == 2 and "shard2: is of commit 'unknown'" in result.stderr, result.stderr
    assert "commit: unknown and unknown" in run("compare", split.folder / "shard1", split.folder / "shard1").stdout


def test_parts_of_several_gpus_are_told_apart(split):
    for index, watts in ((1, 700), (2, 700.0), (3, 650)):
        edit_json(split.folder / f"shard{index}" / "env.json", gpu_uuid=f"GPU-{index}", power_limit_w=watts, ecc="on", load_average=index)
        set_gpu(split.folder / f"shard{index}", [f"GPU-{index}"] * 2)
    result = split.merge(shards=(3, 1, 2))
    assert result.returncode == 0, result.stderr
    notes = [line for line in result.stderr.splitlines() if line.startswith("note:")]
    assert notes == ['note: the shards differ in gpu_uuid: ["GPU-3","GPU-1","GPU-2"]', "note: the shards differ in power_limit_w: [650,700,700.0]"]
    merged = split.folder / "merged"
    assert [row["gpu_uuid"] for row in rows(merged)] == ["GPU-1", "GPU-2", "GPU-3", "GPU-1", "GPU-2"]
    environment = json.loads((merged / "env.json").read_text())
    assert environment["of_parts"].items() >= {"gpu_uuid": ["GPU-3", "GPU-1", "GPU-2"], "power_limit_w": [650, 700, 700], "load_average": [3, 1, 2]}.items()
    assert environment["ecc"] == "on" and not {"gpu_uuid", "power_limit_w", "load_average"} & set(environment)
    assert run("gate", "--baseline", merged, "--candidate", merged).returncode == 0


def test_what_was_merged_keeps_its_parts_facts_when_merged_again(split, tmp_path):
    folders = []
    for gpu, dtype in enumerate(("bf16", "fp16", "fp32"), 1):
        folders.append(tmp_path / dtype)
        assert split.sweep(folders[-1], "--dtypes", dtype).returncode == 0
        edit_json(folders[-1] / "env.json", gpu_uuid=f"GPU-{gpu}", **({"ecc": "on"} if gpu == 3 else {}))
    assert run("merge", *folders[:2], "--out", tmp_path / "two").returncode == 0
    result = run("merge", tmp_path / "two", folders[2], "--out", tmp_path / "three")
    assert result.returncode == 0 and "the shards differ in gpu_uuid" in result.stderr, result.stderr
    environment = json.loads((tmp_path / "three/env.json").read_text())
    assert environment["of_parts"].items() >= {"gpu_uuid": ["GPU-1", "GPU-2", "GPU-3"], "ecc": [None, None, "on"]}.items()
    assert environment["merged_from"] == [str(folder) for folder in folders] and not {"gpu_uuid", "ecc"} & set(environment)


def test_a_merge_names_problems_whose_rows_are_of_two_gpus(split, tmp_path):
    (split.problems / "elementwise.csv").write_text("network,op,hw,channels,count\nfew,silu,16,8,1\nfew,silu,64,8,1\n")
    out = tmp_path / "run"
    arguments = (out, "--ops", "elementwise", "--kinds", "host,tiled", "--shard", "1/1")
    assert split.sweep(*arguments).returncode == 0
    set_gpu(out, ["GPU-1"] * 3 + ["GPU-2"])
    assert "holds rows of another" in split.sweep(*arguments).stderr
    result = run("merge", out, "--out", tmp_path / "merged")
    assert result.returncode == 0 and "note: the rows of 1 problems are of several GPUs, as of elementwise/op=silu" in result.stderr, result.stderr


def test_parts_of_several_sweeps_are_merged_at_once(split, tmp_path):
    assert split.sweep(tmp_path / "other", "--dtypes", "fp16", "--shard", "1/1").returncode == 0
    result = run("merge", *(split.folder / f"shard{index}" for index in (1, 2, 3)), tmp_path / "other", "--out", tmp_path / "both")
    assert result.returncode == 0, result.stderr
    assert [(row["dtype"], row["problem"].split(",")[0]) for row in rows(tmp_path / "both")] == [
        (dtype, f"m={size}") for dtype in ("bf16", "fp16") for size in SIZES]
    result = run("merge", split.folder / "shard1", tmp_path / "other", "--out", tmp_path / "some", "--partial")
    assert result.returncode == 0 and f"missing: shard 2, 3 of 3 (of the sweep of {split.folder / 'shard1'})" in result.stderr


def test_columns_of_another_version_are_kept(split):
    """One shard has a column that nobody here knows, and its columns in another order; another its cases as version 0.1 named them."""
    shard = split.folder / "shard2"
    there = rows(shard)
    with open(shard / "sweep.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["of_later", *reversed(there[0])], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "of_later": f"later, {row['problem']}"} for row in there)
    for name, value in (("networks.csv", "n"), ("cases.csv", "c")):
        file = shard / name
        lines = file.read_text().splitlines()
        file.write_text("".join(line + (",of_later\n" if i == 0 else f",{value}{i}\n") for i, line in enumerate(lines)))
    old = split.folder / "shard3" / "shard.json"
    edit_json(old, cases=[case.replace("/", "|") for case in json.loads(old.read_text())["cases"]])
    result = split.merge()
    assert result.returncode == 0, result.stderr
    merged = split.folder / "merged"
    assert sizes(merged) == list(SIZES)
    later = {row["problem"]: row["of_later"] for row in rows(merged)}
    assert {problem for problem, value in later.items() if value} == {row["problem"] for row in there}
    assert all(value in ("", f"later, {problem}") for problem, value in later.items())
    for name in ("networks.csv", "cases.csv"):
        assert len([row for row in read_table(merged / name) if row["of_later"]]) >= len(there), name
    assert "5 cases are already in" in split.sweep(merged).stderr
    assert {row["problem"]: row["of_later"] for row in rows(merged)} == later


def test_more_parts_than_cases(split):
    for index in range(1, 8):
        assert split.shard(index, 7, "--fresh").returncode == 0
    assert rows(split.folder / "shard7") == []
    result = split.merge(shards=range(1, 8))
    assert result.returncode == 0, result.stderr
    assert sizes(split.folder / "merged") == list(SIZES)


def spoil_device(split):
    file = split.folder / "shard2" / "sweep.csv"
    device = rows(split.folder / "shard2")[0]["device"]
    file.write_text(file.read_text().replace(device, "Another"))


def spoil_commit(split, shard=2, name="abc"):
    """Of the folder as a whole."""
    folder = split.folder / f"shard{shard}"
    edit_json(folder / "env.json", commit=name)
    (folder / "sweep.csv").write_text((folder / "sweep.csv").read_text().replace(rows(folder)[0]["commit"], name))


def drop_line(name):
    def spoil(split):
        file = split.folder / "shard2" / name
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    return spoil


def double_network(split):
    file = split.folder / "shard2" / "networks.csv"
    header, line, *_ = file.read_text().splitlines()
    count = header.split(",").index("count")
    cells = next(csv.reader([line]))
    cells[count] = "7"
    with open(file, "a", newline="") as out:
        csv.writer(out, lineterminator="\n").writerow(cells)


def duplicate(split):
    for name in ("sweep.csv", "samples.jsonl"):
        file = split.folder / "shard2" / name
        file.write_text(file.read_text() + (split.folder / "shard1" / name).read_text().splitlines(keepends=True)[-1])


@pytest.mark.parametrize(
    "spoil, says",
    [
        (lambda split: shutil.rmtree(split.folder / "shard2"), "shard2: no such folder"),
        (lambda split: (split.folder / "shard2" / "sweep.csv").unlink(), "shard2: no sweep.csv there"),
        (spoil_commit, 'shard2: is of commit "abc", '),
        (lambda split: edit_json(split.folder / "shard2" / "env.json", commit="abc"), "shard2/env.json says 'abc'"),
        (lambda split: edit_json(split.folder / "shard2" / "env.json", driver="1.2"), 'shard2: is of driver "1.2"'),
        (lambda split: (edit_json(split.folder / "shard2" / "env.json", device="Another"), spoil_device(split)), 'shard2: is of device "Another"'),
        (lambda split: edit_json(split.folder / "shard2" / "env.json", device="Another"), "shard2/env.json says 'Another'"),
        (spoil_device, "shard2/sweep.csv:2: the row of gemm/m=2,n=8,k=8/bf16/host is of device 'Another'"),
        (drop_line("sweep.csv"), "missing: 1 of the 2 cases of shard 2/3"),
        (drop_line("samples.jsonl"), "samples.jsonl lacks the samples of gemm/m=5"),
        (drop_line("ceilings.csv"), "ceilings.csv"),
        (double_network, "' is there twice, first in line 2"),
        (duplicate, "shard2: holds gemm/m=4,n=8,k=8/bf16/host, which is not of shard 2/3"),
        (lambda split: (split.folder / "shard2" / "shard.json").unlink(), "missing: shard 2 of 3, and no shard.json in /"),
        (lambda split: (split.folder / "shard2" / "shard.json").write_text("{"), "shard.json: not the shard.json of a sweep"),
        (lambda split: edit_json(split.folder / "shard2" / "shard.json", shard="1/3"), "shard 1/3 is there twice"),
        (lambda split: edit_json(split.folder / "shard2" / "shard.json", selection="0"), "shard 1, 3 of 3 (of the sweep of"),
        (lambda split: edit_json(split.folder / "shard2" / "shard.json", shard="2/4"), "they were cut differently"),
        (lambda split: edit_json(split.folder / "shard2" / "shard.json", places=[1]), "has not as many places as cases"),
    ],
)
def test_what_cannot_be_merged_is_named(spoil, says, split):
    spoil(split)
    result = split.merge()
    assert result.returncode == 2
    assert says in result.stderr, result.stderr
    assert not (split.folder / "merged").exists()
    assert not list(split.folder.glob("*.partial"))


def test_a_missing_part(split):
    result = split.merge(shards=(1, 3))
    assert result.returncode == 2 and "missing: shard 2 of 3; sweep again" in result.stderr
    assert not (split.folder / "merged").exists()
    result = split.merge("--partial", shards=(1, 3))
    assert result.returncode == 0 and "missing: shard 2 of 3" in result.stderr
    assert sizes(split.folder / "merged") == [1, 3, 4]
    for run_folder in ("merged", "shard1"):  # what they lack would never be missed again
        refused = run("gate", "accept", "--baseline", split.folder / "base", "--candidate", split.folder / run_folder)
        assert refused.returncode == 2 and "shard" in refused.stderr and "--force" in refused.stderr, refused


def test_only_what_a_merge_wrote_is_replaced(split):
    assert split.merge("--partial", shards=(1, 3)).returncode == 0
    refused = split.merge()
    assert refused.returncode == 2 and "is there already; give another --out, or --replace" in refused.stderr
    assert sizes(split.folder / "merged") == [1, 3, 4]
    (split.folder / "merged" / "captures").mkdir()
    assert split.merge("--replace").returncode == 0
    assert sizes(split.folder / "merged") == list(SIZES)
    assert (split.folder / "merged" / "captures").is_dir()
    inside = split.folder / "merged" / "shard"
    shutil.copytree(split.folder / "merged", inside)
    refused = run("merge", inside, "--out", split.folder / "merged", "--replace")
    assert refused.returncode == 2 and "lies within --out" in refused.stderr and inside.is_dir()
    shutil.rmtree(split.folder / "merged")
    (split.folder / "merged").mkdir()
    (split.folder / "merged" / "notes").write_text("my own")
    refused = split.merge("--replace")
    assert refused.returncode == 2 and "not from a merge" in refused.stderr
    assert (split.folder / "merged" / "notes").read_text() == "my own"


def test_runs_that_were_not_split_must_not_share_cases(split, tmp_path):
    for name in ("one", "two"):
        assert split.sweep(tmp_path / name).returncode == 0
    result = run("merge", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both")
    assert result.returncode == 2 and f"is in {tmp_path / 'one'} too" in result.stderr
    result = run("merge", tmp_path / "one", tmp_path / "one", "--out", tmp_path / "both")
    assert result.returncode == 2 and "is given twice" in result.stderr
    (split.problems / "gemm.csv").write_text("network,m,n,k,count\nother,9,8,8,1\n")
    assert split.sweep(tmp_path / "three").returncode == 0
    result = run("merge", tmp_path / "one", tmp_path / "three", "--out", tmp_path / "both")
    assert result.returncode == 0, result.stderr
    assert sizes(tmp_path / "both") == [*SIZES, 9]
    assert {row["network"] for row in read_table(tmp_path / "both" / "networks.csv")} == {"many", "other"}


def test_an_incorrect_row_is_merged_and_said(split):
    file = split.folder / "shard3" / "sweep.csv"
    file.write_text(file.read_text().replace(",ok,", ",incorrect,"))
    result = split.merge()
    assert result.returncode == 1 and "1 cases are incorrect" in result.stderr
    assert len(rows(split.folder / "merged")) == 5
