// What limits a row, rule by rule, on rows that are made up.
#include "reports/explain/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/run/columns.h"
#include "reports/run/sweep_csv.h"
#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

// A run with a row of which nothing can be said, a short launch of another problem, and room for more.
struct MadeUp {
  RunFiles run;
  CeilingTable ceilings;

  MadeUp() {
    for (const auto& [name, value] :
         {std::pair("dram_copy", 1000.0), std::pair("l2", 2000.0), std::pair("tensor_bf16", 100000.0)})
      ceilings.rows.push_back({.name = name, .value = value, .unit = "", .sm_clock_mhz = 2000});
    SweepRow row;
    row.op = "gemm", row.problem = "m=1,n=2,k=3", row.dtype = "bf16", row.variant = "ptx", row.kind = "ptx";
    row.device = "GPU", row.arch = "sm_90", row.commit = "abc", row.status = Outcome::ok, row.reason = "because";
    row.stop = "converged", row.throttle = "none", row.counter_status = "ok";
    row.time_cold_us = 100, row.time_warm_us = 80;
    row.bytes = 60e6, row.gbps = 600, row.gflops = 30000, row.ai = 50, row.pct_of_roof = 60;
    row.bound = {Bound::By::memory, "tensor_bf16"};
    row.dram_read_bytes = 40e6, row.dram_write_bytes = 20e6, row.l2_bytes = 120e6;
    row.tensor_pipe_pct = 35, row.occupancy_pct = 50, row.occupancy_limit_pct = 60, row.occupancy_limiter = "registers";
    row.registers = 64, row.smem_bytes = 1024, row.spill_bytes = 0, row.blocks = 100, row.threads = 256, row.waves = 10;
    row.sm_clock_mhz = 1990;
    run.rows = {row, row};
    run.rows[1].problem = "m=1,n=1,k=1", run.rows[1].time_cold_us = 4, run.rows[1].pct_of_roof = 1;
    run.samples[row].kernels = {"a"}, run.samples[row].kernel_counts = {1};
  }
  SweepRow& row() { return run.rows.front(); }
  nlohmann::ordered_json explained() { return explain(run, row(), ceilings); }
  std::string text() { return explanation_text(explained(), row()); }
  std::vector<std::string> rules() {
    std::vector<std::string> names;
    const auto findings = explained()["findings"];
    for (const auto& finding : findings) names.push_back(finding["rule"]);
    return names;
  }
  void add_competitor(double us) {
    run.rows.push_back(row());
    run.rows.back().variant = "other", run.rows.back().time_cold_us = us;
  }
  void shrink(double times) {  // less work, at the same rates
    for (auto* figure : {&row().time_cold_us, &row().time_warm_us, &row().bytes, &row().dram_read_bytes,
                         &row().dram_write_bytes, &row().l2_bytes})
      *figure = **figure / times;
  }
  void bound_by_arithmetic() { row().ai = 200, row().bound = {Bound::By::compute, "tensor_bf16"}; }
};

using Change = std::function<void(MadeUp&)>;
struct RuleCase {
  const char* rule;
  Change holds, barely_not;
};

void status(MadeUp& run, Outcome outcome) {
  run.row().status = outcome;
  run.row().time_cold_us.reset();
}

