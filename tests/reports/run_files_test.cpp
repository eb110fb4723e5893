// Reading a run folder back: what is whole is read, what is not is named by file, line and field.
#include "reports/run/run_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <ranges>
#include <tuple>

#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

constexpr const char* kEnvironment =
    R"({"schema": 2, "device": "Test GPU", "commit": "abc", "command_lines": [["noisefloor", "sweep"]]})";

SweepRow row_by(const std::string& variant) {
  SweepRow row = ok_row({{"gemm", "m=1,n=2,k=3", "bf16"}, variant}, "", 2, 1);
  row.samples = 3, row.commit = "";
  return row;
}

std::string line(const std::string& rest) {
  return R"({"op":"gemm","dtype":"bf16","problem":"m=1,n=2,k=3","variant":"naive",)" + rest + "}";
}

// A folder whose files can be replaced one by one.
class RunFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    write("env.json", kEnvironment);
    write("sweep.csv", sweep_csv_header() + to_csv(row_by("naive")));
    write("samples.jsonl",
          line(R"("cold_us":[1.5,2,3],"warm_us":[1],"cold_batches":[1,2],"cold_mhz":[1980.5,null])") + "\n");
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string message() {
    const std::string text = error_of([&] { return read_run(folder_.path()); }), place = folder_.path().string() + "/";
    return text.starts_with(place) ? text.substr(place.size()) : text;
  }
  TemporaryFolder folder_;
};

TEST_F(RunFilesTest, ReadsAWholeOne) {
  const RunFiles run = read_run(folder_.path());
  EXPECT_EQ(run.environment.device, "Test GPU");
  EXPECT_EQ(run.environment.schema, 2);
  EXPECT_EQ(run.environment.command_lines.at(0).at(1), "sweep");
  EXPECT_FALSE(run.environment.power_limit_w);
  ASSERT_EQ(run.rows.size(), 1u);
  const RowSamples& samples = run.samples_of(run.rows[0]);
  EXPECT_EQ(samples.cold_us, (std::vector<double>{1.5, 2, 3}));
  EXPECT_EQ(samples.warm_us, std::vector<double>{1});
  EXPECT_EQ(samples.cold_batches, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(samples.cold_mhz.at(0), 1980.5);
  EXPECT_TRUE(std::isnan(samples.cold_mhz.at(1)));
  EXPECT_THROW((void)run.samples_of(row_by("tiled")), std::runtime_error);
}

TEST_F(RunFilesTest, ReadsTheFirstSchema) {
  write("env.json", R"({"device": "Test GPU", "commit": "abc"})");
  write("samples.jsonl", line(R"("cold_us":[1.5,2,3],"warm_us":[1])") + "\n");
  const RunFiles run = read_run(folder_.path());
  EXPECT_EQ(run.environment.schema, 1);
  EXPECT_TRUE(run.samples_of(run.rows[0]).cold_batches.empty());
}

TEST_F(RunFilesTest, LeavesOutSamplesWithoutARow) {
  write("sweep.csv", sweep_csv_header());
  EXPECT_TRUE(read_run(folder_.path()).samples.empty());
}

TEST_F(RunFilesTest, NamesFilesThatAreNotThere) {
  std::filesystem::remove(folder_ / "env.json");
  EXPECT_EQ(message(), "env.json: cannot be read: No such file or directory");
  std::filesystem::remove(folder_ / "sweep.csv");
  EXPECT_NE(message().find(": no sweep.csv there; give the folder of a run"), std::string::npos);
  EXPECT_THROW((void)read_run(folder_ / "none"), std::runtime_error);
  EXPECT_THROW((void)read_run(""), std::runtime_error);
}

TEST_F(RunFilesTest, NamesWhatIsWrongInTheEnvironment) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "env.json:1: is not JSON"},
      {"{\n\"device\": \"a\",\n", "env.json:3: is not JSON"},
      {"[]", "env.json: is not a JSON object"},
      {R"({"commit": "abc"})", "env.json: field 'device' is missing"},
      {R"({"device": 1, "commit": "abc"})", "env.json: field 'device' is not a text"},
      {R"({"device": "a", "commit": "b", "schema": 4})",
       "env.json: schema 4 is newer than this program, which knows 1 to 3"},
      {R"({"device": "a", "commit": "b", "schema": -1})", "env.json: field 'schema' is not a whole number from 1"},
      {R"({"device": "a", "commit": "b", "power_limit_w": "700"})",
       "env.json: field 'power_limit_w' is not a number from 0"},
      {R"({"device": "a", "commit": "b", "power_limit_w": -1.5})",
       "env.json: field 'power_limit_w' is not a number from 0"},
      {R"({"device": "a", "commit": "b", "l2_bytes": "big"})", "env.json: field 'l2_bytes' is not a number from 0"},
      {R"({"device": "a", "commit": "b", "command_lines": ["sweep"]})",
       "env.json: field 'command_lines' is not a list of lists of texts"},
  };
  for (const auto& [text, says] : cases) {
    write("env.json", text);
    EXPECT_TRUE(message().starts_with(says)) << message();
  }
}

