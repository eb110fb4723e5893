"""Run folders as pandas frames: `noisefloor.load(run)`. Columns, types and units are those of reports/run/columns.def."""

import csv
import html
import io
import json
import re
import sys
from pathlib import Path

import pandas

from noisefloor import _core

LINE = (r'^NOISEFLOOR_(?:CASE_COLUMN\(|COLUMN\((?P<type>[\w:<>]+), )(?P<name>\w+), "(?P<unit>.*?)", (?:card\(\)|table\((?P<place>\d+), "(?P<label>.*?)"\)), '
        r'(?P<flags>[\w |]+), "(?P<description>.*)"\)$')  # fmt: skip
TABLE = (Path(__file__).parent / "reports/run/columns.def").read_text(encoding="utf-8")
COLUMNS = {column["name"]: column for column in re.finditer(LINE, TABLE, re.M)}
OLD_NAMES = dict(re.findall(r"^NOISEFLOOR_OLD_NAME\((\w+), (\w+)\)$", TABLE, re.M))
OLD_NETWORKS = dict(re.findall(r'^NOISEFLOOR_OLD_NETWORK\("(\S+)", "(\S+)"\)$', TABLE, re.M))
STATUSES = ("ok", "incorrect", "cuda_error", "unsupported_problem", "unsupported_arch", "not_built", "out_of_memory", "no_device", "throttled", "implausible")
MOST_LINES = 25  # of a table in a notebook
KEY = ["op", "problem", "dtype", "variant"]
NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


class Results(pandas.DataFrame):
    """The rows of a run, with `units` and `descriptions` by column, `ceilings` by name, and the `device`. A notebook shows a table and the roofline."""

    @property
    def _constructor(self):
        return Results

    @property
    def units(self):
        return {name: COLUMNS[name]["unit"] if name in COLUMNS else "" for name in self.columns}

    @property
    def descriptions(self):
        return {name: COLUMNS[name]["description"] for name in self.columns if name in COLUMNS}

    @property
    def device(self):
        return self.attrs.get("device", "")

    @property
    def ceilings(self):
        """{name: (value, unit)}, as measured on the device; empty if the run has none."""
        return {name: (value, unit) for name, (value, unit, _) in self.attrs.get("ceilings", {}).items()}

    def roofline(self, dtype=None, theme="light"):
        """Draws the rows that are ok and of one dtype (default: the most frequent) as an SVG, which a notebook shows. Needs matplotlib."""
        try:
            from noisefloor.reports.plots import plot_roofline
        except ImportError as error:
            raise ImportError(f"a roofline needs matplotlib and numpy: pip install matplotlib ({error})") from None
        ok = self[self["status"] == "ok"]
        dtype = _core.short_dtype(str(getattr(dtype, "__name__", dtype))) if dtype is not None else ok["dtype"].mode().iloc[0] if len(ok) else ""
        rates = {name: [value, datasheet] for name, (value, _, datasheet) in self.attrs.get("ceilings", {}).items()}
        ceilings = pandas.DataFrame.from_dict(rates, orient="index", columns=["value", "datasheet"])
        others = f"; there are some of {', '.join(sorted(set(ok['dtype'])))}" if len(ok) else ""
        ok = pandas.DataFrame(ok[ok["dtype"] == dtype])
        lacking = [name for name in ("dram_copy", *plot_roofline.ceilings_of(ok)) if name not in ceilings.index]
        if ok.empty or lacking:
            raise ValueError(f"no row of dtype '{dtype}' is ok{others}" if ok.empty else f"the run has no ceiling {', '.join(lacking)}")
        if not ((ok["flops"] > 0) & (ok["ai"] > 0)).any():
            raise ValueError(f"no row of dtype '{dtype}' has FLOPs and an intensity")
        return Drawing(plot_roofline.svg(ok, ceilings, theme, dtype))

    def _repr_html_(self):
        text = self._table()
        if len(self) == self.attrs.get("rows") and COLUMNS.keys() <= set(self.columns):  # of a selection the table is enough
            try:
                text += self.roofline()
            except Exception as error:  # a display shows what it can
                text += f"<p>No roofline: {html.escape(str(error))}</p>"
        return text

    def _table(self):
        main = sorted((column for name, column in COLUMNS.items() if column["place"] and name in self.columns), key=lambda column: int(column["place"]))
        names = [column["name"] for column in main] or list(self.columns)
        heads = [COLUMNS[name]["label"] or name if name in COLUMNS else name for name in names]
        shown = pandas.DataFrame(self.head(MOST_LINES)[names]).set_axis(heads, axis=1).to_html(index=False, na_rep="", float_format="{:.4g}".format, border=0)
        more = f", the first {MOST_LINES} shown" if len(self) > MOST_LINES else ""
        return f"{shown}<p>{len(self)} rows of {html.escape(self.device)}{more}</p>"


