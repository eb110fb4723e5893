"""Run folders as pandas frames: `noisefloor.load(run)`. Columns, types and units are those of reports/run/columns.def."""

import csv
import html
import io
import math
import re
from pathlib import Path

import pandas

from noisefloor import _core

COLUMNS = {column["name"]: column for column in _core.result_columns()}
MOST_LINES = 25  # of a table in a notebook
CEILINGS = ("name", "value", "unit")
STATUSES = ("ok", "incorrect", "cuda_error", "unsupported_problem", "unsupported_arch", "not_built", "out_of_memory", "no_device", "throttled")
NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


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
        main = sorted((column for name, column in COLUMNS.items() if column["place"] and name in self.columns), key=lambda column: column["place"])
        names = [column["name"] for column in main] or list(self.columns)
        heads = [COLUMNS[name]["label"] if name in COLUMNS and COLUMNS[name]["label"] else name for name in names]
        shown = self if len(self) <= MOST_LINES else self.head(MOST_LINES)
        lines = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
        lines = f"<thead><tr>{lines}</tr></thead><tbody>"
        for values in shown[names].itertuples(index=False, name=None):
            lines += "<tr>" + "".join(f"<td>{html.escape(cell(value))}</td>" for value in values) + "</tr>"
        more = f", the first {MOST_LINES} shown" if len(shown) < len(self) else ""
        return f"<table>{lines}</tbody></table><p>{len(self)} rows of {html.escape(self.device)}{more}</p>"


class Drawing(str):
    """SVG; a notebook shows it."""

    def _repr_svg_(self):
        return str(self)


def cell(value):
    if value is None or value is pandas.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def read(file, needed, whole_lines=False):
    """Header and lines of a CSV file of ours; of `whole_lines`, a last one that was cut short (the sweep was killed) is left out."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: cannot be read: {error}") from None
    if "\0" in text:
        raise ValueError(f"{file}: has a zero byte")
    try:
        lines = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1] if whole_lines else text, newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"{file}: {error}") from None
    header = lines[0] if lines else []
    lacking = [name for name in needed if name not in header]
    if lacking or len(set(header)) != len(header):
        raise ValueError(f"{file}: has no column {', '.join(lacking)}" if lacking else f"{file}: a column is there twice")
    for number, line in enumerate(lines[1:], 2):
        if line and len(line) != len(header):
            raise ValueError(f"{file}: line {number} has {len(line)} fields, not {len(header)}")
    return header, [line for line in lines[1:] if line]


def number(file, name, text):
    value = math.nan if not text else float(text) if NUMBER.fullmatch(text) else math.inf
    if math.isinf(value):
        raise ValueError(f"{file}: column {name}: '{text}' is not a number")
    return value


def measured(file, name, text, above_zero, from_one=False, share=False):
    """Of the columns that are known, where nothing is negative."""
    value = number(file, name, text)
    if value < 0 or (above_zero and value == 0):
        raise ValueError(f"{file}: column {name}: '{text}' is {'not above 0' if above_zero else 'negative'}")
    if (from_one and value < 1) or (share and value > 100):
        raise ValueError(f"{file}: column {name}: '{text}' is not {'a number from 1' if from_one else 'a percentage from 0 to 100'}")
    return value


def require_once(file, what, keys):
    seen = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{file}: the {what} {' '.join(key)} is there twice")
        seen.add(key)


def are_networks(text):
    """network:count, with semicolons between; counts as reports/run/sweep_csv.h has them."""
    items = [re.fullmatch("[^:]+:([0-9]{1,30})", item) for item in text.removesuffix(";").split(";")] if text else []
    return all(item and 1 <= int(item[1]) <= 10**9 for item in items)


def series(file, name, texts):
    """By the column's type; an unknown column is of numbers where it has nothing else."""
    known = COLUMNS.get(name)
    if known is None:
        try:
            return pandas.Series([number(file, name, text) for text in texts], dtype="float64")
        except ValueError:
            return pandas.Series(texts, dtype="object")
    if known["type"] == "text":
        right, what = {"status": (STATUSES.__contains__, "a status"), "networks": (are_networks, "of network:count")}.get(name, (None, ""))
        for text in texts if right else ():
            if not right(text):
                raise ValueError(f"{file}: column {name}: '{text}' is not {what}")
        return pandas.Series(texts, dtype="object")
    values = pandas.Series([measured(file, name, text, known["above_zero"], known["from_one"], known["share"]) for text in texts], dtype="float64")
    if known["type"] == "number":
        return values
    if any(not text.isdecimal() for text in texts if text) or (values.dropna() > 2**53).any():
        raise ValueError(f"{file}: column {name}: a count is not a whole number up to 2^53")
    return values.astype("Int64")


def load(run):
    folder = Path(run)
    file = folder / "sweep.csv"
    if not file.is_file():
        raise ValueError(f"{folder} is not a run folder: it has no sweep.csv")
    header, lines = read(file, [name for name, column in COLUMNS.items() if column["needed"]], whole_lines=True)
    columns = {name: series(file, name, [line[place] for line in lines]) for place, name in enumerate(header)}
    for name in COLUMNS.keys() - columns.keys():  # an older run; every frame has every column
        columns[name] = series(file, name, [""] * len(lines))
    frame = Results({name: columns[name] for name in [*COLUMNS, *(name for name in header if name not in COLUMNS)]})
    require_once(file, "row", zip(*(frame[name] for name in ("op", "problem", "dtype", "variant"))))
    if ((frame["status"] == "ok") & frame["time_cold_us"].isna()).any():
        raise ValueError(f"{file}: column time_cold_us: blank, but status is ok")
    frame.attrs = {"folder": str(folder), "rows": len(frame), "device": frame["device"].iloc[0] if len(frame) else "", "ceilings": ceilings(folder)}
    return frame


def ceilings(folder):
    file = folder / "ceilings.csv"
    if not file.is_file():
        return {}
    header, lines = read(file, CEILINGS)
    rows = [{name: cell.strip(" \t") for name, cell in zip(header, line)} for line in lines]
    require_once(file, "ceiling", ((row["name"],) for row in rows))
    if not rows:
        raise ValueError(f"{file}: holds no ceilings")
    for row in rows:
        if not row["name"]:
            raise ValueError(f"{file}: column name: is empty")
        measured(file, "value", row["value"] or "0", True)
        for name in ("datasheet", "sm_clock_mhz"):
            measured(file, name, row.get(name, ""), True)
        measured(file, "load", row.get("load", ""), False)
        if row["unit"] not in ("GB/s", "GFLOP/s"):
            raise ValueError(f"{file}: column unit: '{row['unit']}' is neither GB/s nor GFLOP/s")
        if any(row.get(name) != rows[0].get(name) for name in ("device", "driver")):
            raise ValueError(f"{file}: is of two devices or drivers")
    return {row["name"]: (float(row["value"]), row["unit"], number(file, "datasheet", row.get("datasheet", ""))) for row in rows}