TEST_F(RunFilesTest, NamesWhatIsWrongInTheRows) {
  const std::string header = sweep_csv_header(), row = to_csv(row_by("naive"));
  write("sweep.csv", header + row + to_csv(row_by("tiled")) + row);
  EXPECT_EQ(message(), "sweep.csv:4: the row of gemm/m=1,n=2,k=3/bf16/naive is there twice, first in line 2");
  write("sweep.csv", header + row.substr(0, row.size() - 4));
  EXPECT_TRUE(message().starts_with("sweep.csv:2: the last line is cut off")) << message();
  SweepRow nameless = row_by("");
  write("sweep.csv", header + to_csv(nameless));
  EXPECT_EQ(message(), "sweep.csv:2: column 'variant' is blank");
  const std::tuple<const char*, const char*, std::vector<std::string>> cells[] = {
      {",2,,", "'time_cold_us': ", {",nan,,", ",-1,,", ",0,,", ",inf,,", ",,,"}},
      {",1,", "'time_warm_us': ", {",0,"}},
      {",ok,", "'status': 'fine'", {",fine,"}},
      {"\"m=1,n=2,k=3\",", "'networks': ", {"p,adm64", "p,adm64:0"}},
      {"m=1", "'problem' has 5", {"m=" + std::string(5000, '1')}}};
  for (const auto& [old, says, changed] : cells)
    for (const std::string& text : changed) {
      std::string wrong = row;
      wrong.replace(wrong.find(old), std::string(old).size(), text);
      write("sweep.csv", header + wrong);
      EXPECT_TRUE(message().starts_with(fmt::format("sweep.csv:2: column {}", says))) << text << ": " << message();
    }
  write("sweep.csv", "op,variant\n");
  EXPECT_EQ(message(), "sweep.csv:1: no column 'kind', without which a row means nothing");
  write("sweep.csv", "op,variant,op\n");
  EXPECT_EQ(message(), "sweep.csv:1: the column 'op' is there twice");
  write("sweep.csv", "");
  EXPECT_EQ(message(), "sweep.csv: empty, no header line");
}

