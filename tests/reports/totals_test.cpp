// Totals of networks: sums, choices, what is missing, who wins.
#include "reports/totals/totals.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "reports/run/files.h"
#include "reports/run/run_files.h"
#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

const NetworkTotal& find(const std::vector<NetworkTotal>& totals, const std::string& op, const std::string& choice) {
  const auto found = std::find_if(totals.begin(), totals.end(),
                                  [&](const NetworkTotal& total) { return total.op == op && total.choice == choice; });
  EXPECT_NE(found, totals.end()) << op << " " << choice;
  return *found;
}

// As on a host: the best of ours and the fastest of all are the line of the only variant.
TEST(Totals, OfOneVariantAreOneLine) {
  const auto lines_of = [](std::vector<SweepRow> rows) {
    std::vector<NetworkProblem> problems;
    for (const SweepRow& row : rows) problems.push_back({"net", row.op, row.problem, 1});
    const std::string table = totals_table(network_totals(rows, problems));
    return std::count(table.begin(), table.end(), '\n') - 1;
  };
  const SweepRow host = ok_row({{"gemm", "p1", "bf16"}, "host"}, "host", 4, 3);
  EXPECT_EQ(lines_of({host}), 1);
  EXPECT_EQ(lines_of({host, ok_row({{"conv2d", "p1", "bf16"}, "host"}, "host", 4, 3)}), 2);
  EXPECT_EQ(lines_of({host, ok_row({{"gemm", "p2", "bf16"}, "tiled"}, "tiled", 4, 3)}), 4);
}

TEST(Totals, CountWinsLossesAndTheWorstRatio) {
  const std::vector<SweepRow> rows = {
      ok_row({{"gemm", "p1", "bf16"}, "ptx"}, "ptx", 4, 3),
      ok_row({{"gemm", "p1", "bf16"}, "cublaslt"}, "baseline", 5, 4),
      ok_row({{"gemm", "p1", "bf16"}, "torch_eager"}, "baseline", 3, 2),
      ok_row({{"gemm", "p1", "bf16"}, "torch_compile"}, "baseline", 6, 1),
      ok_row({{"gemm", "p2", "bf16"}, "ptx"}, "ptx", 9),
      ok_row({{"gemm", "p2", "bf16"}, "cublaslt"}, "baseline", 6, 5),
      ok_row({{"gemm", "p2", "bf16"}, "torch_compile"}, "baseline", 10, 8),
      ok_row({{"gemm", "p3", "bf16"}, "ptx"}, "ptx", 7, 7),
  };
  const auto totals =
      network_totals(rows, {{"net", "gemm", "p1", 3}, {"net", "gemm", "p2", 2}, {"net", "gemm", "p3", 1}});
  const NetworkTotal& ours = find(totals, "gemm", kOwnBest);
  EXPECT_EQ(ours.cold.us, 3 * 4 + 2 * 9 + 7);
  EXPECT_EQ(ours.warm.us, 3 * 3 + 7);
  EXPECT_EQ(ours.warm.missing, 1);
  EXPECT_EQ(ours.won, 0) << "nobody else has p3";
  EXPECT_EQ(ours.lost, 1) << "torch_compile has the faster warm p1";
  EXPECT_EQ(ours.unresolved, 1) << "p2 has no warm time of ours";
  EXPECT_EQ(ours.worst_ratio, 3);
  EXPECT_EQ(ours.worst_problem, "p1");
  EXPECT_FALSE(ours.plain) << "rows of an older file do not say which problems have a shortcut";
  const NetworkTotal& library = find(totals, "gemm", kLibrary);
  EXPECT_EQ(library.cold.us, 3 * 5 + 2 * 6);
  EXPECT_EQ(library.cold.missing, 1);
  EXPECT_EQ(library.lost, 1);
  EXPECT_EQ(library.unresolved, 1);
  EXPECT_DOUBLE_EQ(*library.worst_ratio, 4.0 / 3);
  EXPECT_EQ(find(totals, "gemm", kPyTorch).cold.us, 3 * 3 + 2 * 10) << "of each problem PyTorch's fastest";
  EXPECT_EQ(find(totals, "gemm", kFastest).cold.us, 3 * 3 + 2 * 6 + 7);
  EXPECT_EQ(find(totals, "gemm", "torch_eager").cold.missing, 2);
  EXPECT_EQ(find(totals, "gemm", "cublaslt").kind, "baseline");
}

TEST(Totals, PairsDecideAndElseMediansThatAreNotAlike) {
  std::vector<SweepRow> rows;
  const auto add = [&](const char* problem, double ours, double theirs) {
    rows.push_back(ok_row({{"gemm", problem, "bf16"}, "ptx"}, "ptx", 10, ours));
    rows.push_back(ok_row({{"gemm", problem, "bf16"}, "cublaslt"}, "baseline", 10, theirs));
  };
  add("won", 10, 10.5), add("lost", 10.5, 10), add("alike", 10, 10.2);
  const auto pair = [&](const char* problem, double low, double value, double high) {
    add(problem, 10, 20);  // the medians say something else
    SweepRow &ours = rows[rows.size() - 2], &theirs = rows.back();
    ours.paired_with = "cublaslt", theirs.paired_with = "ptx";
    ours.speedup_warm_low = low, ours.speedup_warm = value, ours.speedup_warm_high = high;
    theirs.speedup_warm_low = 1 / high, theirs.speedup_warm = 1 / value, theirs.speedup_warm_high = 1 / low;
  };
  pair("compared and lost", 0.79, 0.8, 0.81), pair("compared and equal", 0.99, 1, 1.01), pair("open", 0.9, 1, 1.1);
  std::vector<NetworkProblem> problems;
  for (std::size_t i = 0; i < rows.size(); i += 2) problems.push_back({"net", "gemm", rows[i].problem, 1});
  const auto totals = network_totals(rows, problems);
  const NetworkTotal &ours = find(totals, "gemm", kOwnBest), &library = find(totals, "gemm", kLibrary);
  EXPECT_EQ(std::vector({ours.won, ours.lost, ours.equal, ours.unresolved}), std::vector({1, 2, 2, 1}));
  EXPECT_EQ(std::vector({library.won, library.lost, library.equal, library.unresolved}), std::vector({2, 1, 2, 1}));
  EXPECT_DOUBLE_EQ(*ours.worst_ratio, 1.25);
  EXPECT_EQ(ours.worst_problem, "compared and lost");
  EXPECT_EQ(find(totals, "gemm", kFastest).lost, 1)
      << "the one whose paired comparison was lost though its medians were better";
}

TEST(Totals, TheRowOfEitherSideMayHaveTheirComparison) {
  std::vector<SweepRow> rows = {ok_row({{"gemm", "p", "bf16"}, "ptx"}, "ptx", 10, 10),
                                ok_row({{"gemm", "p", "bf16"}, "cublaslt"}, "baseline", 10, 20)};
  rows[0].paired_with = "torch_eager", rows[0].speedup_warm_low = rows[0].speedup_warm = rows[0].speedup_warm_high = 3;
  rows[1].paired_with = "ptx", rows[1].speedup_warm_low = 1.2, rows[1].speedup_warm = 1.25,
  rows[1].speedup_warm_high = 1.3;
  const auto totals = network_totals(rows, {{"net", "gemm", "p", 1}});
  EXPECT_EQ(find(totals, "gemm", kOwnBest).lost, 1);
  EXPECT_DOUBLE_EQ(*find(totals, "gemm", kOwnBest).worst_ratio, 1.25);
  EXPECT_EQ(find(totals, "gemm", kLibrary).won, 1);
}

TEST(Totals, WithoutShortcutsWhereRowsSayWhichHaveOne) {
  std::vector<SweepRow> rows = {
      ok_row({{"conv2d", "p", "bf16"}, "ptx"}, "ptx", 4, 3),
      ok_row({{"conv2d", "q", "bf16"}, "ptx"}, "ptx", 10, 8),
      ok_row({{"gemm", "r", "bf16"}, "ptx"}, "ptx", 7, 6),
  };
  rows[0].shortcut = rows[2].shortcut = "none", rows[1].shortcut = "four_phases";
  rows[0].time_warm_serial_us = 5, rows[1].time_warm_serial_us = 9;
  const std::vector<NetworkProblem> problems = {
      {"net", "conv2d", "p", 2}, {"net", "conv2d", "q", 5}, {"net", "gemm", "r", 1}};
  const auto totals = network_totals(rows, problems);
  const NetworkTotal &conv2d = find(totals, "conv2d", kOwnBest), &all = find(totals, kAllOps, kOwnBest);
  ASSERT_TRUE(conv2d.plain && all.plain);
  EXPECT_EQ(conv2d.cold.us, 58);
  EXPECT_EQ(conv2d.plain->cold.us, 8);
  EXPECT_EQ(conv2d.plain->warm.us, 6);
  EXPECT_EQ(conv2d.serial.us, 2 * 5 + 5 * 9);
  EXPECT_EQ(conv2d.plain->serial.us, 10);
  EXPECT_EQ(conv2d.serial.missing, 0);
  EXPECT_EQ(all.serial.missing, 1) << "gemm has no such time";
  EXPECT_EQ(conv2d.plain->shortcuts, 1);
  EXPECT_EQ(all.plain->cold.us, 15);
  const TemporaryFolder folder;
  write_totals_csv(folder / "totals.csv", {conv2d});
  EXPECT_NE(read_whole_file(folder / "totals.csv").find(",0,0,0,0,,,1,8,6,55,0,10,,,,,,,,\n"), std::string::npos)
      << read_whole_file(folder / "totals.csv");
}

TEST(Totals, AddUpAllOpsButNotTheNetworkItself) {
  const std::vector<SweepRow> rows = {
      ok_row({{"gemm", "p", "bf16"}, "ptx"}, "ptx", 4, 3),
      ok_row({{"conv2d", "q", "bf16"}, "ptx"}, "ptx", 10, 8),
      ok_row({{"conv2d", "q", "bf16"}, "cudnn"}, "baseline", 5, 4),
      ok_row({{"network", "name=net", "bf16"}, "plan_own"}, "network", 11, 10),
      ok_row({{"network", "name=net", "bf16"}, "plan_baseline"}, "baseline", 12, 10),
  };
  const auto totals = network_totals(rows, {{"net", "gemm", "p", 2},
                                            {"net", "conv2d", "q", 1},
                                            {"net", "softmax", "r", 1},
                                            {"net", "network", "name=net", 1},
                                            {"stream", "gemm", "p", 1, true}});
  const NetworkTotal& all = find(totals, kAllOps, kOwnBest);
  EXPECT_EQ(all.cold.us, 2 * 4 + 10);
  EXPECT_EQ(all.problems, 3);
  EXPECT_EQ(all.cold.missing, 1) << "softmax has no row at all";
  EXPECT_EQ(all.worst_problem, "conv2d q");
  EXPECT_EQ(find(totals, kAllOps, kLibrary).cold.missing, 2);
  EXPECT_EQ(find(totals, "network", kOwnBest).cold.us, 11);
  for (const NetworkTotal& total : totals) {
    EXPECT_EQ(total.set, total.network == "stream");
    EXPECT_FALSE(total.network == "stream" && total.op == kAllOps) << "it has one op alone";
    EXPECT_FALSE(total.op == "network" && total.choice == kLibrary) << "a plan is no library";
  }
}

TEST(Totals, OfANetworkStandBesideItsLaunches) {
  const CaseId own{{"network", "name=net", "bf16"}, "plan_own"}, other{{"network", "name=net", "bf16"}, "plan_fastest"};
  std::vector<SweepRow> rows = {
      ok_row({{"gemm", "p", "bf16"}, "ptx"}, "ptx", 4, 3),
      ok_row({{"gemm", "p", "bf16"}, "tiled"}, "tiled", 3, 2),  // faster, but not what was launched
      ok_row({{"elementwise", "q", "fp32"}, "tiled"}, "tiled", 10, 8),
      ok_row(own, "network", 220, 190),
      ok_row(other, "network", 220, 190),
  };
  std::map<CaseId, RowSamples> samples;
  samples[own].launches = {"gemm/p/bf16/ptx", "elementwise/q/fp32/tiled"}, samples[own].launch_counts = {60, 2};
  samples[other].launches = {"gemm/p/bf16/ptx", "gemm/p/bf16/cublaslt"}, samples[other].launch_counts = {96, 4};
  const std::vector<NetworkProblem> problems = {{"net", "gemm", "p", 1}, {"net", "network", "name=net", 1}};
  const auto totals = network_totals(rows, problems, samples);
  const NetworkTotal &all = find(totals, "network", "plan_own"), &most = find(totals, "network", "plan_fastest");
  ASSERT_TRUE(all.launches && most.launches);
  EXPECT_EQ(std::pair(all.launches->all, all.launches->covered), std::pair(62L, 62L));
  EXPECT_EQ(all.launches->cold.us, 60 * 4 + 2 * 10);
  EXPECT_DOUBLE_EQ(*all.over_launches(), 190.0 / (60 * 3 + 2 * 8));
  EXPECT_EQ(std::pair(most.launches->all, most.launches->covered), std::pair(100L, 96L));
  EXPECT_FALSE(most.over_launches()) << "its sum lacks too much";
  EXPECT_NE(totals_table(totals).find("96 of its 100 launches"), std::string::npos);
  EXPECT_FALSE(all.over_weights_cold()) << "of an older run nobody knows";
  rows[0].time_weights_cold_us = 3.5, rows[0].weights_clock_mhz = 1900;
  rows[2].phases = "cold=1;warm=1;weights=1", rows[2].warm_clock_mhz = 1900;  // it has none
  const auto find_own = [&] { return find(network_totals(rows, problems, samples), "network", "plan_own"); };
  EXPECT_EQ(find_own().launches->weights_cold_us, 60 * 3.5 + 2 * 8);
  EXPECT_DOUBLE_EQ(*find_own().over_weights_cold(), 190.0 / (60 * 3.5 + 2 * 8));
  rows[3].warm_clock_mhz = 1710;  // at the power cap
  EXPECT_DOUBLE_EQ(*find_own().over_weights_cold(), 0.9 * 190.0 / (60 * 3.5 + 2 * 8));
  const TemporaryFolder folder;
  write_totals_csv(folder / "totals.csv", {find_own()});
  EXPECT_NE(read_whole_file(folder / "totals.csv").find(",62,62,260,196,0,0.9694,226,0.7566\n"), std::string::npos);
  rows[0].status = Outcome::incorrect;
  const auto wrong = network_totals(rows, problems, samples);
  EXPECT_EQ(find(wrong, "network", "plan_own").launches->covered, 2) << "only an ok row covers";
  EXPECT_FALSE(find(network_totals(rows, problems), "network", "plan_own").launches) << "an older run does not say";
}

TEST(Totals, SetsAreInTheRunFolderAndOlderFoldersStayReadable) {
  const TemporaryFolder folder;
  std::ofstream(folder / "networks.csv") << "network,op,problem,count\nold,gemm,p,3\n";
  EXPECT_FALSE(read_network_problems(folder.path(), {}).at(0).set);
  merge_network_problems(folder.path(), {{"stream", "gemm", "p", 1, true}, {"net", "gemm", "p", 2, false}});
  const auto problems = read_network_problems(folder.path(), {});
  ASSERT_EQ(problems.size(), 3u);
  for (const NetworkProblem& one : problems) EXPECT_EQ(one.set, one.network == "stream") << one.network;
  EXPECT_EQ(problems[0].count, 3);
  std::ofstream(folder / "networks.csv", std::ios::app) << "old,gemm,p,4,\n";
  expect_parts(error_of([&] { return read_network_problems(folder.path(), {}); }),
               {"networks.csv:5: p of gemm in 'old' is there twice, first in line 2"});
}

TEST(Totals, RecordedOnesAreAsTheProgramWritesThem) {
  const TemporaryFolder folder;
  const RunFiles run = read_run("reports/recorded/nvidia-h200");
  write_totals_csv(folder / "totals.csv", network_totals(run.rows, read_network_problems(run.folder, run.rows)));
  EXPECT_EQ(read_whole_file(folder / "totals.csv"), read_whole_file(run.folder / "totals.csv"))
      << "write it again: noisefloor roofline reports/recorded/nvidia-h200";
}

}  // namespace
}  // namespace noisefloor
