// report.html's data, the page around it, and the cases that a run lacks. What a browser makes of it: tests/browser.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "reports/page/html_page.h"
#include "reports/page/run_report.h"
#include "reports/run/files.h"
#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"
#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

SweepRow row_of(const std::string& problem, const std::string& variant, Outcome status) {
  SweepRow row = ok_row({{"gemm", problem, "bf16"}, variant}, "ptx", 12.5);
  row.status = status, row.commit = "123456789012";
  if (status != Outcome::ok) row.time_cold_us.reset();
  return row;
}

void write_rows(const TemporaryFolder& folder, const std::vector<SweepRow>& rows) {
  write_atomically(folder / "sweep.csv", sweep_text(rows));
  write_atomically(folder / "ceilings.csv", "name,value,unit,datasheet\ndram_copy,4000,GB/s,4800\nl2,9000,GB/s,\n");
}

bool says(const nlohmann::json& report, const std::string& part, bool urgent) {
  for (const auto& lack : report["lacks"])
    if (lack["text"].get<std::string>().find(part) != std::string::npos) return lack["urgent"] == urgent;
  return false;
}

TEST(RunReport, ColumnsKeepTheirKind) {
  const TemporaryFolder folder;
  const std::vector<SweepRow> rows = {row_of("m=1", "a", Outcome::ok), row_of("m=1", "b", Outcome::not_built)};
  write_rows(folder, rows);
  const auto report = run_report(folder.path(), rows);
  const auto& columns = report["rows"]["columns"];
  EXPECT_EQ(report["rows"]["count"], 2);
  EXPECT_EQ(columns["time_cold_us"], nlohmann::json::parse("[12.5, null]"));
  EXPECT_EQ(columns["problem"], nlohmann::json::parse(R"({"values": ["m=1"], "index": [0, 0]})"));
  EXPECT_EQ(columns["commit"]["values"][0], "123456789012") << "digits alone are still text";
  EXPECT_EQ(report["ceilings"][0]["datasheet"], 4800);
  EXPECT_TRUE(report["ceilings"][1]["datasheet"].is_null());
}

TEST(RunReport, SaysWhatTheRunLacks) {
  const TemporaryFolder folder;
  const std::vector<SweepRow> rows = {row_of("m=1", "a", Outcome::ok)};
  write_rows(folder, rows);
  EXPECT_TRUE(says(run_report(folder.path(), rows), "cases.csv is not there", false));
  EXPECT_TRUE(says(run_report(folder.path(), rows), "env.json is not there", false));
  EXPECT_TRUE(says(run_report(folder.path(), rows), "samples.jsonl is not there", false));
  write_atomically(folder / kPackedSamplesFile, "");
  EXPECT_FALSE(says(run_report(folder.path(), rows), "samples.jsonl", false));
  merge_selected_cases(folder.path(), {{{"gemm", "m=1", "bf16"}, "a"}, {{"gemm", "m=2", "bf16"}, "a"}});
  std::ofstream(folder / "sweep.csv", std::ios::app) << "gemm,tor";
  const auto report = run_report(folder.path(), rows);
  EXPECT_TRUE(says(report, "1 of the 2 cases that were chosen have no row", true));
  EXPECT_TRUE(says(report, "ends within a row", true));
  EXPECT_EQ(report["without_row"]["problem"]["values"][0], "m=2");
}

TEST(RunReport, RefusesWhatItCannotShow) {
  const TemporaryFolder folder;
  const std::vector<SweepRow> rows = {row_of("m=1", "a", Outcome::ok)};
  EXPECT_THROW(run_report(folder.path(), {}), std::runtime_error);
  EXPECT_THROW(run_report(folder.path(), rows), std::runtime_error) << "no ceilings.csv";
  write_rows(folder, rows);
  write_atomically(folder / "env.json", "{");
  EXPECT_THROW(run_report(folder.path(), rows), std::runtime_error);
  write_atomically(folder / "env.json", "{}");
  for (const char* rate : {"0", "-1", "nan", "inf", "x", ""}) {
    write_atomically(folder / "ceilings.csv", std::string("name,value,unit,datasheet\ndram_copy,") + rate + ",GB/s,\n");
    EXPECT_THROW(run_report(folder.path(), rows), std::runtime_error) << rate;
  }
}

TEST(SelectedCases, MergeKeepsOrderAndAddsOnce) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_selected_cases(folder.path()).empty());
  merge_selected_cases(folder.path(), {{{"gemm", "m=1,n=2", "bf16"}, "b"}, {{"gemm", "m=1,n=2", "bf16"}, "a"}});
  merge_selected_cases(folder.path(), {{{"gemm", "m=1,n=2", "bf16"}, "a"}, {{"gemm", "m=1,n=2", "fp16"}, "a"}});
  const auto all = read_selected_cases(folder.path());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].variant, "b");
  EXPECT_EQ(all[0].problem, "m=1,n=2");
  EXPECT_EQ(all[2].dtype, "fp16");
  write_atomically(folder / "cases.csv", "op,variant\n");
  EXPECT_THROW(read_selected_cases(folder.path()), std::runtime_error);
}

TEST(HtmlPage, JsonCannotEndItsScript) {
  EXPECT_TRUE(rc::check("any bytes leave neither markup nor anything but ASCII, and text comes back", [] {
    const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    const std::string safe = script_safe_json({{"text", bytes}});
    RC_ASSERT(safe.find_first_of("<>&") == std::string::npos);
    RC_ASSERT(std::all_of(safe.begin(), safe.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
    const bool ascii = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= 0; });
    const auto read = nlohmann::json::parse(safe)["text"].get<std::string>();
    if (ascii) RC_ASSERT(read == bytes);
  }));
}

TEST(HtmlPage, EverythingIsFilledInOnceAndEscaped) {
  const HtmlPage page{"a <b> & \"{{data}}\"", "report.html", {"common.js"}, {{"text", "{{script}}</script>"}}};
  const std::string html = html_page(page, std::nullopt);
  expect_parts(html, {"<title>noisefloor: a &lt;b&gt; &amp; &quot;{{data}}&quot;</title>",
                      "{{script}}\\u003c/script\\u003e", no_plotly_message(), "prefers-color-scheme: dark"});
  EXPECT_EQ(html.find("http://"), html.find("http://www.w3.org")) << "nothing is fetched";
}

TEST(HtmlPage, ALibrarysTextCannotEndItsScript) {
  const TemporaryFolder folder;
  write_atomically(folder / "plotly.min.js", "/* plotly.js v0 */ let a = '</script>', b = '</SCRIPT >';");
  const std::string html = html_page({"x", "report.html", {}, {}}, folder / "plotly.min.js");
  EXPECT_NE(html.find("a = '<\\/script>', b = '<\\/SCRIPT >';"), std::string::npos);
}

}  // namespace
}  // namespace noisefloor
