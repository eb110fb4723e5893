// The gate's rule, on runs whose true times are known.
#include "reports/gate/gate.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "tests/support/gate_runs.h"

namespace noisefloor {
namespace {

PhaseChange change_of(double time, std::optional<double> cycles = {}, double us = 100) {
  return {us, us * (1 + time), time, cycles};
}
GateVerdict verdict(double time, double noise, std::optional<double> cycles = {}, Phase phase = Phase::warm,
                    double us = 100) {
  return judge(change_of(time, cycles, us), phase, noise).verdict;
}

TEST(GateRule, OfKnownNumbers) {
  EXPECT_EQ(verdict(0.0149, 0), GateVerdict::pass);
  EXPECT_EQ(verdict(0.0151, 0), GateVerdict::regressed);
  EXPECT_EQ(verdict(1 / 1.0151 - 1, 0), GateVerdict::improved);
  EXPECT_EQ(verdict(1 / 1.0149 - 1, 0), GateVerdict::pass);
  // 1.01 / 0.99 is 1.0202: both intervals' width.
  EXPECT_EQ(verdict(0.0354, 0.01), GateVerdict::ambiguous) << "1.015 x 1.0202 = 1.0355";
  EXPECT_EQ(verdict(0.0356, 0.01), GateVerdict::regressed);
  EXPECT_EQ(verdict(0.0291, 0.01), GateVerdict::pass) << "1.05 / 1.0202 = 1.0292";
  EXPECT_EQ(verdict(0, 0.03), GateVerdict::ambiguous) << "5 % would not be seen";
  EXPECT_EQ(verdict(0.11, 0, {}, Phase::cold, 4), GateVerdict::pass) << "below what the timer resolves";
  EXPECT_EQ(verdict(0.13, 0, {}, Phase::cold, 4), GateVerdict::regressed);
}

TEST(GateRule, CyclesAndTimeMustAgree) {
  EXPECT_EQ(verdict(0.06, 0, 0.01), GateVerdict::ambiguous) << "the clock explains it";
  EXPECT_EQ(verdict(0.06, 0, 0.02), GateVerdict::regressed);
  EXPECT_EQ(verdict(0.01, 0, 0.06), GateVerdict::pass) << "bound by memory, at a higher clock";
  EXPECT_EQ(verdict(-0.06, 0, -0.01), GateVerdict::pass);
  EXPECT_EQ(verdict(-0.06, 0, -0.02), GateVerdict::improved);
}

TEST(GateRule, HoldsItsWordWhateverTheNoise) {
  EXPECT_TRUE(rc::check("swapped sides, a larger change, 5 %, twice as slow", [] {
    const double noise = *rc::gen::inRange(0, 1000) / 1000.0, time = *rc::gen::inRange(-500, 1500) / 1000.0;
    const double us = *rc::gen::inRange(1, 100000) / 10.0;
    const Phase phase = *rc::gen::element(Phase::warm, Phase::cold);
    const std::optional<double> cycles = *rc::gen::element(std::optional<double>(), std::optional(time));
    const GateVerdict here = verdict(time, noise, cycles, phase, us);
    const auto swapped = judge({us * (1 + time), us, 1 / (1 + time) - 1, {}}, phase, noise).verdict;
    RC_ASSERT((here == GateVerdict::regressed) == (swapped == GateVerdict::improved));
    RC_ASSERT(here != GateVerdict::regressed || verdict(1.2 * (1 + time) - 1, noise, {}, phase, us) == here);
    if (time >= 0.05 && us > 20) RC_ASSERT(here != GateVerdict::pass);
    RC_ASSERT(verdict(1, noise, cycles ? std::optional(1.0) : cycles, phase, us) == GateVerdict::regressed);
  }));
}

// Twice as slow, whatever was measured beside it, how, how often, and what is on file.
TEST(Gate, CannotBeDisarmed) {
  EXPECT_TRUE(rc::check("all rows are twice as slow, and all regress", [] {
    Rows rows(*rc::gen::inRange<std::size_t>(1, 30));
    for (SyntheticRow& row : rows) {
      row.us = *rc::gen::inRange(1, 100000) / 7.0;
      row.noise = *rc::gen::inRange(0, 300) / 1000.0, row.batch = *rc::gen::inRange(0, 300) / 1000.0;
      row.samples = *rc::gen::inRange<std::size_t>(1, 60), row.per_batch = *rc::gen::inRange<std::size_t>(1, 20);
      row.serial = *rc::gen::arbitrary<bool>();
    }
    RunFiles a = synthetic_run(rows, *rc::gen::inRange(0u, 1000u)), b = times(a, 2);
    if (*rc::gen::arbitrary<bool>()) b = without_clock(b);
    GateNoise noise{"Test GPU", {}, {}};
    for (SweepRow& row : a.rows) {
      for (const Phase phase : {Phase::warm, Phase::cold}) noise.rows[{phase, row}] = *rc::gen::inRange(0, 500) / 100.0;
      row.buffer_slots = *rc::gen::inRange(1L, 20L);
    }
    for (SweepRow& row : b.rows) row.buffer_slots = *rc::gen::inRange(1L, 20L), row.load = *rc::gen::inRange(0, 4);
    GateOptions options;
    options.noise = *rc::gen::arbitrary<bool>() ? &noise : nullptr;
    const GateResult result = gate(a, b, options);
    RC_ASSERT(result.count(GateVerdict::regressed) == rows.size());
    RC_ASSERT(result.exit_code() == 1);
    RC_ASSERT(gate(b, a, options).count(GateVerdict::improved) == rows.size());
  }));
}

TEST(Gate, FindsFivePercentAndCallsNoNoiseARegression) {
  // Batches scatter by half a percent, runs by a third of one.
  const Rows rows = rows_of(60, 50, 0.01);
  std::vector<RunFiles> runs;
  for (unsigned seed = 0; seed < 8; ++seed) {
    Rows drawn = rows;
    for (std::size_t i = 0; i < drawn.size(); ++i)
      drawn[i].batch = 0.005, drawn[i].us *= 1 + 0.003 * std::sin(static_cast<double>(31 * seed + 7 * i));
    runs.push_back(synthetic_run(drawn, seed));
  }
  const MeasuredNoise measured = measure_noise(std::span(runs).subspan(4));
  for (const GateNoise* noise : {static_cast<const GateNoise*>(nullptr), &measured.noise})
    for (std::size_t i = 1; i < 4; ++i) {
      GateOptions options;
      options.noise = noise;
      EXPECT_EQ(gate(runs[0], runs[i], options).count(GateVerdict::regressed), 0u);
      const GateResult slowed = gate(runs[0], times(runs[i], 1.05), options);
      EXPECT_GE(slowed.count(GateVerdict::regressed), 54u);
      EXPECT_EQ(slowed.count(GateVerdict::pass), 0u);
    }
}

TEST(Gate, BatchNoiseOfKnownNumbers) {
  const auto of = [](std::vector<double> us, std::vector<std::size_t> batches, std::size_t slots = 1) {
    return batch_noise({std::move(us), std::move(batches), {}, slots});
  };
  EXPECT_EQ(of({10}, {1}), 0) << "one sample says nothing";
  EXPECT_NEAR(of({9, 10, 11}, {3}), 0.1, 1e-12) << "of one batch, its samples";
  EXPECT_NEAR(of({10, 10, 10, 10, 10, 10, 12, 12}, {2, 2, 2, 2}), 0.2, 1e-12) << "the whole range of four";
  std::vector<double> levels;  // two, 5 % apart: the interval holds both, though nine in twenty are of the upper
  for (int i = 0; i < 20; ++i) levels.push_back(i % 20 < 11 ? 100 : 105);
  const std::vector<std::size_t> single(20, 1);
  EXPECT_NEAR(of(levels, single), 0.05, 1e-12);
  levels.assign(20, 100), levels[3] = 150;
  EXPECT_EQ(of(levels, single), 0) << "one in twenty is no level";
  // Two slots, again and again: not twenty values, but two.
  for (std::size_t i = 0; i < 20; ++i) levels[i] = i % 2 == 0 ? 100 : 101;
  EXPECT_NEAR(of(levels, single, 2), 0.005, 1e-3);
}

TEST(Gate, AnAmbiguousRowThatIsMuchSlowerIsNotPassedOver) {
  const auto exit_code = [](double change) {
    Rows before = rows_of(1, 100), after = rows_of(1, 100 * (1 + change));
    after[0].mhz = 1980 / (1 + change);  // the clock explains it
    const RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
    const GateResult result = gate(a, b, {});
    EXPECT_EQ(result.count(GateVerdict::ambiguous), 1u);
    EXPECT_EQ(junit_xml(result).find("errors=\"1\"") != std::string::npos, result.exit_code() == 2);
    return result.exit_code();
  };
  EXPECT_EQ(exit_code(0.08), 0);
  EXPECT_EQ(exit_code(0.12), 2);
}

TEST(Gate, EitherPhaseRegressesARow) {
  Rows before = rows_of(3, 100), after = before;
  *(after[0].warm_us = 80) *= 1.1, after[1].us *= 1.1, after[1].warm_us = 80;
  const RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
  const GateResult result = gate(a, b, {});
  ASSERT_EQ(result.count(GateVerdict::regressed), 2u);
  for (const GateRow& row : {result.rows[0], result.rows[1]}) {
    const bool first = row.change.rows.a->problem == "m=1,n=64,k=64";
    EXPECT_EQ(row.by, std::vector<Phase>{first ? Phase::warm : Phase::cold});
    EXPECT_NEAR(row.slowdown(), 0.1, 0.01);
  }
}

TEST(Gate, AHostsNoiseHasToBeMeasured) {
  const auto host = [](double us, unsigned seed) {
    RunFiles run = without_clock(synthetic_run(rows_of(10, us), seed));
    for (SweepRow& row : run.rows) row.kind = "host";
    return run;
  };
  const RunFiles a = host(5000, 1), b = host(5500, 2);
  const GateResult assumed = gate(a, b, {});
  EXPECT_EQ(assumed.count(GateVerdict::ambiguous), 10u);
  EXPECT_NE(assumed.rows[0].reason.find("calibrate"), std::string::npos) << assumed.rows[0].reason;
  std::vector<RunFiles> steady;
  for (unsigned seed = 3; seed < 6; ++seed) steady.push_back(host(5000 + seed, seed));
  const MeasuredNoise measured = measure_noise(steady);
  GateOptions options;
  options.noise = &measured.noise;
  EXPECT_EQ(gate(a, b, options).count(GateVerdict::regressed), 10u) << "a machine of its own resolves more";
}

TEST(Gate, NamesWhatIsMissingOrBroken) {
  Rows before = rows_of(4, 100), after = before;
  before.resize(3);                      // row 4 is new
  after[0].status = Outcome::incorrect;  // broke
  after[1].status = Outcome::throttled;  // could not be measured
  const RunFiles a = synthetic_run(before, 1);
  const auto result_of = [&](const RunFiles& run, bool new_rows = false) {
    GateOptions options;
    options.new_rows = new_rows;
    return gate(run, synthetic_run(after, 2), options);
  };
  GateResult result = result_of(a);
  EXPECT_EQ(result.exit_code(), 1);
  ASSERT_EQ(result.gaps.size(), 3u);
  EXPECT_EQ(result.gaps[0].what, "ok in the baseline, incorrect in the candidate");
  EXPECT_EQ(result.gaps[0].weight, GateGap::Weight::fails);
  EXPECT_EQ(result.gaps[1].what, "ok in the baseline, throttled in the candidate");
  EXPECT_EQ(result.gaps[2].what, "missing in the baseline, ok in the candidate");
  after[0].status = Outcome::implausible;
  EXPECT_EQ(result_of(a).exit_code(), 1);
  after[0].status = Outcome::ok;
  EXPECT_EQ(result_of(a).exit_code(), 2);
  after[1].status = Outcome::ok;
  EXPECT_EQ(result_of(a).exit_code(), 2) << "half of the rows is no baseline";
  EXPECT_EQ(result_of(a, true).exit_code(), 0);
  after[1].status = Outcome::cuda_error;
  before[1].status = Outcome::cuda_error;  // broke before: named, and not this change's doing
  result = result_of(synthetic_run(before, 1), true);
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.count(GateGap::Weight::noted), 2u);
  after.resize(2), before[1].status = after[1].status = Outcome::unsupported_problem;
  result = result_of(synthetic_run(before, 1), true);
  EXPECT_EQ(result.exit_code(), 2) << "a row is missing in the candidate, whatever is allowed of new ones";
  EXPECT_EQ(result.untimed, 1u);
}

TEST(Gate, WhatIsGoneIsNotPassedOver) {
  Rows rows = rows_of(3, 100);
  for (SyntheticRow& row : rows) row.kernels = {"a"};
  const RunFiles a = synthetic_run(rows, 1);
  rows[1].serial = false, rows[2].kernels = {};
  const RunFiles b = synthetic_run(rows, 2);
  GateOptions options;
  options.pairs.filter = [](const std::string& name) { return name.find("m=3") == std::string::npos; };
  const GateResult warm = gate(a, b, options);
  EXPECT_EQ(warm.exit_code(), 2);
  ASSERT_EQ(warm.gaps.size(), 1u);
  EXPECT_EQ(warm.gaps[0].id.problem, "m=2,n=64,k=64");
  EXPECT_EQ(gate(b, a, options).exit_code(), 0) << "an older baseline has no such times";
  options.pairs.filter = [](const std::string& name) { return name.find("m=2") == std::string::npos; };
  EXPECT_EQ(gate(a, b, options).exit_code(), 0);
  options.launches = true;
  const GateResult kernels = gate(a, b, options);
  EXPECT_EQ(kernels.exit_code(), 2);
  ASSERT_EQ(kernels.gaps.size(), 1u);
  EXPECT_EQ(kernels.gaps[0].id.problem, "m=3,n=64,k=64");
}

TEST(Gate, RefusesWhatCannotBeCompared) {
  const Rows rows = rows_of(2, 100);
  const RunFiles a = synthetic_run(rows, 1);
  const auto refused = [&](const RunFiles& b, const GateNoise* noise = nullptr) {
    GateOptions options;
    options.noise = noise;
    return error_of([&] { return gate(a, b, options); });
  };
  EXPECT_NE(refused(synthetic_run(rows, 2, "abc", "Another GPU")).find("'Another GPU'"), std::string::npos);
  EXPECT_NE(refused(synthetic_run({}, 2)).find("no rows"), std::string::npos);
  Rows half = rows;
  for (SyntheticRow& row : half) row.dtype = "fp16";
  EXPECT_NE(refused(synthetic_run(half, 2)).find("gemm in fp16"), std::string::npos);
  RunFiles bare = synthetic_run(rows, 2), two = synthetic_run(rows, 2);
  bare.samples.clear();
  EXPECT_NE(refused(bare).find("no samples of the row gemm/"), std::string::npos);
  two.rows[1].device = "Another GPU";
  EXPECT_NE(refused(two).find("more than one device"), std::string::npos);
  const GateNoise other{"Another GPU", {}, {}}, own{"Test GPU", {name_of(two)}, {}};
  EXPECT_NE(refused(synthetic_run(rows, 2), &other).find("'Another GPU'"), std::string::npos);
  EXPECT_NE(refused(synthetic_run(rows, 2), &own).find("measured from"), std::string::npos) << "it would always pass";
}

TEST(Gate, PutsTheWorstFirstAndAddsUpNetworks) {
  Rows before = rows_of(5, 100), after = before;
  after[1].us = 120, after[3].us = 150, after[4].us = 60;
  const RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
  const GateResult result = gate(a, b, {});
  ASSERT_EQ(result.rows.size(), 5u);
  EXPECT_EQ(result.rows[0].change.rows.a->problem, "m=4,n=64,k=64");
  EXPECT_EQ(result.rows[1].change.rows.a->problem, "m=2,n=64,k=64");
  EXPECT_EQ(result.rows[2].verdict, GateVerdict::improved);
  ASSERT_EQ(result.totals.size(), 1u);
  EXPECT_NEAR(result.totals[0].a.cold.us, 1000, 10);  // 5 x 100 us, twice a pass
  EXPECT_NEAR(result.totals[0].b.cold.us, 1060, 10);
  const std::string text = terminal_text(result), markdown = markdown_text(result);
  EXPECT_LT(text.find("m=4,n=64,k=64"), text.find("m=2,n=64,k=64"));
  EXPECT_NE(text.find("5 rows compared: 2 regressed, 0 ambiguous, 1 improved, 2 pass"), std::string::npos);
  expect_parts(markdown,
               {"| regressed | warm and cold | gemm | m=4,n=64,k=64 | bf16 | ptx |", "### Totals of one forward pass"});
}

TEST(Gate, ItsMarkdownFitsIntoAComment) {
  Rows before = rows_of(300, 100), after = rows_of(300, 200);
  for (std::size_t i = 0; i < 300; ++i) {
    after[i].us += static_cast<double>(i);
    before[i].network = after[i].network = "net" + std::to_string(i);
    if (i % 2 == 1) after[i].status = Outcome::unsupported_problem;
  }
  RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
  for (auto* run : {&a, &b})
    for (SweepRow& row : run->rows) row.device = std::string(70000, '|');
  for (SweepRow& row : b.rows) row.reason = std::string(300000, '|');
  const std::string markdown = markdown_text(gate(a, b, {}));
  EXPECT_LT(markdown.size(), 65000u);
  EXPECT_LT(markdown.find("m=299,"), markdown.find("m=297,")) << "the worst rows first";
}

TEST(Gate, SaysWhereItComparesARunWithItself) {
  const RunFiles a = synthetic_run(rows_of(2, 100), 1), b = synthetic_run(rows_of(2, 100), 2);
  const auto says = [&](const RunFiles& other) {
    return terminal_text(gate(a, other, {})).find("or a copy") != std::string::npos;
  };
  RunFiles copy = a;
  copy.folder = "copied";
  EXPECT_TRUE(says(a));
  EXPECT_TRUE(says(copy));
  copy = b, copy.folder = "another";
  EXPECT_FALSE(says(copy));
}

TEST(Gate, RowsThatASweepKeptOfTheBaselineAreCountedAndNotCompared) {
  RunFiles baseline = synthetic_run(rows_of(3, 100), 1);
  for (SweepRow& row : baseline.rows) row.signature = "0123", row.measured_utc = "2026-01-01T00:00:00Z";
  RunFiles candidate = baseline;
  candidate.environment.texts[kReusedFrom] = "baseline";
  EXPECT_EQ(gate(baseline, candidate, {}).kept.size(), 0u) << "a copy of the baseline keeps nothing";
  candidate.environment.time_utc = "2026-02-01T00:00:00Z";
  const GateResult all = gate(baseline, candidate, {});
  EXPECT_EQ(all.kept.size(), 3u);
  EXPECT_EQ(all.exit_code(), 0);
  EXPECT_NE(terminal_text(all).find("3 of 3 rows run the same code"), std::string::npos);
  EXPECT_NE(junit_xml(all).find("tests=\"3\""), std::string::npos);
  EXPECT_NE(benchmark_action_json(all), benchmark_action_json({})) << "pages of trends have their times";
  RunFiles doubted = candidate;
  doubted.environment.texts[kDoubted] = "a case";
  EXPECT_EQ(gate(baseline, doubted, {}).exit_code(), 2);

  // Measured: a check, a row of other code, and one that claims to be kept.
  RunFiles slow = times(candidate, 1.2);
  slow.rows[0].measured_utc = slow.rows[1].measured_utc = "2026-02-01T00:00:00Z";
  slow.rows[1].signature = "4567";
  const GateResult none = gate(baseline, slow, {});
  EXPECT_EQ(none.count(GateVerdict::regressed), 3u);
  for (const GateRow& row : none.rows)
    EXPECT_EQ(row.reason.find("same code") != std::string::npos, row.change.rows.b->signature == "0123");
}

TEST(Gate, ASecondMeasurementDecidesARowThatItsClockMadeSlow) {
  Rows rows = rows_of(1, 100), after = rows;
  after[0].us = 115, after[0].mhz = 1980 / 1.15, after[0].throttle = "sw_power_cap";
  const RunFiles a = synthetic_run(rows, 1), b = synthetic_run(after, 2), again = synthetic_run(rows, 3);
  GateOptions options;
  EXPECT_EQ(gate(a, b, options).exit_code(), 2);
  options.again = &again;
  EXPECT_EQ(gate(a, b, options).exit_code(), 0);
}

TEST(Gate, ASecondMeasurementDecidesASuspect) {
  Rows rows = rows_of(3, 100), after = rows;
  after[0].us = after[1].us = 110;
  const RunFiles a = synthetic_run(rows, 1), b = synthetic_run(after, 2);
  after[1].us = 100, after[2].us = 200;
  const RunFiles again = synthetic_run(after, 3);
  GateOptions options;
  options.again = &again;
  const GateResult result = gate(a, b, options);
  ASSERT_EQ(result.count(GateVerdict::regressed), 1u) << "what was no suspect is not looked at";
  EXPECT_EQ(result.rows[0].change.rows.a->problem, "m=1,n=64,k=64");
  EXPECT_NE(result.rows[0].reason.find("measured again"), std::string::npos);
  const auto refused = [&](const RunFiles& other) {
    options.again = &other;
    return error_of([&] { return gate(a, b, options); });
  };
  EXPECT_NE(refused(a).find("holds the samples"), std::string::npos) << "the baseline would clear every suspect";
  EXPECT_NE(refused(b).find("holds the samples"), std::string::npos);
  RunFiles other = again;
  other.environment.commit = "older";
  EXPECT_NE(refused(other).find("older"), std::string::npos);
}

TEST(Gate, NamesOtherGpusPowerLimitsAndLibrariesAndJudgesAllTheSame) {
  RunFiles before = synthetic_run(rows_of(2, 100), 1), after = synthetic_run(rows_of(2, 100), 2);
  for (RunFiles* run : {&before, &after}) {
    for (SweepRow& row : run->rows) row.gpu_uuid = "GPU-1";
    run->environment.power_limit_w = 700;
    run->environment.texts["cudnn"] = "9.13.0";
  }
  EXPECT_TRUE(environment_differences(before, after).empty());
  after.rows[1].gpu_uuid = "GPU-2";  // as in a folder that was merged
  after.environment.power_limit_w = 652.5;
  after.environment.texts["cudnn"] = "9.14.1";
  after.environment.texts["cublaslt"] = "13.1.0";
  EXPECT_EQ(environment_differences(before, after),
            (std::vector<std::string>{"GPU: GPU-1 and GPU-1, GPU-2", "power limit: 700 W and 652.5 W",
                                      "cuBLASLt: unknown and 13.1.0", "cuDNN: 9.13.0 and 9.14.1"}));
  const GateResult result = gate(before, after, {});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_NE(terminal_text(result).find("power limit: 700 W and 652.5 W"), std::string::npos);
}

TEST(Compare, PairsTwoVariants) {
  Rows rows = rows_of(4, 100);
  rows[1].variant = rows[3].variant = "tiled";
  RunFiles run = synthetic_run(rows, 1);
  for (SweepRow& row : run.rows) {  // two problems, each by both variants
    auto samples = run.samples.extract(row);
    row.problem = row.problem == "m=1,n=64,k=64" || row.problem == "m=2,n=64,k=64" ? "m=1,n=64,k=64" : "m=3,n=64,k=64";
    samples.key() = row;
    run.samples.insert(std::move(samples));
  }
  RowPairing options;
  options.variant_a = "ptx", options.variant_b = "tiled";
  const auto pairs = pair_rows(run, run, options);
  ASSERT_EQ(pairs.size(), 2u);
  for (const RowPair& pair : pairs) {
    EXPECT_EQ(pair.a->variant, "ptx");
    EXPECT_EQ(pair.b->variant, "tiled");
    EXPECT_EQ(pair.a->problem, pair.b->problem);
  }
  RowPairing filtered;
  filtered.filter = name_filter("--filter", "m=3.*tiled");
  EXPECT_EQ(pair_rows(run, run, filtered).size(), 1u);
}

}  // namespace
}  // namespace noisefloor
