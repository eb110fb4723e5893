// Noise between runs of one build: measured, refused where it is none, kept as a file.
#include "reports/gate/gate.h"

#include <gtest/gtest.h>

#include "tests/support/gate_runs.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

// Of rows that take exactly so long, at these clocks.
RunFiles exact_run(const std::string& folder, std::vector<double> us, double mhz = 1980) {
  Rows rows;
  for (const double one : us) {
    SyntheticRow& row = rows.emplace_back();
    row.us = one, row.warm_us = one / 2, row.noise = row.batch = 0, row.mhz = mhz;
  }
  RunFiles run = synthetic_run(rows, 1);
  run.folder = folder, run.environment.time_utc = folder;
  return run;
}

TEST(Noise, IsTheMostByWhichTwoRunsDiffer) {
  const std::vector<RunFiles> runs{exact_run("a", {100, 50}), exact_run("b", {103, 50.1}), exact_run("c", {102, 50.2})};
  const GateNoise noise = measure_noise(runs).noise;
  EXPECT_NEAR(*noise.of(runs[0].rows[0], Phase::cold), 0.03, 1e-9);
  EXPECT_NEAR(*noise.of(runs[0].rows[1], Phase::warm), 0.004, 1e-9);
  EXPECT_EQ(noise.runs, (std::vector<std::string>{"abc a", "abc b", "abc c"}));
  EXPECT_FALSE(noise.of(CaseId{{"gemm", "m=9", "bf16"}, "ptx"}, Phase::cold));
}

TEST(Noise, IsNotWhatTheClockExplains) {
  const std::vector<RunFiles> runs{exact_run("a", {100}), exact_run("b", {110}, 1800), exact_run("c", {111}, 1800)};
  EXPECT_NEAR(*measure_noise(runs).noise.of(runs[0].rows[0], Phase::cold), 0.00909, 1e-4) << "1 % more cycles";
}

// As where a library's search chose another algorithm.
TEST(Noise, ARowThatLiesApartIsLeftOut) {
  std::vector<double> us(20, 100);
  std::vector<RunFiles> runs{exact_run("a", us)};
  us.assign(20, 101), us[4] = 140;
  runs.push_back(exact_run("b", us));
  us.assign(20, 102);
  runs.push_back(exact_run("c", us));
  const MeasuredNoise measured = measure_noise(runs);
  ASSERT_EQ(measured.left_out.size(), 2u) << "warm and cold";
  expect_parts(measured.left_out[0], {"m=5,n=64,k=64", "by b"});
  EXPECT_FALSE(measured.noise.of(runs[0].rows[4], Phase::cold));
  EXPECT_TRUE(measured.noise.of(runs[0].rows[3], Phase::cold));
}

TEST(Noise, IsOfThreeRunsOfOneBuildAndDevice) {
  const RunFiles a = exact_run("a", {100}), b = exact_run("b", {101}), c = exact_run("c", {102});
  const auto refused = [](std::vector<RunFiles> runs) { return error_of([&] { return measure_noise(runs); }); };
  EXPECT_EQ(refused({a, b, c}), "");
  EXPECT_NE(refused({a, b}).find("3 runs"), std::string::npos);
  EXPECT_NE(refused({a, b, a}).find("holds the samples of a"), std::string::npos);
  RunFiles other = exact_run("other", {103});
  other.environment.commit = "def";
  EXPECT_NE(refused({a, b, other}).find("def"), std::string::npos);
  other = exact_run("other", {103}), other.environment.device = "Another GPU";
  EXPECT_NE(refused({a, b, other}).find("Another GPU"), std::string::npos);
  std::vector<RunFiles> nameless{a, b, c};
  for (RunFiles& run : nameless) run.environment.commit = "unknown";
  EXPECT_NE(refused(nameless).find("one build"), std::string::npos);
}

TEST(Noise, ComesBackFromItsFileAndDamageIsNamed) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / kNoiseFile;
  const std::vector<RunFiles> runs{exact_run("a", {100}), exact_run("b", {103}), exact_run("c", {102})};
  const GateNoise noise = measure_noise(runs).noise;
  write_atomically(file, to_json(noise));
  const GateNoise read = read_noise(file);
  EXPECT_EQ(read.rows, noise.rows);
  EXPECT_EQ(read.device + read.runs.at(2), noise.device + noise.runs.at(2));
  for (const char* bad : {"{}", "[]", R"({"device":"a","runs":[],"rows":[{"case":"a/b/c/d","phase":"hot","noise":0}]})",
                          R"({"device":"a","runs":[],"rows":[{"case":"a/b/c/d","phase":"warm","noise":9}]})",
                          R"({"device":"a","sweeps":[],"classes":[],"rows":[]})"}) {
    write_atomically(file, bad);
    EXPECT_NE(error_of([&] { return read_noise(file); }).find(kNoiseFile), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace noisefloor
