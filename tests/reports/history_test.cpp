// Changes of level, and the trend of cases and totals over run folders.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <random>

#include "reports/history/history.h"
#include "reports/run/files.h"
#include "reports/run/statistics.h"
#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

// Samples scatter by up to 1 %, and the run as a whole is off by up to 0.7 %, as clocks make it.
RunValue run_around(double level, std::mt19937& random) {
  std::uniform_real_distribution<double> scatter(-0.01, 0.01), offset(-0.007, 0.007);
  const double center = level * (1 + offset(random));
  std::vector<double> samples;
  for (int i = 0; i < 20; ++i) samples.push_back(center * (1 + scatter(random)));
  const Interval interval = median_interval(samples, 3);
  return {median(samples), interval.low, interval.high};
}

TEST(Changes, LevelsAreFoundWhereTheyBegin) {
  EXPECT_TRUE(rc::check("one to four levels, 8 % to 100 % apart, of a run or more; the unit does not matter", [] {
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    const auto levels = *rc::gen::inRange(1, 5);
    std::vector<RunValue> runs, scaled;
    std::vector<std::size_t> at;
    double level = *rc::gen::inRange(20, 5000);
    for (int i = 0; i < levels; ++i) {
      if (i > 0) {
        at.push_back(runs.size());
        const double factor = 1 + 0.01 * *rc::gen::inRange(8, 100);
        level = *rc::gen::arbitrary<bool>() ? level * factor : level / factor;
      }
      for (int run = *rc::gen::inRange(1, 12); run > 0; --run) runs.push_back(run_around(level, random));
    }
    for (const RunValue& run : runs) scaled.push_back({1000 * run.value, 1000 * run.low, 1000 * run.high});
    RC_PRE(std::ranges::all_of(runs, [](const RunValue& run) { return run.value > 10; }));  // 8 % are above 0.5 us
    const auto found = changes_of(runs), of_scaled = changes_of(scaled);
    RC_ASSERT(found.size() == at.size() && of_scaled.size() == at.size());
    for (std::size_t i = 0; i < at.size(); ++i) {
      RC_ASSERT(found[i].index == at[i] && of_scaled[i].index == at[i]);
      std::vector<double> before, after;
      const std::size_t end = i + 1 < at.size() ? at[i + 1] : runs.size();
      for (std::size_t run = i == 0 ? 0 : at[i - 1]; run < end; ++run)
        (run < at[i] ? before : after).push_back(runs[run].value);
      RC_ASSERT(found[i].before == median(before) && found[i].after == median(after));
    }
  }));
}

std::size_t changes(double before, double after, double noise = 1e-3) {
  std::vector<RunValue> runs;
  for (int i = 0; i < 10; ++i) {
    const double level = i < 5 ? before : after;
    runs.push_back({level, level * (1 - noise), level * (1 + noise)});
  }
  return changes_of(runs).size();
}

TEST(Changes, SmallOnesAreNone) {
  EXPECT_EQ(changes(100, 102.9), 0U) << "below 3 %";
  EXPECT_EQ(changes(100, 103.2), 1U);
  EXPECT_EQ(changes(100, 103.2, 0.02), 0U) << "within the noise";
  EXPECT_EQ(changes(100, 110, 0.02), 1U);
  EXPECT_EQ(changes(3, 3.45), 0U) << "15 %, but below 0.5 us";
  EXPECT_EQ(changes(3, 3.55), 1U);
  EXPECT_TRUE(changes_of({}).empty());
  // The first is off by less than its neighbours: once all are known, it is of their level.
  const RunValue off{97, 96.9, 97.1}, high{100.2, 100.1, 100.3}, usual{98.5, 98.4, 98.6};
  EXPECT_TRUE(changes_of(std::vector{off, high, usual, usual, usual}).empty());
}

// A run folder with one network of two problems; times by problem, 0: out of memory.
void write_history_run(const std::filesystem::path& folder, const std::string& device, const std::string& time,
                       double first, double second) {
  std::filesystem::create_directories(folder);
  std::vector<SweepRow> rows;
  std::string lines;
  for (const auto& [problem, us] : {std::pair("m=1", first), std::pair("m=2", second)}) {
    SweepRow& row = rows.emplace_back(ok_row({{"gemm", problem, "bf16"}, "ptx"}, "ptx", us));
    row.networks = std::string("net:") + (row.problem == "m=1" ? "3" : "1"), row.device = device;
    if (us == 0) row.status = Outcome::out_of_memory, row.time_cold_us.reset();
    RowSamples samples;
    for (int i = 0; i < 20; ++i) samples.cold_us.push_back(us * (1 + 1e-4 * (i - 9.5)));
    if (us > 0) lines += samples_line(row, samples) + "\n";
  }
  write_atomically(folder / "sweep.csv", sweep_text(rows));
  write_atomically(folder / "samples.jsonl", lines);
  write_atomically(folder / "env.json",
                   R"({"device": ")" + device + R"(", "commit": "abc", "time_utc": ")" + time + "\"}");
}

