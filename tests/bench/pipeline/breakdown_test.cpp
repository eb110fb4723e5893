// Where time goes: from records of what ran to times of launches, sums, tables and files.
#include "bench/pipeline/breakdown.h"

#include <gtest/gtest.h>

#include <fstream>

#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/sweep_csv.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

DeviceActivity activity(const char* name, std::uint64_t start, std::uint64_t end,
                        std::optional<std::uint64_t> tag = std::nullopt) {
  return {name, start, end, tag};
}

// Microseconds in, nanoseconds out.
std::vector<DeviceActivity> activities(const std::vector<std::pair<double, double>>& spans) {
  std::vector<DeviceActivity> all;
  for (const auto& [start, end] : spans)
    all.push_back({"k" + std::to_string(all.size()), 1'000'000 + static_cast<std::uint64_t>(start * 1000),
                   1'000'000 + static_cast<std::uint64_t>(end * 1000), std::nullopt});
  return all;
}

TEST(Breakdown, KernelsBelongToTheLaunchWhoseTagTheyCarry) {
  const std::vector<DeviceActivity> ran{activity("a", 1, 2, 0), activity("b", 3, 4, 0), activity("memset", 5, 6, 2)};
  EXPECT_EQ(kernels_of_launches(std::vector<LaunchLabel>(3), ran), (LaunchKernels{{"a", "b"}, {}, {"memset"}}));
  const auto says = [](std::size_t launches, const std::vector<DeviceActivity>& records, const char* text) {
    expect_parts(refusal_of<std::runtime_error>(
                     [&] { return kernels_of_launches(std::vector<LaunchLabel>(launches), records); }),
                 {text});
  };
  says(3, {activity("stray", 1, 2)}, "stray ran, and no launch of the pipeline made it");
  says(2, ran, "memset is of launch 2, and there are 2");
  says(3, {activity("late", 1, 2, 1), activity("early", 3, 4, 0)},
       "early of launch 0 started after kernels of launch 1");
}

TEST(Breakdown, GapsAndOverlapsAreToldApart) {
  const LaunchKernels kernels{{"k0"}, {"k1", "k2"}, {}, {"k3"}, {"k4"}};
  // A gap of 2, then one of 1 inside a launch; k3 starts 4 before k2 has ended; k4 lies within k3.
  const RunTime run =
      time_of_run(std::vector<LaunchLabel>(5), kernels, activities({{0, 10}, {12, 20}, {21, 30}, {26, 40}, {28, 39}}));
  ASSERT_EQ(run.launches.size(), 5u);
  const double times[] = {10, 18, 0, 10, 0}, gaps[] = {0, 2, 0, -4, -12}, own[] = {10, 17, 0, 14, 11};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(run.launches[i].time_us, times[i]) << i;
    EXPECT_DOUBLE_EQ(run.launches[i].gap_us, gaps[i]) << i;
    EXPECT_DOUBLE_EQ(run.launches[i].kernel_us, own[i]) << i;
  }
  EXPECT_DOUBLE_EQ(run.span_us, 40);
}

TEST(Breakdown, OfWhatRunsBesideOnlyWhatNothingHidesIsCounted) {
  std::vector<LaunchLabel> launches(4);
  launches[1].beside = true;
  const LaunchKernels kernels{{"a"}, {"sum"}, {"b"}, {"c"}};
  // Launch by launch the sum starts behind a kernel of launch 2.
  EXPECT_EQ(kernels_of_launches(launches, std::vector{activity("a", 0, 10, 0), activity("b", 12, 20, 2),
                                                      activity("sum", 13, 24, 1), activity("c", 26, 30, 3)}),
            kernels);
  const std::vector ran{activity("a", 0, 10'000), activity("b", 12'000, 20'000), activity("sum", 13'000, 24'000),
                        activity("c", 26'000, 30'000)};
  const RunTime run = time_of_run(launches, kernels, ran);
  const double times[] = {10, 4, 8, 4}, gaps[] = {0, 0, 2, 2}, own[] = {10, 11, 8, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(run.launches[i].time_us, times[i]) << i;
    EXPECT_DOUBLE_EQ(run.launches[i].gap_us, gaps[i]) << i;
    EXPECT_DOUBLE_EQ(run.launches[i].kernel_us, own[i]) << i;
  }
  EXPECT_DOUBLE_EQ(run.span_us, 30);
  ASSERT_EQ(run.idle.size(), 2u);
  EXPECT_DOUBLE_EQ(run.idle[0].begin_us, 10);
  EXPECT_DOUBLE_EQ(run.idle[1].begin_us, 24);
  EXPECT_EQ(run.idle[1].before, 3u);
}

// The last of several sums is in order, behind the place that waits for the others.
TEST(Breakdown, WhatTwoAwaitIsOfTheLaunchBeside) {
  std::vector<LaunchLabel> launches(3);
  launches[0].beside = true;
  const std::vector ran{activity("b", 0, 9'000), activity("sum", 10'000, 14'000), activity("sum", 15'000, 18'000)};
  const RunTime run = time_of_run(launches, {{"sum"}, {"b"}, {"sum"}}, ran);
  EXPECT_DOUBLE_EQ(run.launches[0].time_us, 4);
  EXPECT_DOUBLE_EQ(run.launches[2].time_us, 3);
  EXPECT_DOUBLE_EQ(run.launches[2].gap_us, 2);  // of 9 to 10 and of 14 to 15
}

TEST(Breakdown, KernelsThatCannotBeMatchedAreRefused) {
  const auto says = [](const LaunchKernels& kernels, const char* text) {
    const auto ran = activities({{0, 1}, {2, 3}});
    expect_parts(refusal_of<std::runtime_error>(
                     [&] { return time_of_run(std::vector<LaunchLabel>(kernels.size()), kernels, ran); }),
                 {text});
  };
  says({{"k0"}}, "2 kernels ran in the recording, and 1 launch by launch");
  says({{"k0"}, {"other"}}, "kernel 1 of the recording is k1, and launch by launch it was other");
}

TEST(Breakdown, MediansAreTakenLaunchByLaunch) {
  const RunTime runs[] = {{{{1, 0, 1}, {9, -2, 10}}, 10}, {{{2, 0, 2}, {5, 1, 5}}, 8}, {{{9, 0, 9}, {6, 4, 6}}, 19}};
  const RunTime median = median_of_runs(runs);
  EXPECT_EQ(median.span_us, 10);
  EXPECT_EQ(median.launches[0].time_us, 2);
  EXPECT_EQ(median.launches[1].time_us, 6);
  EXPECT_EQ(median.launches[1].gap_us, 1);
  EXPECT_EQ(median.launches[1].kernel_us, 6);
}

Breakdown example() {
  Breakdown b;
  b.title = "digits, one call of 4 images";
  b.labels = {{{{"conv2d", "n=4,h=8", "bf16"}, "ptx"}, "in", 8.0},
              {{{"groupnorm", "n=4", "bf16"}, "tiled"}, "norm", std::nullopt},
              {{{"conv2d", "n=4,h=4", "bf16"}, "ptx"}, "out", std::nullopt},
              {{{"conv2d", "n=4,h=8", "bf16"}, "ptx"}, "in", 8.0}};
  b.kernels = {{"k0"}, {"k1", "k2"}, {"k3"}, {"k4"}};
  b.together = time_of_run(b.labels, b.kernels, activities({{0, 10}, {9, 20}, {21, 30}, {33, 34.5}, {34.5, 50}}));
  b.alone = time_of_run(b.labels, b.kernels, activities({{0, 9}, {100, 108}, {200, 206}, {300, 301}, {400, 412}}));
  b.runs = 11;
  b.end_to_end_us = 47;
  return b;
}

TEST(Breakdown, SharesAreSumsOverOpsAndNodes) {
  const auto ops = shares(example(), &LaunchLabel::op);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].name, "conv2d");
  EXPECT_EQ(ops[0].launches, 3u);
  EXPECT_EQ(ops[0].kernels, 3u);
  EXPECT_DOUBLE_EQ(ops[0].time_us, 10 + 1.5 + 15.5);
  EXPECT_DOUBLE_EQ(ops[0].gap_us, 3);
  EXPECT_DOUBLE_EQ(ops[0].alone_us, 9 + 1 + 12);
  EXPECT_DOUBLE_EQ(ops[0].warm_us, 16);
  EXPECT_EQ(ops[0].warm_launches, 2u);
  EXPECT_DOUBLE_EQ(ops[0].time_of_warm_us, 25.5);
  EXPECT_EQ(ops[1].name, "groupnorm");
  EXPECT_DOUBLE_EQ(ops[1].overlap_us, 1);
  const auto nodes = shares(example(), &LaunchLabel::node);
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].name, "in");
  EXPECT_EQ(nodes[0].launches, 2u);
  EXPECT_DOUBLE_EQ(nodes[0].time_us, 25.5);
  const Share all = total(example());
  EXPECT_DOUBLE_EQ(all.time_us + all.gap_us, 50);
  EXPECT_EQ(all.kernels, 5u);
}

TEST(Breakdown, TextSaysWhatIsKnownAndWhatIsNot) {
  expect_parts(breakdown_text(example(), 2),
               {"digits, one call of 4 images: medians of 11 replays of its CUDA graph",
                "47.0 us  without a trace; 50.0 us from the first kernel's start", "5 kernels of 4 launches",
                "16.0 (2 of 3)", "16.0 us  of 2 of 4 launches by themselves; here they take 25.5 us with their gaps",
                "node (2 of 3)", "ptx n=4,h=8"});
  Breakdown unknown = example();
  for (LaunchLabel& label : unknown.labels) label.warm_us.reset();
  expect_parts(breakdown_text(unknown, 2), {"no launch's time by itself is known"});
}

TEST(Breakdown, CsvHasALineForEachLaunch) {
  const TemporaryFolder folder;
  write_atomically(folder / "breakdown.csv", breakdown_csv(example()));
  const CsvFile csv = read_csv(folder / "breakdown.csv");
  EXPECT_EQ(csv.header,
            (std::vector<std::string>{"op", "node", "problem", "variant", "kernels", "time_us", "gap_before_us"}));
  ASSERT_EQ(csv.lines.size(), 4u);
  EXPECT_EQ(csv.lines[1].fields,
            (std::vector<std::string>{"groupnorm", "norm", "n=4", "tiled", "2", "20.000", "-1.000"}));
  EXPECT_EQ(csv.lines[0].fields[2], "n=4,h=8");
}

TEST(Breakdown, RowsOfTheDeviceTakeThePlaceOfThePlansTimes) {
  const TemporaryFolder folder;
  const auto row = [](const char* device, Outcome status, std::optional<double> warm) {
    SweepRow r;
    r.op = "conv2d", r.variant = "ptx", r.kind = "ptx", r.dtype = "bf16", r.problem = "n=4,h=4";
    r.device = device, r.arch = "sm_90", r.status = status, r.time_warm_us = warm;
    if (status == Outcome::ok) {
      r.time_cold_us = 5, r.time_cold_mad_us = 0.1, r.samples = 20, r.stop = "converged";
      r.gflops = r.gbps = r.ai = 1;
      r.max_rel_error = r.tolerance = 0.01;
    }
    return r;
  };
  const auto write = [&](const SweepRow& one) {
    std::ofstream(folder / "sweep.csv") << sweep_csv_header() << to_csv(one);
  };
  write(row("this", Outcome::ok, 3.5));
  Breakdown b = example();
  use_rows(b, folder.path(), "this");
  EXPECT_EQ(b.labels[2].warm_us, 3.5);
  EXPECT_EQ(b.labels[0].warm_us, 8.0);
  EXPECT_FALSE(b.labels[1].warm_us.has_value());
  EXPECT_THROW(use_rows(b, folder.path(), "that"), InvalidInput);
  write(row("this", Outcome::incorrect, std::nullopt));
  EXPECT_THROW(use_rows(b, folder.path(), "this"), InvalidInput);
  EXPECT_THROW(use_rows(b, folder / "none", "this"), InvalidInput);
}

}  // namespace
}  // namespace noisefloor::pipeline