const std::vector<RuleCase>& rule_cases() {
  static const std::vector<RuleCase> all = {
      {"wrong", [](MadeUp& m) { status(m, Outcome::incorrect); }, [](MadeUp&) {}},
      {"failed", [](MadeUp& m) { status(m, Outcome::cuda_error); }, [](MadeUp&) {}},
      {"refused", [](MadeUp& m) { status(m, Outcome::not_built); }, [](MadeUp& m) { status(m, Outcome::throttled); }},
      {"out_of_memory", [](MadeUp& m) { status(m, Outcome::out_of_memory); }, [](MadeUp&) {}},
      {"throttled", [](MadeUp& m) { status(m, Outcome::throttled); }, [](MadeUp&) {}},
      {"implausible", [](MadeUp& m) { status(m, Outcome::implausible); }, [](MadeUp&) {}},
      {"network", [](MadeUp& m) { m.row().op = "network"; },
       [](MadeUp& m) { m.row().op = "network", status(m, Outcome::throttled); }},
      {"disturbed", [](MadeUp& m) { m.row().load = 0.6; }, [](MadeUp& m) { m.row().load = 0.5; }},
      {"above_roof", [](MadeUp& m) { m.row().pct_of_roof = 104; }, [](MadeUp& m) { m.row().pct_of_roof = 103; }},
      {"dram", [](MadeUp& m) { m.row().gbps = 850; }, [](MadeUp& m) { m.row().gbps = 849; }},
      {"arithmetic", [](MadeUp& m) { m.row().gflops = 85000; }, [](MadeUp& m) { m.row().gflops = 84000; }},
      {"power", [](MadeUp& m) { m.row().throttle = "sw_power_cap", m.row().sm_clock_mhz = 1900; },
       [](MadeUp& m) { m.row().throttle = "sw_power_cap", m.row().sm_clock_mhz = 1990; }},
      {"launch", [](MadeUp& m) { m.shrink(4), m.run.rows[1].time_cold_us = 12.5; },
       [](MadeUp& m) { m.shrink(4), m.run.rows[1].time_cold_us = 12.4; }},
      {"small_grid", [](MadeUp& m) { m.row().waves = 0.4; }, [](MadeUp& m) { m.row().waves = 0.5; }},
      {"idle_sms", [](MadeUp& m) { m.row().tensor_pipe_pct = 70; }, [](MadeUp& m) { m.row().tensor_pipe_pct = 55; }},
      {"last_wave", [](MadeUp& m) { m.row().waves = 1.5; }, [](MadeUp& m) { m.row().waves = 1.7; }},
      {"extra_traffic", [](MadeUp& m) { m.row().dram_write_bytes = 39e6; },
       [](MadeUp& m) { m.row().dram_write_bytes = 30e6; }},
      {"dram_busy", [](MadeUp& m) { m.row().dram_write_bytes = 36e6; },
       [](MadeUp& m) { m.row().dram_write_bytes = 34e6; }},
      {"l2", [](MadeUp& m) { m.row().l2_bytes = 151e6; }, [](MadeUp& m) { m.row().l2_bytes = 149e6; }},
      {"tensor_pipe", [](MadeUp& m) { m.row().tensor_pipe_pct = 76, m.row().gflops = 60000; },
       [](MadeUp& m) { m.row().tensor_pipe_pct = 74, m.row().gflops = 60000; }},
      {"no_tensor_cores", [](MadeUp& m) { m.bound_by_arithmetic(), m.row().tensor_pipe_pct = 1; },
       [](MadeUp& m) { m.row().tensor_pipe_pct = 1; }},
      {"spills", [](MadeUp& m) { m.row().spill_bytes = 8; }, [](MadeUp&) {}},
      {"few_warps", [](MadeUp& m) { m.row().occupancy_limit_pct = 39, m.row().occupancy_pct = 30; },
       [](MadeUp& m) { m.row().occupancy_limit_pct = 40, m.row().occupancy_pct = 30; }},
      {"idle_warps", [](MadeUp& m) { m.row().occupancy_pct = 29; }, [](MadeUp& m) { m.row().occupancy_pct = 30; }},
      {"starved", [](MadeUp& m) { m.bound_by_arithmetic(); },
       [](MadeUp& m) { m.bound_by_arithmetic(), m.row().tensor_pipe_pct = 51; }},
      {"latency", [](MadeUp& m) { m.row().dram_read_bytes = 29e6, m.row().l2_bytes = 99e6; },
       [](MadeUp& m) { m.row().dram_read_bytes = 29e6; }},
      {"cold_caches", [](MadeUp& m) { m.row().time_warm_us = 59; }, [](MadeUp& m) { m.row().time_warm_us = 61; }},
      {"many_kernels",
       [](MadeUp& m) {
         m.run.samples[m.row()].kernels = {"a", "b"}, m.run.samples[m.row()].kernel_counts = {1, 2};
       },
       [](MadeUp& m) { m.run.samples[m.row()].kernels = {"a"}, m.run.samples[m.row()].kernel_counts = {1}; }},
      {"competitor", [](MadeUp& m) { m.add_competitor(96); }, [](MadeUp& m) { m.add_competitor(98); }},
      {"short_samples", [](MadeUp& m) { m.row().stop = "time_cap"; }, [](MadeUp& m) { m.row().stop = "max_samples"; }},
      {"unexplained", [](MadeUp&) {}, [](MadeUp& m) { m.row().stop = "time_cap"; }},
  };
  return all;
}

TEST(Explain, EveryRuleHoldsWhereItShouldAndNotBeside) {
  std::set<std::string> tested;
  for (const RuleCase& one : rule_cases()) {
    tested.insert(one.rule);
    MadeUp held, not_held;
    one.holds(held);
    one.barely_not(not_held);
    const auto rules = held.rules();
    EXPECT_NE(std::ranges::find(rules, one.rule), rules.end()) << one.rule;
    const auto others = not_held.rules();
    EXPECT_EQ(std::ranges::find(others, one.rule), others.end()) << one.rule << " on the other side of its threshold";
    const auto explained = held.explained();
    for (const auto& finding : explained["findings"])
      for (const char* part : {"sentence", "experiment"}) {
        const std::string text = finding[part];
        EXPECT_EQ(text.find_first_of("{}"), std::string::npos) << text;
        EXPECT_EQ(text.find("not said"), std::string::npos) << text;
      }
  }
  for (const ExplainRule& rule : explain_rules())
    EXPECT_TRUE(tested.contains(rule.name)) << rule.name << " has no test";
  EXPECT_EQ(tested.size(), explain_rules().size());
}

TEST(Explain, RulesAreInOrderAndSaidOnce) {
  MadeUp made;
  made.row().spill_bytes = 16, made.row().gbps = 900, made.add_competitor(50);
  EXPECT_EQ(made.rules(), (std::vector<std::string>{"dram", "spills", "competitor"}));
  const auto explained = made.explained();
  EXPECT_EQ(explained["findings"][0]["sentence"], "DRAM: the compulsory bytes alone move at 90 % of a copy's rate.");
  EXPECT_EQ(explained["findings"][2]["sentence"], "Not the device: other is 2 times as fast on the same problem.");
  expect_parts(explained["findings"][2]["experiment"].get<std::string>(),
               {"noisefloor pair gemm ptx other --problem m=1,n=2,k=3 --dtype bf16"});
}

// A slow kernel of a small problem is below a tenth of its roof too.
TEST(Explain, ALaunchCostsWhatAShortOtherOneTakes) {
  const auto launch_us = [](MadeUp& made) {
    return RowFigures(made.run, made.row(), made.ceilings).number("launch_us");
  };
  MadeUp made;
  EXPECT_EQ(launch_us(made), 4);
  made.run.rows[1].device = "other GPU";
  EXPECT_EQ(launch_us(made), std::nullopt);
  made.run.rows[1].device = "GPU";
  made.run.rows[1].pct_of_roof = 26;
  EXPECT_EQ(launch_us(made), std::nullopt) << "the roof alone takes more than 1 us";
  made.row().time_cold_us = 3, made.row().pct_of_roof = 3;
  EXPECT_EQ(launch_us(made), std::nullopt) << "not of itself";
  made.row().time_cold_us = 2293, made.run.rows[1].time_cold_us = 2000, made.run.rows[1].pct_of_roof = 0.01;
  EXPECT_EQ(launch_us(made), std::nullopt) << "a slow kernel";
  made.run.rows[1].time_cold_us = 4, made.run.rows[1].op = "network";
  EXPECT_EQ(launch_us(made), std::nullopt) << "many launches";
}

TEST(Explain, SaysWhyARowIsAboveItsRoofWhereItIsKnown) {
  MadeUp made;
  made.row().pct_of_roof = 120, made.row().above_roof = "what it writes fits into cache";
  EXPECT_EQ(made.explained()["findings"][0]["sentence"],
            "It is faster than compulsory bytes from DRAM allow: what it writes fits into cache.");
  made.row().above_roof = "";
  EXPECT_EQ(made.explained()["findings"][0]["sentence"], "It is faster than compulsory bytes from DRAM allow.");
}

TEST(Explain, SaysNothingEmptyOfARecordedRow) {
  std::size_t explanations = 0;
  for (const auto& folder : std::filesystem::directory_iterator("reports/recorded")) {
    if (!folder.is_directory()) continue;
    RunFiles run;
    run.rows = read_sweep_csv(folder.path() / "sweep.csv");
    const CeilingTable ceilings = read_ceilings(folder.path() / "ceilings.csv");
    for (std::size_t i = 0; i < run.rows.size(); i += 7) {  // each looks through all others
      const SweepRow& row = run.rows[i];
      const auto explained = explain(run, row, ceilings);
      ++explanations;
      EXPECT_FALSE(explained["findings"].empty()) << folder << ": " << row.name();
      for (const auto& finding : explained["findings"])
        EXPECT_EQ(finding.dump().find("not said"), std::string::npos) << row.name();
    }
  }
  EXPECT_GT(explanations, 1000u);
}

TEST(Explain, CommandsNameDeviceAndPlugin) {
  const struct {
    Change change;
    const char* says;  // of the first experiment
  } cases[] = {
      {[](MadeUp&) {}, "--dtype bf16; then scripts/ncu gemm/m=1,n=2,k=3/bf16/ptx."},
      {[](MadeUp& m) { m.run.rows.back().plugin = "other.so"; }, "--dtype bf16 --plugin other.so; then scripts/ncu"},
      {[](MadeUp& m) { m.row().plugin = "mine.so", m.run.rows.back().plugin = "other.so"; },
       "--dtype bf16 --plugin mine.so --plugin other.so; then Nsight Compute on noisefloor run "
       "gemm/m=1,n=2,k=3/bf16/ptx --plugin mine.so."},
      {[](MadeUp& m) { m.row().plugin = m.run.rows.back().plugin = "mine.so"; }, "--dtype bf16 --plugin mine.so; then"},
      {[](MadeUp& m) { m.row().kind = "host"; },
       "--dtype bf16 --device host; then perf record noisefloor run gemm/m=1,n=2,k=3/bf16/ptx --device host."},
      {[](MadeUp& m) { m.row().kind = "host", m.row().plugin = "mine.so"; },
       "then perf record noisefloor run gemm/m=1,n=2,k=3/bf16/ptx --device host --plugin mine.so."},
      {[](MadeUp& m) { m.row().plugin = "mine.so", status(m, Outcome::incorrect); },
       "Run it alone (noisefloor run gemm/m=1,n=2,k=3/bf16/ptx --plugin mine.so), then under compute-sanitizer."},
  };
  for (const auto& [change, says] : cases) {
    MadeUp made;
    made.add_competitor(50);
    change(made);
    const std::string experiment = made.explained()["findings"][0]["experiment"];
    EXPECT_NE(experiment.find(says), std::string::npos) << experiment;
  }
  MadeUp counted, host;
  counted.row().plugin = "mine.so", counted.row().counter_status = "off", counted.row().l2_bytes.reset();
  EXPECT_NE(counted.text().find("sweep --ops gemm --plugin mine.so --counters"), std::string::npos);
  host.row().kind = "host", host.row().arch = "x86-64-v4", host.ceilings.rows.clear();
  const std::string text = host.text();
  EXPECT_NE(text.find("get it: noisefloor sweep --ops gemm --device host --out DIR"), std::string::npos) << text;
  EXPECT_EQ(text.find("scripts/ncu"), std::string::npos) << text;
}

nlohmann::ordered_json evidence_of(const nlohmann::ordered_json& explained, const std::string& name) {
  return explained["evidence"].contains(name) ? explained["evidence"][name]["value"] : nlohmann::ordered_json();
}

TEST(Explain, FiguresAreWhatTheirDescriptionsSay) {
  MadeUp made;
  made.row().dram_write_bytes = 35e6, made.row().waves = 2.5;
  made.add_competitor(80);
  made.run.samples[made.row()].kernels = {"a", "b"}, made.run.samples[made.row()].kernel_counts = {1, 2};
  const auto explained = made.explained();
  const std::pair<const char*, double> expected[] = {{"memory_pct", 60},
                                                     {"compute_pct", 30},
                                                     {"balance", 0.5},
                                                     {"traffic", 1.25},
                                                     {"dram_pct", 75},
                                                     {"l2_pct", 60},
                                                     {"tensor_share_pct", 30 / 0.35},
                                                     {"wave_fill_pct", 250 / 3.0},
                                                     {"kernels", 3},
                                                     {"launch_us", 4},
                                                     {"launch_pct", 4},
                                                     {"warm_pct", 80},
                                                     {"clock_pct", 99.5},
                                                     {"competitor_ratio", 1.25},
                                                     {"blocks", 100}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(explained["evidence"].contains(name)) << name;
    EXPECT_DOUBLE_EQ(evidence_of(explained, name), value) << name;
  }
  EXPECT_TRUE(evidence_of(explained, "occupancy_used_pct").is_null()) << "the limit is that of one of three kernels";
  EXPECT_DOUBLE_EQ(evidence_of(MadeUp().explained(), "occupancy_used_pct"), 50 / 0.6);
  EXPECT_EQ(evidence_of(explained, "occupancy_limiter"), "registers");
  EXPECT_TRUE(explained["unknown"].empty()) << made.text();
}

TEST(Explain, APairStandsAboveTimesThatWereTakenAlone) {
  MadeUp made;
  made.add_competitor(50);
  made.row().paired_with = "other", made.row().speedup_cold = 1.01;  // in turns, this one is the faster
  const auto explained = made.explained();
  ASSERT_EQ(explained["competitors"].size(), 1u);
  EXPECT_TRUE(explained["competitors"][0]["paired"]);
  EXPECT_DOUBLE_EQ(explained["competitors"][0]["times_as_fast"], 1 / 1.01);
  EXPECT_EQ(explained["findings"][0]["rule"], "unexplained");
  made.run.rows.back().device = "other GPU";
  EXPECT_TRUE(made.explained()["competitors"].empty());
}

bool lacks(const nlohmann::ordered_json& explained, const std::string& name, const std::string& why) {
  for (const auto& unknown : explained["unknown"])
    for (const auto& figure : unknown["figures"])
      if (figure == name) return unknown["why"].get<std::string>().find(why) != std::string::npos;
  return false;
}

TEST(Explain, SaysWhatItCannotKnowAndHowToGetIt) {
  MadeUp made;
  SweepRow& row = made.row();
  for (auto* counter :
       {&row.dram_read_bytes, &row.dram_write_bytes, &row.l2_bytes, &row.tensor_pipe_pct, &row.occupancy_pct})
    counter->reset();
  row.counter_status = "off";
  const auto explained = made.explained();
  for (const char* name : {"dram_pct", "traffic", "l2_pct", "tensor_pipe_pct", "occupancy_pct"}) {
    EXPECT_TRUE(lacks(explained, name, "counters were off")) << name;
    EXPECT_TRUE(evidence_of(explained, name).is_null());
  }
  EXPECT_NE(made.text().find("--counters require"), std::string::npos);
  EXPECT_EQ(explained["findings"][0]["rule"], "unexplained") << "no rule guesses";
  row.counter_status = "no_permission";
  EXPECT_TRUE(lacks(made.explained(), "l2_pct", "no_permission"));

  row.counter_status = "ok_below_l2", row.l2_bytes = 1e6;
  EXPECT_TRUE(lacks(made.explained(), "traffic", "fit into L2"));
  EXPECT_FALSE(lacks(made.explained(), "l2_pct", ""));
  row.waves.reset();
  EXPECT_TRUE(lacks(made.explained(), "waves", "older than these columns"));
  made.ceilings = {};
  EXPECT_TRUE(lacks(made.explained(), "memory_pct", "no ceilings"));
  made.run.rows.pop_back();
  EXPECT_TRUE(lacks(made.explained(), "launch_pct", "nothing to do"));
  EXPECT_TRUE(lacks(made.explained(), "competitor_ratio", "no other row"));
  row.kind = "host", row.arch = "avx2";
  EXPECT_FALSE(lacks(made.explained(), "waves", "")) << "a host has none";
  status(made, Outcome::throttled);
  EXPECT_TRUE(made.explained()["unknown"].empty());
}

TEST(Explain, NamesTheKernelsOfALaunchButNotTheHundredsOfANetwork) {
  MadeUp made;
  made.run.samples[made.row()].kernels = {"gemm::one<4>", "two"}, made.run.samples[made.row()].kernel_counts = {1, 2};
  EXPECT_NE(made.text().find("kernel 1 x gemm::one<4>\nkernel 2 x two\n"), std::string::npos) << made.text();
  made.row().op = "network";
  made.run.samples[made.row()].kernels = {"gemm::one<4>"}, made.run.samples[made.row()].kernel_counts = {1};
  EXPECT_EQ(made.text().find("gemm::one<4>"), std::string::npos);
  EXPECT_EQ(made.explained()["kernels"][0]["name"], "gemm::one<4>");
}

TEST(Explain, WhatIsNoTextOrNotKnownIsJsonAllTheSame) {
  MadeUp made;
  made.row().reason = "bytes that are no text: \xff";
  made.run.samples.clear();  // then the kernels are not known
  EXPECT_FALSE(made.text().empty());
  expect_parts(made.explained()["unknown"][0]["how"].get<std::string>(), {"--ops gemm"});
  status(made, Outcome::not_built);
  EXPECT_TRUE(made.explained()["time_cold_us"].is_null());
  EXPECT_EQ(made.explained()["status"], "not_built");
}

}  // namespace
}  // namespace noisefloor