TEST(History, TotalsInTheOrderOfTimeAndDevicesApart) {
  const TemporaryFolder folder;
  write_history_run(folder / "runs/c", "A", "2026-03-01T00:00:00Z", 20, 10);
  write_history_run(folder / "runs/a", "A", "2026-02-01T00:00:00Z", 10, 10);
  write_history_run(folder / "runs/b", "A", "2026-01-01T00:00:00Z", 10, 10);
  write_history_run(folder / "runs/d", "B", "2026-01-15T00:00:00Z", 90, 10);
  const auto runs = read_history({folder / "runs"});
  const History history = trace_history(runs, {});
  ASSERT_EQ(history.size(), 2U);
  EXPECT_EQ(history[0].name, "net/gemm/bf16/own best");
  EXPECT_EQ(history[0].device, "A");
  EXPECT_EQ(history[0].values, (std::vector<std::optional<double>>{40, 40, 70}));
  ASSERT_EQ(history[0].changes.size(), 1U);
  EXPECT_EQ(history[0].changes[0].index, 2U);
  EXPECT_EQ(history[0].changes[0].before, 40);
  EXPECT_EQ(history[0].changes[0].after, 70);
  EXPECT_EQ(history[1].values, (std::vector<std::optional<double>>{280}));
  const std::string table = history_table(runs, history);
  expect_parts(table, {"2 devices: their runs are kept apart", "*70",
                       "changed at #3 (abc): net/gemm/bf16/own best: 40 -> 70 us (+75.0 %)"});
  const std::string csv = history_csv(runs, history);
  EXPECT_NE(csv.find("A,net/gemm/bf16/own best,c,2026-03-01T00:00:00Z,abc,70,75\n"), std::string::npos) << csv;
}

TEST(History, ATotalThatLacksAProblemIsNoTotal) {
  const TemporaryFolder folder;
  write_history_run(folder / "a", "A", "2026-01-01T00:00:00Z", 10, 10);
  write_history_run(folder / "b", "A", "2026-01-02T00:00:00Z", 10, 0);
  const auto runs = read_history({folder / "a", folder / "b"});
  EXPECT_EQ(trace_history(runs, {})[0].values, (std::vector<std::optional<double>>{40, std::nullopt}));
  HistorySelection cases;
  cases.case_pattern = "gemm/m=[12]/bf16";
  const History history = trace_history(runs, cases);
  ASSERT_EQ(history.size(), 2U);
  EXPECT_EQ(history[1].name, "gemm/m=2/bf16/ptx");
  EXPECT_EQ(history[1].values, (std::vector<std::optional<double>>{10, std::nullopt}));
}

TEST(History, RunsWithoutSamplesStillHaveATrend) {
  const TemporaryFolder folder;
  write_history_run(folder / "a", "A", "2026-01-01T00:00:00Z", 10, 10);
  write_history_run(folder / "b", "A", "2026-01-02T00:00:00Z", 30, 10);
  std::filesystem::remove(folder / "a/samples.jsonl");
  const History history = trace_history(read_history({folder / "a", folder / "b"}), {});
  EXPECT_EQ(history[0].values, (std::vector<std::optional<double>>{40, 100}));
  EXPECT_EQ(history[0].changes.size(), 1U) << "by the medians alone";
}

// Of one folder, and as `noisefloor history runs/*` gives them.
TEST(History, LeavesOutWhatAKilledCommandWasWritingAndWhatEditorsLeft) {
  const TemporaryFolder folder;
  for (const char* name : {"runs/a", "runs/b.4711.partial", "runs/c.4711.old", "runs/.Trash-0"})
    write_history_run(folder / name, "A", "2026-01-01T00:00:00Z", 10, 10);
  for (const auto& given :
       {std::vector{folder / "runs"},
        std::vector{folder / "runs/a", folder / "runs/b.4711.partial/", folder / "runs/c.4711.old"}}) {
    const auto runs = read_history(given);
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0].files.folder, folder / "runs/a");
  }
  expect_parts(error_of([&] { return read_history({folder / "runs/b.4711.partial"}); }), {"it is no run"});
}

TEST(History, RefusesWhatItCannotTrace) {
  const TemporaryFolder folder;
  write_history_run(folder / "runs/a", "A", "2026-01-01T00:00:00Z", 10, 10);
  std::filesystem::create_directories(folder / "empty");
  expect_parts(error_of([&] { return read_history({folder / "nowhere"}); }), {"no such folder"});
  expect_parts(error_of([&] { return read_history({folder / "empty"}); }), {"no run there"});
  expect_parts(error_of([&] { return read_history({folder / "runs", folder / "runs/a"}); }), {"given twice"});
  const auto runs = read_history({folder / "runs"});
  const auto refused = [&](HistorySelection selection) {
    return error_of([&] { return trace_history(runs, selection); });
  };
  expect_parts(refused({.case_pattern = "("}), {"not a regular expression"});
  expect_parts(refused({.case_pattern = "conv"}), {"no timed case"});
  expect_parts(refused({.networks = {"nit"}}), {"networks are net"});
  expect_parts(refused({.networks = {"sd15-whole-b2"}}), {"sd15-whole-b2 is called sd15-b2"});
  expect_parts(refused({.warm = true}), {"no complete total"});
  write_atomically(folder / "runs/a/env.json", R"({"device": "A", "commit": "abc"})");
  expect_parts(error_of([&] { return read_history({folder / "runs"}); }), {"time_utc"});
  write_history_run(folder / "runs/a", "A", "yesterday", 10, 10);
  expect_parts(error_of([&] { return read_history({folder / "runs"}); }), {"'yesterday'"});
}

TEST(History, TimesAreOfTheirZones) {
  const TemporaryFolder folder;
  write_history_run(folder / "runs/a", "A", "2026-01-01T09:30:00+01:00", 10, 10);
  write_history_run(folder / "runs/b", "A", "2026-01-01T09:00:00Z", 20, 10);
  write_history_run(folder / "runs/c", "A", "2026-01-01 03:00:00-0500", 30, 10);
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
