// Columns by name: read in any order, kept where they are not known, refused where a row would mean nothing.
#include "reports/run/columns.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "reports/gate/gate.h"
#include "reports/history/history.h"
#include "reports/page/run_report.h"
#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/merge_runs.h"
#include "reports/totals/totals.h"
#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;
const fs::path kRecorded = "reports/recorded";
const fs::path kOlder = "tests/reports/older_run";  // of 62783bd, before 27 of today's columns

// A table's columns in another order, some left out, with one more.
CsvFile shuffled(const CsvFile& file, const std::vector<std::size_t>& order, const std::string& more) {
  CsvFile made{file.file, {}, {}};
  for (const std::size_t place : order) made.header.push_back(file.header[place]);
  made.header.push_back(more);
  for (const CsvLine& line : file.lines) {
    CsvLine changed{line.number, {}};
    for (const std::size_t place : order) changed.fields.push_back(line.fields[place]);
    changed.fields.push_back("x" + std::to_string(line.number));
    made.lines.push_back(changed);
  }
  return made;
}

TEST(Columns, AreReadInAnyOrderAndUnknownOnesKept) {
  const TemporaryFolder folder;
  auto expected = read_sweep_csv(kRecorded / "nvidia-h200/sweep.csv");
  expected.resize(50);
  write_atomically(folder / "sweep.csv", sweep_text(expected));
  const CsvFile recorded = read_csv(folder / "sweep.csv");
  EXPECT_TRUE(rc::check("any order, one more column, and what is not needed may be missing", [&] {
    std::vector<std::size_t> order;
    std::set<std::string> left_out;
    for (std::size_t i = 0; i < recorded.header.size(); ++i) {
      const SweepColumn& column = *std::find_if(sweep_columns().begin(), sweep_columns().end(),
                                                [&](const auto& one) { return one.name == recorded.header[i]; });
      if (!column.is(ColumnInfo::kNeeded) && *rc::gen::inRange(0, 4) == 0)
        left_out.insert(column.name);
      else
        order.push_back(i);
    }
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[*rc::gen::inRange<std::size_t>(0, i)]);
    write_atomically(folder / "other.csv", shuffled(recorded, order, "of_later").text());
    const auto rows = read_sweep_csv(folder / "other.csv");
    RC_ASSERT(rows.size() == expected.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      RC_ASSERT(rows[i].others.at("of_later") == "x" + std::to_string(i + 2));
      for (const SweepColumn& column : sweep_columns())
        RC_ASSERT(column.write(rows[i]) == column.write(left_out.contains(column.name) ? SweepRow() : expected[i]));
    }
    // And what is written again is read as the same.
    const auto others = other_columns(rows);
    write_atomically(folder / "again.csv", sweep_text(rows));
    const auto again = read_sweep_csv(folder / "again.csv");
    for (std::size_t i = 0; i < rows.size(); ++i) RC_ASSERT(to_csv(again[i], others) == to_csv(rows[i], others));
  }));
}

// Older files are read by the names that columns had.
TEST(Columns, AreReadByTheirOldNames) {
  const TemporaryFolder folder;
  EXPECT_EQ(other_columns(read_sweep_csv(kRecorded / "nvidia-h200/sweep.csv")), std::vector<std::string>());
  for (const char* old : {"rival", "duel_cold", "duel_cold_low", "duel_cold_high", "duel_warm", "duel_warm_low",
                          "duel_warm_high", "edge_us", "places"}) {
    CsvFile file{"", {"op", "variant", "kind", "dtype", "problem", "status", "device", "time_cold_us", old}, {}};
    file.lines.push_back({2, {"gemm", "host", "host", "fp32", "m=1", "ok", "a", "5", "3"}});
    write_atomically(folder / "sweep.csv", file.text());
    const auto rows = read_sweep_csv(folder / "sweep.csv");
    EXPECT_TRUE(rows.at(0).others.empty()) << old;
    const auto has_it = [&](const SweepColumn& column) { return column.write(rows[0]) == "3"; };
    EXPECT_EQ(std::ranges::count_if(sweep_columns(), has_it), 1) << old;
  }
}

TEST(Columns, WithoutWhichARowMeansNothingAreRequiredByName) {
  const TemporaryFolder folder;
  std::set<std::string> needed;
  for (const SweepColumn& column : sweep_columns()) {
    std::string header;
    for (const SweepColumn& other : sweep_columns())
      if (&other != &column) header += (header.empty() ? "" : ",") + std::string(other.name);
    write_atomically(folder / "sweep.csv", header + "\n");
    const std::string said = error_of([&] { return read_sweep_csv(folder / "sweep.csv"); });
    if (said.empty()) continue;
    expect_parts(said, {std::string(":1: no column '") + column.name + "'"});
    needed.insert(column.name);
  }
  EXPECT_EQ(needed,
            (std::set<std::string>{"op", "variant", "kind", "dtype", "problem", "status", "device", "time_cold_us"}));
}

TEST(Columns, HaveNamesDescriptionsAndPlacesOfTheirOwn) {
  std::set<std::string> names;
  std::set<int> places;
  for (const SweepColumn& column : sweep_columns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
    EXPECT_TRUE(column.shown.place == 0 || places.insert(column.shown.place).second) << column.name;
    EXPECT_GT(std::string(column.description).size(), 10u) << column.name;
    EXPECT_FALSE(column.text() && column.is(ColumnInfo::kCounter)) << column.name;
  }
  EXPECT_EQ(*places.rbegin(), static_cast<int>(places.size())) << "no place is left out";
}