class Drawing(str):
    """SVG; a notebook shows it."""

    def _repr_svg_(self):
        return str(self)


def read(file, needed, whole_lines=False):
    """A CSV file of ours as texts; of `whole_lines`, a last one that was cut short (the sweep was killed) is left out."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
        header, *lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1] if whole_lines else text, newline=""), strict=True)
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{file}: cannot be read: {error}") from None
    if lacking := [name for name in needed if name not in header]:
        raise ValueError(f"{file}: has no column {', '.join(lacking)}")
    for number, line in enumerate(lines, 2):
        if line and len(line) != len(header):
            raise ValueError(f"{file}: line {number} has {len(line)} fields, not {len(header)}")
    try:
        return pandas.DataFrame([line for line in lines if line], columns=header, dtype="object").set_flags(allows_duplicate_labels=False)
    except pandas.errors.DuplicateLabelError:
        raise ValueError(f"{file}: a column is there twice") from None


def numbers(file, name, texts, flags="", count=False):
    """Of a column where nothing is negative; a blank is none."""
    above_zero, from_one, share = (flag in flags for flag in ("kAboveZero", "kFromOne", "kShare"))
    values = pandas.to_numeric(texts.where(texts.str.fullmatch(NUMBER), None), errors="coerce").astype("float64")
    high = 100 if share else 2**53 if count else sys.float_info.max
    right = values.between(1 if from_one else 0, high) & ((values > 0) | (not above_zero)) & ((values % 1 == 0) | (not count))
    if (wrong := texts[(texts != "") & ~right]).size:
        what = "a percentage from 0 to 100" if share else "a number from 1" if from_one else "a whole number up to 2^53" if count else "a number"
        raise ValueError(f"{file}: column {name}: '{wrong.iloc[0]}' is not {what}{' above 0' * above_zero}")
    return values


def series(file, name, texts):
    """By the column's type; an unknown column is of numbers where it has nothing else."""
    if name not in COLUMNS:
        return pandas.to_numeric(texts, errors="coerce").astype("float64") if texts.str.fullmatch(f"(-?{NUMBER})?").all() else texts
    known = COLUMNS[name]
    if name == "status" and (wrong := texts[~texts.isin(STATUSES)]).size:
        raise ValueError(f"{file}: column status: '{wrong.iloc[0]}' is not a status")
    count = known["type"] == "std::optional<long>"
    if not count and known["type"] != "Figure":
        return texts
    values = numbers(file, name, texts, known["flags"], count)
    return values.astype("Int64") if count else values


def load(run):
    folder = Path(run)
    file = folder / "sweep.csv"
    if not file.is_file():
        raise ValueError(f"{folder} is not a run folder: it has no sweep.csv")
    texts = read(file, [name for name, column in COLUMNS.items() if "kNeeded" in column["flags"]], whole_lines=True).rename(columns=OLD_NAMES)
    if "networks" in texts and has_old_names(folder):
        texts["networks"] = [re.sub(r"[^:;]+(?=:)", lambda name: OLD_NETWORKS.get(name[0], name[0]), names) for names in texts["networks"]]
    lacking = pandas.Series([""] * len(texts), dtype="object")  # of an older run; every frame has every column
    names = [*COLUMNS, *(name for name in texts if name not in COLUMNS)]
    frame = Results({name: series(file, name, texts.get(name, lacking)) for name in names})
    if (twice := frame[frame.duplicated(KEY)]).size:
        raise ValueError(f"{file}: the row {' '.join(twice[KEY].iloc[0])} is there twice")
    if ((frame["status"] == "ok") & frame["time_cold_us"].isna()).any():
        raise ValueError(f"{file}: column time_cold_us: blank, but status is ok")
    frame.attrs = {"folder": str(folder), "rows": len(frame), "device": frame["device"].iloc[0] if len(frame) else "", "ceilings": ceilings(folder)}
    return frame


def has_old_names(folder):
    """As reports/run/network_problems.h has it."""
    file = folder / "env.json"
    try:
        return file.is_file() and json.loads(file.read_text(encoding="utf-8")).get("schema", 1) < 3
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{file}: cannot be read: {error}") from None


def ceilings(folder):
    file = folder / "ceilings.csv"
    if not file.is_file():
        return {}
    rows = read(file, ("name", "value", "unit"))
    if rows["name"].duplicated().any():
        raise ValueError(f"{file}: a ceiling is there twice")
    values = numbers(file, "value", rows["value"].replace("", "0"), "kAboveZero")
    datasheet = numbers(file, "datasheet", rows.get("datasheet", pandas.Series([""] * len(rows), dtype="object")))
    return dict(zip(rows["name"], zip(values, rows["unit"], datasheet)))
