"""Writes kernels/convolution/measured_schedules.cpp from timings of both ptx variants' schedules: see tools/tuned_table.py, which does it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import tuned_table  # noqa: E402



def with_pad(fields):
    """A convolution's pad is half its kernel where the problem does not say."""
    return {"pad": str(int(fields.get("kernel", 3)) // 2)} | fields


tuned_table.run(tuned_table.Tuned(
    op="conv2d",
    room="convolution",
    arrays={"ptx_sm90a": "kIm2col", "ptx_sm90a_halo": "kHalo"},
    shape=(("n", None, 1), ("h", None, 1), ("w", None, 1), ("cin", None, 1), ("cout", None, 1), ("kernel", "3", 1), ("stride", "1", 1),
           ("pad", "1", 0), ("upsample", "0", 0), ("side", "0", 0), ("side_skip", "0", 0)),
    derive=with_pad,
    stand_in=lambda shape: shape[-2] > 0,  # that of the same shape without a second source
    kinds=(("act", "none"), ("bias", "1"), ("affine", "0"), ("image_shift", "0"), ("residual", "0"), ("residual_upsample", "0"), ("gain", "1"), ("stats", "0")),
    choice=tuned_table.SCHEDULE,
    name="schedule",
    record="MeasuredSchedule",
    file="measured_schedules",
    table=lambda sm_count: f"MeasuredSchedules measured_schedules() {{\n  return {{{sm_count}, kIm2col, kHalo}};\n}}",
))
