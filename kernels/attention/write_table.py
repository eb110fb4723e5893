"""Writes kernels/attention/measured_schedules.cpp from timings of ptx_sm90a's schedules: see tools/tuned_table.py, which does it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import tuned_table  # noqa: E402

tuned_table.run(tuned_table.Tuned(
    op="attention",
    arrays={"ptx_sm90a": "kSchedules"},
    untabled=("ptx_sm90a_wide",),
    shape=(("batch", None, 1), ("heads", None, 1), ("seq_q", None, 1), ("seq_kv", None, 1), ("dim", None, 1)),
    kinds=(("layout", "separate"), ("lse", "0"), ("scale", "0")),
    choice=(("rows", 1), ("keys", 1), ("blocks", 1), ("turns", 0), ("splits", 1)),
    name="schedule",
    record="MeasuredSchedule",
    file="measured_schedules",
    table=lambda sm_count: f"MeasuredSchedules measured_schedules() {{\n  return {{{sm_count}, kSchedules}};\n}}",
))