// Files that are well formed, and contradict each other.
TEST_F(RunFilesTest, NamesRowsThatContradictTheirSamples) {
  using Change = void (*)(SweepRow&);
  const struct {
    Change change;
    const char *samples, *says;  // "": it is read
  } cases[] = {
      {[](SweepRow&) {}, "", ""},
      {[](SweepRow& row) { row.time_cold_us = 1e308; }, "", "'time_cold_us' is 1e+308, but the median of its cold_us"},
      {[](SweepRow& row) { row.time_cold_us = 2.01; }, "", "'time_cold_us' is 2.01, but the median of its cold_us"},
      {[](SweepRow& row) { row.time_cold_us = 1.5; }, "", "'time_cold_us' is 1.5, but the median of its cold_us is 2"},
      {[](SweepRow& row) { row.time_cold_us = 9, row.status = Outcome::throttled; }, "", ""},  // no time to compare
      {[](SweepRow& row) { row.samples = 2; }, "", "'samples' is 2, but"},
      {[](SweepRow& row) { row.warm_samples = 1; }, "", ""},
      {[](SweepRow& row) { row.warm_samples = 2; }, "", "'warm_samples' is 2, but there are 1 warm"},
      // The gate would go by the cold time alone.
      {[](SweepRow& row) { row.time_warm_us.reset(); }, "", "'time_warm_us' and 'time_warm_serial_us' are blank"},
      {[](SweepRow&) {}, R"(,"warm_us":[1],"warm_serial_us":[1])", "'time_warm_serial_us' is blank"},
      {[](SweepRow& row) { row.time_warm_us = 1.1; }, "", "'time_warm_us' is 1.1, but the median of its warm_us is 1"},
      // Without serial samples the warm ones are meant.
      {[](SweepRow& row) { row.time_warm_serial_us = 1; }, "", ""},
      {[](SweepRow& row) { row.time_warm_serial_us = 1e300; }, "",
       "'time_warm_serial_us' is 1e+300, but the median of"},
      {[](SweepRow& row) { row.time_warm_serial_us = 1, row.time_warm_us.reset(); }, " ", "there are no warm_us"},
      {[](SweepRow& row) { row.edge_latency_us = 1.3; }, R"(,"warm_us":[1],"warm_edge_us":[1.3])", ""},
      {[](SweepRow& row) { row.edge_latency_us = row.time_warm_serial_us = 1; },
       R"(,"warm_us":[1],"warm_edge_us":[1],"warm_serial_us":[1],"warm_serial_edge_us":[1.2])",
       "'edge_latency_us' is 1, but"},
      {[](SweepRow& row) { row.max_rel_error = row.tolerance = 0.01; }, "", ""},
      {[](SweepRow& row) { row.max_rel_error = 0.011, row.tolerance = 0.01; }, "", "'max_rel_error' is 0.011, but"},
      {[](SweepRow& row) { row.max_rel_error = 1, row.tolerance = 0, row.status = Outcome::incorrect; }, "", ""},
  };
  for (const auto& [change, samples, says] : cases) {
    SweepRow row = row_by("naive");
    change(row);
    write("sweep.csv", sweep_csv_header() + to_csv(row));
    write("samples.jsonl",
          line(R"("cold_us":[1.5,2,3])" + std::string(*samples == '\0' ? R"(,"warm_us":[1])" : samples)) + "\n");
    if (*says == '\0') {
      EXPECT_EQ(message(), "");
    } else {
      EXPECT_TRUE(message().starts_with("sweep.csv:2: column")) << message();
      EXPECT_NE(message().find(says), std::string::npos) << message();
    }
  }
}

TEST_F(RunFilesTest, NamesFiguresOfARowThatContradictEachOther) {
  using Change = void (*)(SweepRow&);
  const std::pair<Change, const char*> cases[] = {
      {[](SweepRow&) {}, ""},
      {[](SweepRow& row) { row.gflops.reset(), row.attainable_gflops.reset(); }, ""},
      {[](SweepRow& row) { row.flops = row.gflops = row.pct_of_roof = row.ai = 0; }, ""},  // copies only
      {[](SweepRow& row) { row.gflops = 1501; }, "'gflops' is 1501, but flops over the cold time is 1500"},
      {[](SweepRow& row) { row.gbps = 0.1; }, "'gbps' is 0.1, but"},
      {[](SweepRow& row) { row.pct_of_roof = 90; }, "'pct_of_roof' is 90, but"},
      {[](SweepRow& row) { row.pct_of_roof = 90, row.status = Outcome::throttled; }, ""},
      {[](SweepRow& row) { row.ai = 1e9; }, "'ai' is 1e+09, but"},
      {[](SweepRow& row) { row.paired_with.clear(); }, "'speedup_warm' is 1.2, but 'paired_with' is blank"},
      {[](SweepRow& row) { row.speedup_warm_low.reset(); }, "'speedup_warm_high': some are blank"},
      {[](SweepRow& row) { row.speedup_cold_high = 2; }, "'speedup_cold_high': some are blank"},
      {[](SweepRow& row) { row.speedup_warm = 1.4; }, "'speedup_warm' is 1.4, outside its interval, 1.1 to 1.3"},
  };
  for (const auto& [change, says] : cases) {
    SweepRow row = row_by("naive");
    row.flops = 3e6, row.bytes = 8, row.ai = 375000, row.gflops = 1500, row.gbps = 4e-3;
    row.attainable_gflops = 4500, row.pct_of_roof = 100.0 / 3;  // is printed with six digits
    row.paired_with = "tiled";
    row.speedup_warm = 1.2, row.speedup_warm_low = 1.1, row.speedup_warm_high = 1.3;
    change(row);
    write("sweep.csv", sweep_csv_header() + to_csv(row));
    EXPECT_EQ(message().empty(), *says == '\0') << message();
    EXPECT_NE(message().find(says), std::string::npos) << says << ": " << message();
  }
}

TEST_F(RunFilesTest, LeavesOutWhatDramMovesBelowL2) {
  SweepRow row = row_by("naive");
  row.dram_read_bytes = 5, row.dram_write_bytes = 6, row.l2_bytes = 7, row.counter_status = "ok";
  for (const double bytes : {999.0, 1000.0}) {
    row.bytes = bytes;
    write("sweep.csv", sweep_csv_header() + to_csv(row));
    write("env.json", R"({"device": "Test GPU", "commit": "abc", "l2_bytes": 1000})");
    const SweepRow read = read_run(folder_.path()).rows.at(0);
    EXPECT_EQ(read.dram_read_bytes.has_value(), bytes >= 1000);
    EXPECT_EQ(read.dram_write_bytes.has_value(), bytes >= 1000);
    EXPECT_EQ(read.counter_status, bytes >= 1000 ? "ok" : "ok_below_l2");
    EXPECT_EQ(read.l2_bytes, 7);
    write("env.json", kEnvironment);
    EXPECT_EQ(read_run(folder_.path()).rows.at(0).dram_read_bytes, 5) << "its L2 is not known";
  }
}

TEST_F(RunFilesTest, NamesRowsOfAnotherDeviceOrCommit) {
  const auto with = [&](auto change) {
    SweepRow other = row_by("naive");
    change(other);
    write("sweep.csv", sweep_csv_header() + to_csv(other));
    return message();
  };
  const std::string row = "sweep.csv:2: the row of gemm/m=1,n=2,k=3/bf16/naive is of ";
  EXPECT_TRUE(with([](SweepRow& one) { one.device = "Other GPU"; }).starts_with(row + "device 'Other GPU', but"));
  EXPECT_TRUE(with([](SweepRow& one) { one.commit = "abd"; }).starts_with(row + "commit 'abd', but"));
  EXPECT_EQ(with([](SweepRow& one) { one.commit = "abc"; }), "");
}

TEST_F(RunFilesTest, RefusesNumbersOutsideTheirRange) {
  const std::tuple<const char*, std::vector<const char*>, const char*> cases[] = {
      {"buffer_slots processes", {"", "3"}, ""},
      {"buffer_slots processes", {"0"}, "is not a number from 1"},
      {"buffer_slots processes samples", {"1.5", "9999999999999999999"}, "is not a whole number"},
      {"buffer_slots warm_samples registers waited_pct max_rel_error gflops bytes time_cold_mad_us",
       {"-1"},
       "is negative"},
      {"waited_pct", {"100"}, ""},
      {"waited_pct", {"100.1"}, "is not a percentage from 0 to 100"},
      {"waited_pct max_rel_error", {"nan", "inf"}, "is not a finite number"},
  };
  for (const auto& [columns, texts, says] : cases)
    for (const auto column : std::views::split(std::string_view(columns), ' '))
      for (const char* text : texts) {
        const std::string name(column.begin(), column.end());
        write("sweep.csv", "op,variant,kind,dtype,problem,status,device,time_cold_us,time_warm_us," + name +
                               "\ngemm,naive,naive,bf16,\"m=1,n=2,k=3\",ok,Test GPU,2,1," + text + "\n");
        EXPECT_EQ(message(), *says == '\0' ? "" : fmt::format("sweep.csv:2: column '{}': '{}' {}", name, text, says));
      }
}

TEST_F(RunFilesTest, ReadsWhatAKilledSweepLeft) {
  const std::string row = to_csv(row_by("naive"));
  write("sweep.csv", sweep_csv_header() + row + to_csv(row_by("tiled")).substr(0, 40));
  std::ofstream(folder_ / "samples.jsonl", std::ios::app) << line("\"cold_us\":[1").substr(0, 40);
  std::filesystem::remove(folder_ / "env.json");
  EXPECT_NE(message(), "");
  const RunFiles run = read_run(folder_.path(), RunEnd::may_lack);
  EXPECT_EQ(run.rows.size(), 1u);
  EXPECT_EQ(run.samples.size(), 1u);
}

