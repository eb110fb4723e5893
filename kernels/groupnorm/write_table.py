"""Writes kernels/groupnorm/measured_plans.cpp from timings of ptx_sm90a's plans: see tools/tuned_table.py, which does it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import tuned_table  # noqa: E402

tuned_table.run(tuned_table.Tuned(
    op="groupnorm",
    arrays={"ptx_sm90a": "kPlans"},
    shape=(("n", None, 1), ("hw", None, 1), ("channels", None, 1), ("groups", None, 1), ("down_w", "0", 0)),
    kinds=(("fusion", "none"), ("packed", "0")),
    choice=(("bundle", 1), ("blocks", 1), ("threads", 1), ("held", 0)),
    name="plan",
    record="MeasuredPlan",
    file="measured_plans",
    header="cluster_plan",
    table=lambda sm_count: f"MeasuredPlans measured_plans() {{\n  return {{{sm_count}, kPlans}};\n}}",
))
