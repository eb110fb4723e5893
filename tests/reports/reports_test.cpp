// Statistics, CSV, the sweep's rows and what roofline makes of them.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/statistics.h"
#include "reports/run/sweep_csv.h"
#include "reports/totals/totals.h"
#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

SweepRow timed_row(const std::string& problem, const std::string& variant, const std::string& kind, double us) {
  SweepRow row = ok_row({{"gemm", problem, "bf16"}, variant}, kind, us);
  row.flops = 2e9, row.bytes = 1e6;
  return row;
}

TEST(Statistics, MedianOfOddEvenAndNone) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{1, 1, 2, 2, 4, 6, 9}), 1);
}

TEST(Statistics, IntervalHoldsTheMedian) {
  EXPECT_TRUE(rc::check("the interval encloses the median and lies within the samples", [] {
    const auto samples = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-1000, 1000)));
    const std::vector<double> values(samples.begin(), samples.end());
    const Interval interval = median_interval(values);
    RC_ASSERT(interval.low <= median(values));
    RC_ASSERT(interval.high >= median(values));
    RC_ASSERT(interval.low >= *std::min_element(values.begin(), values.end()));
    RC_ASSERT(interval.high <= *std::max_element(values.begin(), values.end()));
  }));
}

// 100 samples 1..100: ranks 50 -+ 9.8, so the 41st and the 61st value (from 1).
TEST(Statistics, IntervalOfKnownRanks) {
  std::vector<double> values(100);
  for (int i = 0; i < 100; ++i) values[static_cast<std::size_t>(i)] = i + 1;
  EXPECT_EQ(median_interval(values).low, 41);
  EXPECT_EQ(median_interval(values).high, 61);
}

TEST(Csv, QuotingRoundTrips) {
  EXPECT_TRUE(rc::check("what quote_csv writes, split_csv_line reads", [] {
    // Of every character, and of those that matter.
    const auto any =
        rc::gen::oneOf(rc::gen::string<std::string>(),
                       rc::gen::container<std::string>(rc::gen::element('\'', '=', '-', '+', '"', ',', '1', 'a')));
    auto fields = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(any));
    std::string line;
    for (std::size_t i = 0; i < fields.size(); ++i) line += (i > 0 ? "," : "") + quote_csv(fields[i]);
    for (std::string& field : fields)
      for (char& c : field)
        if (c == '\n' || c == '\r') c = ' ';  // a row is one line
    RC_ASSERT(split_csv_line(line) == fields);
  }));
}

TEST(Csv, GivesASpreadsheetNoFormula) {
  for (const char* text : {"=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "'=1+1", "''-x", "=\"a\",b"}) {
    const std::string cell = quote_csv(text);
    EXPECT_EQ(cell.substr(cell.front() == '"' ? 1 : 0, 1), "'") << cell;
    EXPECT_EQ(split_csv_line(cell + ",=x"), (std::vector<std::string>{text, "=x"}));
  }
  for (const char* text : {"-1.5", "+3e-5", "-inf", "-", "'", "it's", "'twas", "1-1", ""}) {
    EXPECT_EQ(quote_csv(text), text);
    EXPECT_EQ(split_csv_line(text), std::vector<std::string>{text});
  }
}

TEST(Csv, RefusesBrokenLines) {
  EXPECT_THROW(split_csv_line("a,\"b"), std::runtime_error);
  EXPECT_THROW(split_csv_line("\"a\"b"), std::runtime_error);
}

TEST(Csv, WritesWholeFilesOrNone) {
  const TemporaryFolder folder;
  write_atomically(folder / "file", "first\n");
  write_atomically(folder / "file", "second\n");
  EXPECT_EQ(read_csv(folder / "file").header.at(0), "second");
  std::filesystem::create_directory(folder / "folder");  // a name that nothing can be renamed to
  for (const char* name : {"folder", "nowhere/file"}) {
    expect_parts(error_of([&] { return write_atomically(folder / name, "text"), 0; }), {name});
  }
  const auto entries = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 2) << "a partial file was left behind";
}

TEST(SweepCsv, WhatALibraryGetsWrongIsARowAndNoFailure) {
  SweepRow row;
  for (const char* kind : {"ptx", "host", "network", "baseline"})
    for (const Outcome status : {Outcome::ok, Outcome::incorrect, Outcome::cuda_error, Outcome::throttled,
                                 Outcome::unsupported_problem, Outcome::out_of_memory, Outcome::not_built}) {
      row.kind = kind;
      row.status = status;
      const bool wrong = status == Outcome::incorrect || status == Outcome::cuda_error;
      EXPECT_EQ(is_failure(row), wrong && row.kind != "baseline") << kind << " " << to_string(status);
    }
}

