// Change points, and the trend of cases and totals over run folders.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <random>

#include "reports/history/change_points.h"
#include "reports/history/history.h"
#include "reports/run/files.h"
#include "reports/run/statistics.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

// A run around `level`: its samples scatter by up to 2 %, and the run as a whole is off by up to 0.7 %, as clocks make
// it.
RunValue run_around(double level, std::mt19937& random, std::size_t samples) {
  std::uniform_real_distribution<double> scatter(-0.02, 0.02), offset(-0.007, 0.007);
  const double center = level * (1 + offset(random));
  RunValue run;
  for (std::size_t i = 0; i < samples; ++i) run.samples.push_back(center * (1 + scatter(random)));
  run.value = median(run.samples);
  return run;
}

struct Steps {
  std::vector<RunValue> runs;
  std::vector<std::size_t> at;  // where a level begins, without the first
};

// Levels of at least `shortest` runs, each 8 % to 100 % off the one before.
Steps steps(std::size_t levels, std::size_t shortest) {
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const auto samples = *rc::gen::inRange<std::size_t>(20, 80);
  Steps made;
  double level = *rc::gen::inRange(20, 5000);
  for (std::size_t i = 0; i < levels; ++i) {
    if (i > 0) {
      made.at.push_back(made.runs.size());
      const double factor = 1 + 0.01 * *rc::gen::inRange(8, 100);
      level = *rc::gen::arbitrary<bool>() ? level * factor : level / factor;
    }
    const auto length = *rc::gen::inRange<std::size_t>(shortest, 12);
    for (std::size_t run = 0; run < length; ++run) made.runs.push_back(run_around(level, random, samples));
  }
  return made;
}

std::vector<std::size_t> places(const std::vector<ChangePoint>& points) {
  std::vector<std::size_t> found;
  for (const ChangePoint& point : points) found.push_back(point.index);
  return found;
}

TEST(ChangePoints, AConstantSeriesHasNone) {
  EXPECT_TRUE(rc::check("none", [] { RC_ASSERT(change_points(steps(1, 1).runs, {}).empty()); }));
}

TEST(ChangePoints, OneStepIsFoundWhereItIs) {
  EXPECT_TRUE(rc::check("a step is found at its run, also when it is the first or the last", [] {
    const Steps made = steps(2, 1);
    const auto points = change_points(made.runs, {});
    RC_ASSERT(places(points) == made.at);
    RC_ASSERT(points[0].p < 0.01);
    std::vector<double> before, after;
    for (std::size_t i = 0; i < made.runs.size(); ++i) (i < made.at[0] ? before : after).push_back(made.runs[i].value);
    RC_ASSERT(points[0].before == median(before) && points[0].after == median(after));
  }));
}

TEST(ChangePoints, SeveralStepsAreFound) {
  EXPECT_TRUE(rc::check("up to four levels, of three runs or more", [] {
    const Steps made = steps(*rc::gen::inRange<std::size_t>(3, 5), 3);
    RC_ASSERT(places(change_points(made.runs, {})) == made.at);
  }));
}

TEST(ChangePoints, TheUnitDoesNotMatterWhereTheFloorDoesNot) {
  EXPECT_TRUE(rc::check("a thousand times the series has the same changes", [] {
    const Steps made = steps(2, 2);
    auto scaled = made.runs;
    for (RunValue& run : scaled) {
      run.value *= 1000;
      for (double& sample : run.samples) sample *= 1000;
    }
    RC_ASSERT(places(change_points(scaled, {})) == places(change_points(made.runs, {})));
  }));
}

std::vector<RunValue> two_levels(double before, double after, std::size_t runs, std::size_t samples) {
  std::vector<RunValue> made;
  for (std::size_t i = 0; i < 2 * runs; ++i) {
    const double level = i < runs ? before : after;
    RunValue run{level, {}};
    for (std::size_t s = 0; s < samples; ++s) run.samples.push_back(level * (1 + 1e-4 * static_cast<double>(s)));
    made.push_back(run);
  }
  return made;
}

TEST(ChangePoints, SmallChangesAreNone) {
  EXPECT_TRUE(change_points(two_levels(100, 102.9, 5, 50), {}).empty()) << "below 3 %, however significant";
  EXPECT_EQ(change_points(two_levels(100, 103.2, 5, 50), {}).size(), 1U);
  EXPECT_TRUE(change_points(two_levels(3, 3.45, 5, 50), {}).empty()) << "15 %, but below 0.5 us";
  EXPECT_EQ(change_points(two_levels(3, 3.55, 5, 50), {}).size(), 1U);
}

