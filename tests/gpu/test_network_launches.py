"""What a network launches has rows in a sweep of its problems, and takes about their sum, on a GPU; skipped elsewhere."""

import csv

from tests.gpu.program import PROGRAM, need_gpu, run


def test_a_sweep_of_a_networks_problems_has_what_it_launches(tmp_path):
    need_gpu("sm_")
    networks = "digits-b100,digits-folded-b100"
    swept = run(PROGRAM, "sweep", "--networks", networks, "--kinds", "naive,tiled,tensor_core,ptx,network", "--no-pairs", "--counters", "off",
                "--out", tmp_path / "run")
    assert swept.returncode == 0 and "launches have a row" in swept.stdout, swept.stderr
    assert run(PROGRAM, "roofline", tmp_path / "run").returncode == 0
    with open(tmp_path / "run" / "totals.csv", newline="") as file:
        [own] = [row for row in csv.DictReader(file) if (row["network"], row["op"], row["choice"]) == ("digits-b100", "network", "plan_own")]
    assert int(own["covered"]) >= 0.97 * int(own["launches"]) and 0.7 < float(own["over_launches"]) < 1.4, own
    assert 0.7 < float(own["over_weights_cold"]) < 1.4, own
