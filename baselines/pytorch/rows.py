"""A run folder as noisefloor writes it: sweep.csv, samples.jsonl, env.json. Rows are appended and flushed one by one, so that a sweep
that was killed loses at most the case in flight."""

import csv
import fcntl
import io
import json
import math
import os
import sys
from dataclasses import replace

from baselines.pytorch.errors import CannotRun

COLUMNS = (
    "op,variant,kind,dtype,problem,networks,status,reason,device,arch,"
    "time_cold_us,time_cold_mad_us,time_warm_us,samples,stop,flops,bytes,gflops,gbps,ai,attainable_gflops,pct_of_roof,bound,"
    "dram_read_bytes,dram_write_bytes,l2_bytes,occupancy_pct,occupancy_limit_pct,tensor_pipe_pct,counter_status,"
    "registers,smem_bytes,spill_bytes,workspace_bytes,prepare_us,sm_clock_mhz,throttle,max_rel_error,tolerance,commit"
).split(",")
CROSSCHECK_COLUMNS = ["op", "variant", "dtype", "problem", "time_cold_us", "do_bench_us", "ratio"]


def _format(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return str(value)


def _write_line(file, values):
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([_format(value) for value in values])
    file.write(line.getvalue())
    file.flush()


class RunFolder:
    """Opens RUN_DIR for appending rows of `device`, as its only writer; `done` holds the (op, problem, dtype, variant) of every row that is
    there."""

    def __init__(self, path, device):
        self.path = path
        self.done = set()
        self._networks = {}  # (op, problem) -> the networks cell of its rows
        try:
            os.makedirs(path, exist_ok=True)
            self._lock = self._open(".lock")
            try:
                self._take_lock()
                self.commit = self._read_commit()
                self._read_rows(device)
                self._drop_samples_without_a_row()
                self._sweep = self._open("sweep.csv", COLUMNS)
                self._samples = self._open("samples.jsonl")
            except BaseException:
                self._lock.close()
                raise
        except OSError as error:
            raise CannotRun(f"cannot write the run folder: {error.filename or path}: {error.strerror}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._sweep.close()
        self._samples.close()
        self._lock.truncate(0)
        self._lock.close()

    def swept(self, problems):
        """Those of `problems` that the folder has rows of, with the networks that these rows name; all of them where it has none."""
        if not self._networks:
            return problems
        keys = ((problem.op, problem.text) for problem in problems)
        return [replace(problem, networks=self._networks[key]) for problem, key in zip(problems, keys) if key in self._networks]

    def of_networks(self, problems):
        """Those of `problems` that the folder's networks.csv names, with these networks: what the whole sweep has that this folder is a part
        of."""
        path = os.path.join(self.path, "networks.csv")
        uses = {}
        try:
            with open(path, encoding="utf-8", newline="") as file:
                for line in csv.DictReader(file):
                    uses.setdefault((line["op"], line["problem"]), []).append(f"{line['network']}:{line['count']}")
        except FileNotFoundError:
            raise CannotRun(f"{path} is missing: run `noisefloor sweep --shard` first, or give --networks") from None
        except KeyError as error:
            raise CannotRun(f"{path}: no column {error}") from None
        keys = ((problem.op, problem.text) for problem in problems)
        return [replace(problem, networks=";".join(uses[key])) for problem, key in zip(problems, keys) if key in uses]

    def append(self, row, samples=None):
        """`row`: column -> value, missing columns blank. The samples come first: a row that is there is complete."""
        unknown = set(row) - set(COLUMNS)
        if unknown:
            raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
        try:
            if samples is not None:
                key = {name: row[name] for name in ("op", "dtype", "problem", "variant")}
                self._samples.write(json.dumps({**key, **samples}) + "\n")
                self._samples.flush()
            _write_line(self._sweep, [row.get(column) for column in COLUMNS])
        except OSError as error:
            raise CannotRun(f"cannot write to {self.path}: {error.strerror}") from None
        self.done.add((row["op"], row["problem"], row["dtype"], row["variant"]))

    def append_crosscheck(self, row):
        with self._open("crosscheck.csv", CROSSCHECK_COLUMNS) as file:
            _write_line(file, [row[column] for column in CROSSCHECK_COLUMNS])

    def write_versions(self, versions):
        with open(os.path.join(self.path, "env_pytorch.json"), "w", encoding="utf-8") as file:
            json.dump(versions, file, indent=2)
            file.write("\n")

    def _open(self, name, header=None):
        file = open(os.path.join(self.path, name), "a", encoding="utf-8", newline="")
        if header and file.tell() == 0:
            _write_line(file, header)
        return file

    def _take_lock(self):
        """The lock of reports/run/folder_lock.h. It goes with the process that holds it; the file says who that is."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with open(os.path.join(self.path, ".lock"), encoding="utf-8", errors="replace") as file:
                owner = file.readline().strip()
            raise CannotRun(f"{self.path}: another sweep is writing there{f' ({owner})' if owner else ''}") from None
        self._lock.truncate(0)
        self._lock.write(f"host {os.uname().nodename}, process {os.getpid()}\n")
        self._lock.flush()

    def _read_rows(self, device):
        for name in ("sweep.csv", "samples.jsonl", "crosscheck.csv"):
            _drop_incomplete_line(os.path.join(self.path, name))
        path = os.path.join(self.path, "sweep.csv")
        if not os.path.exists(path) or os.path.getsize(path) == 0:
            return
        with open(path, encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            if next(lines, None) != COLUMNS:
                raise CannotRun(f"{path}:1: not the columns of this version's sweep.csv; use another --run-dir")
            for line in lines:
                if len(line) != len(COLUMNS):
                    raise CannotRun(f"{path}:{lines.line_num}: {len(line)} fields instead of {len(COLUMNS)}")
                row = dict(zip(COLUMNS, line))
                for column, here in (("device", device), ("commit", self.commit)):
                    if row[column] != here:
                        raise CannotRun(f"{path}:{lines.line_num}: a row of {column} '{row[column]}', this is '{here}'; use another --run-dir")
                self.done.add((row["op"], row["problem"], row["dtype"], row["variant"]))
                self._networks.setdefault((row["op"], row["problem"]), row["networks"])

    def _drop_samples_without_a_row(self):
        """A writer that was killed between the two left them; the case is measured again."""
        path = os.path.join(self.path, "samples.jsonl")
        if not os.path.exists(path):
            return
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
        try:
            kept = [line for line in lines if tuple(json.loads(line)[key] for key in ("op", "problem", "dtype", "variant")) in self.done]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise CannotRun(f"{path}: not one JSON object of a row's samples a line") from None
        if len(kept) == len(lines):
            return
        with open(path + ".partial", "w", encoding="utf-8") as file:
            file.writelines(kept)
        os.replace(path + ".partial", path)

    def _read_commit(self):
        path = os.path.join(self.path, "env.json")
        try:
            with open(path, encoding="utf-8") as file:
                return str(json.load(file)["commit"])
        except FileNotFoundError:
            print(f"{path} is missing: the rows will name no commit", file=sys.stderr)
            return ""
        except (json.JSONDecodeError, KeyError, TypeError):
            raise CannotRun(f"{path}: not JSON with a 'commit'") from None


def _drop_incomplete_line(path):
    """Cuts off a last line without its line end: its writer was killed."""
    if not os.path.exists(path):
        return
    with open(path, "rb+") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