TEST(SweepCsv, NetworksParse) {
  const auto counts = parse_networks("adm64-b1:10;sd15-b2:2");
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[1].network, "sd15-b2");
  EXPECT_EQ(counts[0].count, 10);
  EXPECT_TRUE(parse_networks("").empty());
  for (const char* text : {"adm64", "adm64:x", "adm64:0", ":1"})
    EXPECT_THROW(parse_networks(text), std::runtime_error) << text;
}

TEST(Roofline, FastestLeavesOutRowsThatAreNotOk) {
  std::vector<SweepRow> rows = {timed_row("p", "a", "naive", 1), timed_row("p", "b", "tiled", 2)};
  rows[0].status = Outcome::throttled;
  ASSERT_EQ(fastest_rows(rows, false).size(), 1u);
  EXPECT_EQ(fastest_rows(rows, false)[0]->variant, "b");
}

TEST(Roofline, CompletesRowsOfOtherPrograms) {
  std::vector<SweepRow> rows = {timed_row("p", "ptx", "ptx", 10), timed_row("p", "torch_eager", "baseline", 20)};
  rows[0].bound = {Bound::By::compute, "tensor_bf16"};
  complete_rows(rows, {"", "", "", {{"dram_copy", 4000, "GB/s"}, {"tensor_bf16", 800000, "GFLOP/s"}}});
  EXPECT_EQ(rows[1].bound, rows[0].bound);
  EXPECT_DOUBLE_EQ(rows[1].attainable_gflops.value(), 800000);     // ai 2000 x 4000 GB/s is above it
  EXPECT_DOUBLE_EQ(rows[1].pct_of_roof.value(), 100 * 1e5 / 8e5);  // 2e9 FLOP in 20 us
}

TEST(Roofline, ScoresBetweenTheRoofAndTheBestBaseline) {
  const CeilingTable ceilings{"", "", "", {{"dram_copy", 4000, "GB/s"}, {"tensor_bf16", 800000, "GFLOP/s"}}};
  const auto scores = [&](std::vector<std::pair<const char*, double>> times) {
    std::vector<SweepRow> rows;
    for (const auto& [kind, us] : times) rows.push_back(timed_row("p", fmt::format("{}{}", kind, us), kind, us));
    rows[0].bound = {Bound::By::compute, "tensor_bf16"};
    complete_rows(rows, ceilings);
    const TemporaryFolder folder;
    write_roofline_csv(folder / "roofline.csv", rows, ceilings);
    std::vector<std::string> found;
    for (const CsvLine& line : read_csv(folder / "roofline.csv").lines) found.push_back(line.fields.back());
    return found;
  };
  using Scores = std::vector<std::string>;  // the roof is at 2.5 us
  EXPECT_EQ(scores({{"ptx", 10}, {"baseline", 20}, {"baseline", 30}, {"tiled", 2.5}}),
            (Scores{"0.7", "0.5", "0.3889", "1"}));
  EXPECT_EQ(scores({{"ptx", 2.4}, {"baseline", 20}}), (Scores{"1", "0.5"})) << "nothing is above 1";
  EXPECT_EQ(scores({{"ptx", 10}}), Scores{""}) << "no baseline";
  EXPECT_EQ(scores({{"ptx", 10}, {"baseline", 2.4}}), (Scores{"", ""})) << "it is at the roof";
}

TEST(Roofline, WritesItsFiles) {
  const TemporaryFolder folder;
  const std::vector<SweepRow> rows = {timed_row("m=1,n=2", "naive", "naive", 10),
                                      timed_row("m=1,n=2", "torch_eager", "baseline", 1)};
  write_roofline_csv(folder / "roofline.csv", rows, {"", "", "", {{"dram_copy", 4000, "GB/s"}}});
  write_plan_csv(folder / "plan.csv", rows);
  EXPECT_EQ(read_csv(folder / "roofline.csv").lines.at(0).fields.at(4), "m=1,n=2");
  EXPECT_EQ(read_csv(folder / "plan.csv").lines.at(0).fields,
            (std::vector<std::string>{"gemm", "bf16", "m=1,n=2", "naive"}));
  EXPECT_THROW(write_plan_csv(folder / "nowhere" / "plan.csv", rows), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor
