// Ladders are in their true order: "best last" by what is recorded.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

constexpr const char* kRecorded = "reports/recorded";

bool has_rows(const std::filesystem::path& file) {
  std::string header;
  std::getline(std::ifstream(file), header);
  return header.find(",time_cold_us,") != std::string::npos;
}

// Warm times of what was recorded, by file (one GPU and build each), problem and variant.
std::map<std::pair<std::string, ProblemId>, std::map<std::string, double>> recorded_times(
    const std::filesystem::path& folder) {
  std::map<std::pair<std::string, ProblemId>, std::map<std::string, double>> times;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".csv" || !has_rows(entry.path())) continue;
    for (const SweepRow& row : read_sweep_csv(entry.path()))
      if (row.status == Outcome::ok && row.time_warm_us)
        times[{entry.path().filename(), row}][row.variant] = *row.time_warm_us;
  }
  return times;
}

// Over the problems that both rungs run, the later rung takes no longer in total. Returns how many times were compared.
int compare_rungs(const std::filesystem::path& folder) {
  const auto times = recorded_times(folder);
  int compared = 0;
  for (const Op& op : catalogue())
    for (std::size_t later = 1; later < op.variants.size(); ++later)
      for (std::size_t earlier = 0; earlier < later; ++earlier) {
        const std::string &below = op.variants[earlier].name, &above = op.variants[later].name;
        double below_us = 0, above_us = 0;
        for (const auto& [place, of] : times) {
          if (place.second.op != op.name || !of.contains(below) || !of.contains(above)) continue;
          below_us += of.at(below);
          above_us += of.at(above);
          ++compared;
        }
        EXPECT_LE(above_us, below_us) << folder << ", " << op.name << ": " << above << " stands behind " << below
                                      << " in variants.cpp";
      }
  return compared;
}

TEST(Ladder, IsBestLastOnEveryRecordedGpu) {
  std::map<std::string, int> compared;
  for (const auto& entry : std::filesystem::directory_iterator(kRecorded))
    if (entry.is_directory()) compared[entry.path().filename()] = compare_rungs(entry.path());
  for (const char* folder : {"nvidia-h200", "nvidia-h100-80gb-hbm3"}) EXPECT_GT(compared[folder], 300) << folder;
}

}  // namespace
}  // namespace noisefloor