TEST(Columns, ABoundIsReadAsItIsWritten) {
  for (const char* text : {"", "memory:tensor_bf16", "compute:fma_fp32"}) EXPECT_EQ(Bound::parse(text).text(), text);
  EXPECT_EQ(Bound::parse("memory:tensor_bf16"), (Bound{Bound::By::memory, "tensor_bf16"}));
  for (const char* text : {"memory", "Compute:x", ":tensor_bf16"})
    EXPECT_THROW(Bound::parse(text), std::runtime_error) << text;
}

// Each recorded folder.
TEST(Recorded, EveryRunIsReadableByEveryCommand) {
  std::vector<fs::path> folders = {kOlder};
  for (const auto& entry : fs::directory_iterator(kRecorded))
    if (entry.is_directory()) folders.push_back(entry.path());
  EXPECT_GE(folders.size(), 3u);
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.string());
    const RunFiles run = read_run(folder);
    const GateResult result = gate(run, run, {});
    // Where the noise is too large to see 5 % a row is ambiguous, even against itself.
    EXPECT_EQ(result.count(GateVerdict::pass) + result.count(GateVerdict::ambiguous), result.rows.size());
    const bool is_small = result.rows.size() < 100;  // whole networks alone: few samples of each
    EXPECT_GT(result.count(GateVerdict::pass), (is_small ? 5 : 8) * result.rows.size() / 10);
    constexpr std::size_t kFewest = 3;  // results in the making may have so many networks alone
    EXPECT_GE(total_changes(run, run, {}).size(), kFewest);
    const auto history = trace_history(read_history({folder}), {});
    EXPECT_GE(history.size(), kFewest);
    auto rows = run.rows;
    complete_rows(rows, read_ceilings(folder / "ceilings.csv"));
    EXPECT_EQ(run_report(folder, rows)["rows"]["count"], rows.size());
  }
}

// network -> the ops of its problems. The rows' own column must have no other names.
std::map<std::string, std::set<std::string>> ops_of_networks(const RunFiles& run) {
  std::map<std::string, std::set<std::string>> ops;
  for (const NetworkProblem& one : read_network_problems(run.folder, run.rows)) ops[one.network].insert(one.op);
  for (const NetworkProblem& one : network_problems_of(run.rows)) EXPECT_TRUE(ops.contains(one.network)) << one.network;
  return ops;
}

// sd15-b2 was an unfused list, and the network itself sd15-whole-b2.
TEST(Recorded, NetworksOfOlderRunsAreReadAsWhatTheyWere) {
  const auto recorded = ops_of_networks(read_run(kRecorded / "nvidia-h200"));
  for (const auto& [network, ops] : recorded) EXPECT_EQ(network.find("-whole-"), std::string::npos) << network;
  EXPECT_EQ(recorded.at("sd15-b2"), std::set<std::string>{"network"});
  EXPECT_TRUE(recorded.at("sd15-unfused-b2").contains("gemm"));
  EXPECT_TRUE(recorded.contains("adm64-fused-away-b1") && recorded.contains("adm64-folded-b1"));
  EXPECT_FALSE(recorded.contains("adm64-unfused-b1")) << "that is the whole list now";

  // A folder that is written of it has today's names, which are not read as old ones once more.
  const TemporaryFolder folder;
  (void)merge_runs({kOlder}, folder / "merged", {});
  const RunFiles older = read_run(kOlder), merged = read_run(folder / "merged");
  EXPECT_TRUE(ops_of_networks(older).contains("svd-14f-unfused-b2"));
  EXPECT_EQ(ops_of_networks(merged), ops_of_networks(older));
  EXPECT_EQ(gate(older, merged, {}).rows.size(), gate(older, older, {}).rows.size());
  for (const TotalChange& change : total_changes(older, merged, {}))
    EXPECT_EQ(change.a.cold.us, change.b.cold.us) << change.network << " " << change.op;
  HistorySelection unfused;
  unfused.networks = {"sd15-unfused-b2"};
  for (const HistorySeries& series : trace_history(read_history({kOlder, folder / "merged"}), unfused)) {
    ASSERT_EQ(series.values.size(), 2u);
    EXPECT_EQ(series.values[0], series.values[1]) << series.name;
  }
}

TEST(Csv, MergingKeepsEveryColumn) {
  const TemporaryFolder folder;
  write_atomically(folder / "a.csv", "key,count,note\n1,5,\"a, b\"\n2,6,c\n");
  write_atomically(folder / "b.csv", "more,count,key\nx,7,2\ny,8,3\n");
  merge_csv_file(folder / "a.csv", read_csv(folder / "b.csv"), {"key"});
  EXPECT_EQ(read_csv(folder / "a.csv").text(), "key,count,note,more\n1,5,\"a, b\",\n2,7,c,x\n3,8,,y\n");
  merge_csv_file(folder / "new.csv", read_csv(folder / "b.csv"), {"key"});
  EXPECT_EQ(read_csv(folder / "new.csv").text(), read_csv(folder / "b.csv").text());
  EXPECT_THROW(merge_csv_file(folder / "a.csv", read_csv(folder / "b.csv"), {"note"}), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor
