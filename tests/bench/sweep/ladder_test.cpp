// Ladders are in their true order: "best last" by the recorded run.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

// Warm times of what was recorded, by problem and variant.
std::map<ProblemId, std::map<std::string, double>> recorded_times() {
  std::map<ProblemId, std::map<std::string, double>> times;
  for (const SweepRow& row : read_sweep_csv("reports/recorded/nvidia-h200/sweep.csv"))
    if (row.status == Outcome::ok && row.time_warm_us) times[row][row.variant] = *row.time_warm_us;
  return times;
}

// Over the problems that both rungs run, the later rung takes no longer in total.
TEST(Ladder, IsBestLastOnTheRecordedGpu) {
  const auto times = recorded_times();
  int compared = 0;
  for (const Op& op : catalogue())
    for (std::size_t later = 1; later < op.variants.size(); ++later)
      for (std::size_t earlier = 0; earlier < later; ++earlier) {
        const std::string &below = op.variants[earlier].name, &above = op.variants[later].name;
        double below_us = 0, above_us = 0;
        for (const auto& [problem, of] : times) {
          if (problem.op != op.name || !of.contains(below) || !of.contains(above)) continue;
          below_us += of.at(below);
          above_us += of.at(above);
          ++compared;
        }
        EXPECT_LE(above_us, below_us) << op.name << ": " << above << " stands behind " << below << " in variants.cpp";
      }
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace noisefloor
