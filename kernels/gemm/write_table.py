"""Writes kernels/gemm/measured_schedules.cpp from timings of ptx_sm90a's schedules: see tools/tuned_table.py, which does it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import tuned_table  # noqa: E402

tuned_table.run(tuned_table.Tuned(
    op="gemm",
    arrays={"ptx_sm90a": "kSchedules"},
    shape=(("m", None, 1), ("n", None, 1), ("k", None, 1), ("gated", "0", 0), ("residual", "0", 0), ("part_columns", "0", 0)),
    derive=lambda fields: fields | {
        "gated": str(int(fields.get("act") == "geglu")),
        "residual": "2" if fields.get("blend") == "1" else fields.get("residual", "0"),  # tensors of D's shape
    },
    kinds=(("act", "none"), ("bias", "1"), ("image_shift", "0"), ("scale", "1")),
    choice=(*tuned_table.SCHEDULE, ("multicast_a", 1)),
    name="schedule",
    record="MeasuredSchedule",
    file="measured_schedules",
    table=lambda sm_count: f"MeasuredSchedules measured_schedules() {{\n  return {{{sm_count}, kSchedules}};\n}}",
))