TEST_F(RunFilesTest, NamesWhatIsWrongInTheSamples) {
  const std::pair<std::string, const char*> cases[] = {
      {line(R"("cold_us":[1,NaN,2])"), "not JSON at column"},
      {line(R"("cold_us":[1,-2,3])"), "field 'cold_us' holds -2, not a time above 0"},
      {line(R"("cold_us":[1,0,3])"), "field 'cold_us' holds 0, not a time above 0"},
      {line(R"("cold_us":[1,1e999,3])"), "not JSON: it has a number"},
      {line(R"("warm_us":[null])"), "field 'warm_us' holds null"},
      {line(R"("cold_us":3)"), "field 'cold_us' is 3"},
      {line(R"("cold_us":[[1]])"), "field 'cold_us' holds a list"},
      {line(R"("cold_us":{"a":1})"), "field 'cold_us' is an object"},
      {line(R"("cold_us":["1"])"), "field 'cold_us' holds a text"},
      {line(R"("cold_us":[1,2,3],"cold_batches":[2])"), "field 'cold_batches' adds up to 2, but 'cold_us' has 3"},
      {line(R"("cold_us":[1,2,3],"cold_batches":[1.5])"), "field 'cold_batches' holds 1.5, not a whole number"},
      {line(R"("cold_us":[1,2,3],"cold_batches":[1,2],"cold_mhz":[5])"), "field 'cold_mhz' has 1 clocks for 2 batches"},
      {line(R"("cold_us":[1,2,3],"cold_mhz":[0])"), "field 'cold_mhz' holds 0, not a clock above 0"},
      {line(R"("cold_us":[1],"warm_serial_us":[1,2],"warm_serial_batches":[1])"),
       "field 'warm_serial_batches' adds up to 1, but 'warm_serial_us' has 2"},
      {line(R"("cold_us":[1],"warm_us":[1],"warm_batches":[1],"warm_mhz":[1,2])"),
       "field 'warm_mhz' has 2 clocks for 1 batches"},
      {line(R"("cold_us":[1],"kernels":["k"])"), "field 'kernel_counts' has 0 numbers for 1 kernels"},
      {line(R"("cold_us":[1],"kernels":[7])"), "field 'kernels' holds 7, not a name"},
      {line(R"("cold_us":[1],"kernels":[{"k":1}])"), "field 'kernels' holds an object"},
      {line(R"("cold_us":[1],"kernels":[null])"), "field 'kernels' holds null"},
      {R"({"op":"gemm","problem":"p","variant":"v"})", "field 'dtype' is missing or empty"},
      {R"({"op":["gemm"]})", "field 'op' is a list, not a text"},
      {R"({"op":7})", "field 'op' is 7"},
      {line(R"("note":")" + std::string(std::size_t{1} << 24, 'x') + '"'), "at most 16777216 are read"},
      {"[1]", "is not a JSON object"},
      {"1", "is not a JSON object"},
      {"null", "is not a JSON object"},
      {"\"a\"", "is not a JSON object"},
      {R"({"op":"gemm")", "not JSON at column"},
  };
  for (const auto& [text, says] : cases) {
    write("samples.jsonl", text + "\n");
    EXPECT_TRUE(message().starts_with("samples.jsonl:1: ")) << text << ": " << message();
    EXPECT_NE(message().find(says), std::string::npos) << text << ": " << message();
  }
  const std::string good = line(R"("cold_us":[1,2,3])") + "\n";
  write("samples.jsonl", good + good);
  EXPECT_EQ(message(), "samples.jsonl:2: the samples of gemm/m=1,n=2,k=3/bf16/naive are there twice, first in line 1");
  write("samples.jsonl", good + good.substr(0, 30));
  EXPECT_TRUE(message().starts_with("samples.jsonl:2: the last line is cut off")) << message();
}

TEST(SamplesLine, PassesOverWhatItDoesNotKnow) {
  const auto read =
      parse_samples_line(line(R"("later":{"cold_us":[0],"op":[{}]},"cold_us":[4],"note":"x","flag":true)"));
  EXPECT_EQ(read.samples.cold_us, std::vector<double>{4});
  EXPECT_EQ(read.id.name(), "gemm/m=1,n=2,k=3/bf16/naive");
}

}  // namespace
}  // namespace noisefloor