TEST(ChangePoints, TooFewSamplesProveNothing) {
  EXPECT_TRUE(change_points(two_levels(100, 200, 1, 0), {}).empty());
  EXPECT_TRUE(change_points(two_levels(100, 200, 3, 0), {}).empty()) << "3 and 3: p is 0.1 at best";
  EXPECT_EQ(places(change_points(two_levels(100, 200, 8, 0), {})), std::vector<std::size_t>{8});
  ChangeRule many;
  many.series_compared = 1000;
  EXPECT_TRUE(change_points(two_levels(100, 200, 8, 0), many).empty()) << "not among 1,000 series";
  EXPECT_TRUE(change_points({}, {}).empty());
}

TEST(ChangePoints, ManyRuns) {
  EXPECT_EQ(places(change_points(two_levels(100, 110, 100, 50), {})), std::vector<std::size_t>{100});
}

// A run folder with one network of two problems; times by problem, 0: out of memory.
void write_run(const std::filesystem::path& folder, const std::string& device, const std::string& time, double first,
               double second) {
  std::filesystem::create_directories(folder);
  std::string text = sweep_csv_header(), samples;
  for (const auto& [problem, us] : {std::pair("m=1", first), std::pair("m=2", second)}) {
    SweepRow row;
    row.op = "gemm";
    row.variant = "ptx";
    row.kind = "ptx";
    row.dtype = "bf16";
    row.problem = problem;
    row.networks = std::string("net:") + (row.problem == "m=1" ? "3" : "1");
    row.device = device;
    row.commit = "abc";
    row.status = us > 0 ? Outcome::ok : Outcome::out_of_memory;
    if (us > 0) row.time_cold_us = us;
    text += to_csv(row);
    if (!(us > 0)) continue;
    std::string values;
    for (int i = 0; i < 20; ++i) values += (i == 0 ? "" : ",") + std::to_string(us * (1 + 1e-4 * (i - 9.5)));
    samples += R"({"op":"gemm","dtype":"bf16","problem":")" + row.problem + R"(","variant":"ptx","cold_us":[)" +
               values + R"(],"warm_us":[]})" + "\n";
  }
  write_atomically(folder / "sweep.csv", text);
  write_atomically(folder / "samples.jsonl", samples);
  write_atomically(folder / "env.json",
                   R"({"device": ")" + device + R"(", "commit": "abc", "time_utc": ")" + time + "\"}");
}

TEST(History, TotalsInTheOrderOfTimeAndDevicesApart) {
  const TemporaryFolder folder;
  write_run(folder / "runs/c", "A", "2026-03-01T00:00:00Z", 20, 10);
  write_run(folder / "runs/a", "A", "2026-02-01T00:00:00Z", 10, 10);
  write_run(folder / "runs/b", "A", "2026-01-01T00:00:00Z", 10, 10);
  write_run(folder / "runs/d", "B", "2026-01-15T00:00:00Z", 90, 10);
  const auto runs = read_history({folder / "runs"});
  const History history = trace_history(runs, {});
  ASSERT_EQ(history.series.size(), 2U);
  EXPECT_EQ(history.series[0].name, "net/gemm/bf16/own best");
  EXPECT_EQ(history.series[0].device, "A");
  EXPECT_EQ(history.series[0].values, (std::vector<std::optional<double>>{40, 40, 70}));
  ASSERT_EQ(history.series[0].changes.size(), 1U);
  EXPECT_EQ(history.series[0].changes[0].index, 2U);
  EXPECT_EQ(history.series[0].changes[0].before, 40);
  EXPECT_EQ(history.series[0].changes[0].after, 70);
  EXPECT_EQ(history.series[1].values, (std::vector<std::optional<double>>{280}));
  const std::string table = history_table(runs, history);
  EXPECT_NE(table.find("2 devices: their runs are kept apart"), std::string::npos);
  EXPECT_NE(table.find("*70"), std::string::npos);
  EXPECT_NE(table.find("changed at #3 (abc): net/gemm/bf16/own best: 40 -> 70 us (+75.0 %"), std::string::npos)
      << table;
  const std::string csv = history_csv(runs, history);
  EXPECT_NE(csv.find("A,net/gemm/bf16/own best,c,2026-03-01T00:00:00Z,abc,70,75,"), std::string::npos) << csv;
}

TEST(History, ATotalThatLacksAProblemIsNoTotal) {
  const TemporaryFolder folder;
  write_run(folder / "a", "A", "2026-01-01T00:00:00Z", 10, 10);
  write_run(folder / "b", "A", "2026-01-02T00:00:00Z", 10, 0);
  const auto runs = read_history({folder / "a", folder / "b"});
  EXPECT_EQ(trace_history(runs, {}).series[0].values, (std::vector<std::optional<double>>{40, std::nullopt}));
  HistorySelection cases;
  cases.case_pattern = "gemm/m=[12]/bf16";
  const History history = trace_history(runs, cases);
  ASSERT_EQ(history.series.size(), 2U);
  EXPECT_EQ(history.series[1].name, "gemm/m=2/bf16/ptx");
  EXPECT_EQ(history.series[1].values, (std::vector<std::optional<double>>{10, std::nullopt}));
}

TEST(History, RunsWithoutSamplesStillHaveATrend) {
  const TemporaryFolder folder;
  write_run(folder / "a", "A", "2026-01-01T00:00:00Z", 10, 10);
  write_run(folder / "b", "A", "2026-01-02T00:00:00Z", 30, 10);
  std::filesystem::remove(folder / "a/samples.jsonl");
  const History history = trace_history(read_history({folder / "a", folder / "b"}), {});
  EXPECT_EQ(history.series[0].values, (std::vector<std::optional<double>>{40, 100}));
  EXPECT_TRUE(history.series[0].changes.empty());
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// Of one folder, and as `noisefloor history runs/*` gives them.
TEST(History, LeavesOutWhatAKilledCommandWasWritingAndWhatEditorsLeft) {
  const TemporaryFolder folder;
  for (const char* name : {"runs/a", "runs/b.4711.partial", "runs/c.4711.old", "runs/a~", "runs/.Trash-0"})
    write_run(folder / name, "A", "2026-01-01T00:00:00Z", 10, 10);
  for (const auto& given :
       {std::vector{folder / "runs"},
        std::vector{folder / "runs/a", folder / "runs/b.4711.partial/", folder / "runs/c.4711.old"}}) {
    std::vector<std::filesystem::path> left_out;
    const auto runs = read_history(given, &left_out);
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0].files.folder, folder / "runs/a");
    EXPECT_EQ(left_out.size(), given.size() == 1 ? 4u : 2u);
  }
  EXPECT_NE(refusal([&] { read_history({folder / "runs/b.4711.partial"}); }).find("it is no run"), std::string::npos);
}

TEST(History, RefusesWhatItCannotTrace) {
  const TemporaryFolder folder;
  write_run(folder / "runs/a", "A", "2026-01-01T00:00:00Z", 10, 10);
  std::filesystem::create_directories(folder / "empty");
  EXPECT_NE(refusal([&] { read_history({folder / "nowhere"}); }).find("no such folder"), std::string::npos);
  EXPECT_NE(refusal([&] { read_history({folder / "empty"}); }).find("no run there"), std::string::npos);
  EXPECT_NE(refusal([&] {
              read_history({folder / "runs", folder / "runs/a"});
            }).find("given twice"),
            std::string::npos);
  const auto runs = read_history({folder / "runs"});
  const auto refused = [&](HistorySelection selection) { return refusal([&] { trace_history(runs, selection); }); };
  EXPECT_NE(refused({.case_pattern = "("}).find("not a regular expression"), std::string::npos);
  EXPECT_NE(refused({.case_pattern = "conv"}).find("no timed case"), std::string::npos);
  EXPECT_NE(refused({.networks = {"nit"}}).find("networks are net"), std::string::npos);
  EXPECT_NE(refused({.warm = true}).find("no complete total"), std::string::npos);
  write_atomically(folder / "runs/a/env.json", R"({"device": "A", "commit": "abc"})");
  EXPECT_NE(refusal([&] { read_history({folder / "runs"}); }).find("time_utc"), std::string::npos);
  write_run(folder / "runs/a", "A", "yesterday", 10, 10);
  EXPECT_NE(refusal([&] { read_history({folder / "runs"}); }).find("'yesterday'"), std::string::npos);
}

TEST(History, TimesAreOfTheirZones) {
  const TemporaryFolder folder;
  write_run(folder / "runs/a", "A", "2026-01-01T09:30:00+01:00", 10, 10);
  write_run(folder / "runs/b", "A", "2026-01-01T09:00:00Z", 20, 10);
  write_run(folder / "runs/c", "A", "2026-01-01 03:00:00-0500", 30, 10);
  std::string order;
  for (const HistoryRun& run : read_history({folder / "runs"})) order += run.files.folder.filename();
  EXPECT_EQ(order, "cab");
  EXPECT_EQ(parse_time("1970-01-02T00:00:00.5Z"), 86400.5);
  EXPECT_EQ(parse_time("2000-03-01T00:00:00Z"), 951868800);
  for (const char* wrong : {"", "2026-01-01", "2026-01-01T09:30:00", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z",
                            "2026-01-01T00:00:00+25:00", " 2026-01-01T00:00:00Z", "1767225600"})
    EXPECT_FALSE(parse_time(wrong)) << wrong;
}

}  // namespace
}  // namespace noisefloor
