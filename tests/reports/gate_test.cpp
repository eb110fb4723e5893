// The gate's verdicts, on runs whose true times are known.
#include "reports/gate/gate.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "reports/gate/gate_noise.h"
#include "reports/gate/gate_report.h"
#include "tests/support/gate_runs.h"

namespace noisefloor {
namespace {

TEST(Gate, PassesAgainstItself) {
  EXPECT_TRUE(rc::check("no run has regressed against itself", [] {
    Rows rows(*rc::gen::inRange<std::size_t>(1, 20));
    for (SyntheticRow& row : rows) {
      row.us = *rc::gen::inRange(1, 100000) / 7.0;
      row.spread = *rc::gen::inRange(0, 300) / 1000.0;
      row.samples = *rc::gen::inRange<std::size_t>(1, 60);
    }
    const RunFiles run = synthetic_run(rows, *rc::gen::inRange(0u, 1000u));
    const GateResult result = judged(run, run);
    RC_ASSERT(result.count(GateVerdict::pass) == rows.size());
    RC_ASSERT(result.exit_code() == 0);
  }));
}

TEST(Gate, FindsEveryShiftThatIsLargeEnough) {
  EXPECT_TRUE(
      rc::check("rows slowed by 5 % or more regress, warm or cold; the others do not; swapped, they improve", [] {
        Rows before = rows_of(*rc::gen::inRange<std::size_t>(1, 30), 0), after;
        for (SyntheticRow& row : before) row.us = *rc::gen::inRange(40, 5000), row.warm_us = 0.8 * row.us;
        after = before;
        std::size_t slowed = 0;
        for (SyntheticRow& row : after) {
          const double factor = 1 + *rc::gen::inRange(50, 500) / 1000.0;
          switch (*rc::gen::inRange(0, 4)) {
            case 0:
              break;
            case 1:
              row.us *= factor + 0.02, ++slowed;  // cold, processes differ by 1.6 us of 40
              break;
            case 2:
              *row.warm_us *= factor, ++slowed;
              break;
            default:
              row.us *= factor, *row.warm_us *= factor, ++slowed;
          }
        }
        const unsigned seed = *rc::gen::inRange(0u, 100000u);
        const RunFiles a = synthetic_run(before, seed), b = synthetic_run(after, seed + 1);
        const GateResult forward = judged(a, b), backward = judged(b, a);
        RC_ASSERT(forward.count(GateVerdict::regressed) == slowed);
        RC_ASSERT(forward.exit_code() == (slowed > 0 ? 1 : 0));
        RC_ASSERT(backward.count(GateVerdict::improved) == slowed);
        RC_ASSERT(backward.count(GateVerdict::regressed) == 0u);
      }));
}

TEST(Gate, DoesNotCallNoiseARegression) {
  // 40 pairs of 100 rows of the same true time, with samples that scatter by 8 %, batches by 2 %.
  std::size_t regressed = 0, compared = 0;
  Rows rows = rows_of(100, 50, 0.08);
  for (SyntheticRow& row : rows) row.batch = 0.02;
  for (unsigned pair = 0; pair < 40; ++pair) {
    const GateResult result = judged(synthetic_run(rows, 2 * pair), synthetic_run(rows, 2 * pair + 1));
    regressed += result.count(GateVerdict::regressed);
    compared += result.rows.size();
  }
  EXPECT_EQ(compared, 4000u);
  EXPECT_EQ(regressed, 0u);
}

TEST(Gate, IsAmbiguousWhereTheClockExplainsIt) {
  Rows before = rows_of(1, 100), after = rows_of(1, 110);
  after[0].mhz = 1800;  // 110 us x 1800 MHz = 100 us x 1980 MHz
  const GateResult result = judged(synthetic_run(before, 1), synthetic_run(after, 2));
  EXPECT_EQ(result.rows.at(0).verdict, GateVerdict::ambiguous);
  EXPECT_NE(result.rows[0].reason.find("% in SM cycles (noise"), std::string::npos);
  EXPECT_EQ(result.exit_code(), 0);
  after[0].us = 120;  // 9 % more cycles too
  EXPECT_EQ(judged(synthetic_run(before, 1), synthetic_run(after, 2)).rows.at(0).verdict, GateVerdict::regressed);
}

TEST(Gate, GoesByTimeWhereThereIsNoClock) {
  const auto without_clock = [](RunFiles run) {
    for (SweepRow& row : run.rows) row.sm_clock_mhz.reset();
    for (SweepRow& row : run.rows) row.warm_clock_mhz.reset();
    for (auto& [key, samples] : run.samples) samples.cold_mhz.clear(), samples.warm_mhz.clear();
    return run;
  };
  const GateResult result =
      judged(without_clock(synthetic_run(rows_of(1, 100), 1)), without_clock(synthetic_run(rows_of(1, 110), 2)));
  EXPECT_EQ(result.rows.at(0).verdict, GateVerdict::regressed);
  EXPECT_EQ(result.rows[0].reason, "warm: by time alone: no SM clock; cold: by time alone: no SM clock");
  EXPECT_FALSE(result.rows[0].change.cold.cycle_change);
}

TEST(Gate, IsAmbiguousWhereBatchesScatterMore) {
  Rows before = rows_of(1, 100), after = rows_of(1, 107);
  for (Rows* rows : {&before, &after}) (*rows)[0].batch = 0.08;
  RunFiles a = synthetic_run(before, 1), b = synthetic_run(after, 2);
  GateResult result = judged(a, b);
  for (unsigned seed = 3; result.rows.at(0).verdict == GateVerdict::pass; seed += 2)  // until the medians lie apart
    result = judged(synthetic_run(before, seed), synthetic_run(after, seed + 1));
  EXPECT_EQ(result.rows.at(0).verdict, GateVerdict::ambiguous);
  EXPECT_NE(result.rows[0].reason.find("within the noise of"), std::string::npos) << result.rows[0].reason;
}

// Thirty batches, each at one of two levels 5 % apart: `high` of them at the upper one.
RunFiles of_two_levels(std::size_t high, double us, unsigned seed) {
  Rows rows = rows_of(1, us);
  rows[0].samples = 300, rows[0].batch = 0;
  RunFiles run = synthetic_run(rows, seed);
  for (auto& [id, samples] : run.samples) {
    for (std::size_t i = 0; i < 10 * high; ++i) samples.cold_us[i] *= 1.05, samples.warm_us[i] *= 1.05;
    run.rows[0].time_cold_us = median(samples.cold_us);
    run.rows[0].time_warm_us = run.rows[0].time_warm_serial_us = median(samples.warm_us);
  }
  return run;
}

// A few batches of thirty decide at which level the median of all samples lies; their mean hardly moves.
TEST(Gate, AMedianThatGoesFromOneLevelToAnotherIsNoRegression) {
  const GateResult equal = judged(of_two_levels(12, 100, 1), of_two_levels(18, 100, 2));
  EXPECT_GT(equal.rows.at(0).change.cold.change, 0.04);
  EXPECT_EQ(equal.rows[0].verdict, GateVerdict::ambiguous);
  EXPECT_NE(equal.rows[0].reason.find("by the means of batches"), std::string::npos) << equal.rows[0].reason;
  EXPECT_EQ(judged(of_two_levels(12, 100, 1), of_two_levels(18, 106, 2)).rows.at(0).verdict, GateVerdict::regressed);
}

TEST(Gate, MeanOfBatchesOfKnownNumbers) {
  const std::vector<double> samples{9, 9, 12, 11, 11};
  const BatchMean mean = mean_of_batches({samples, std::vector<std::size_t>{3, 2}});
  EXPECT_EQ(mean.value, 10);
  EXPECT_NEAR(mean.error, 0.1, 1e-12) << "s = sqrt 2, over sqrt 2, of 10";
  EXPECT_EQ(mean.freedom, 1);
  EXPECT_EQ(mean_of_batches({samples, std::vector<std::size_t>{5}}).error, 0);
}

TEST(Gate, IsAmbiguousOfTooFewSamples) {
  Rows before = rows_of(40, 100, 0.001), after = rows_of(40, 110, 0.001);
  for (Rows* rows : {&before, &after})
    for (SyntheticRow& row : *rows) row.samples = 5, row.per_batch = 2, row.batch = 0;
  // The smallest p of 5 against 5 is 2/252; of 40 rows in two phases it is 0.63.
  const GateResult result = judged(synthetic_run(before, 1), synthetic_run(after, 2));
  EXPECT_EQ(result.count(GateVerdict::ambiguous), 40u);
  EXPECT_EQ(result.rows.at(0).reason, "warm: p = 0.63; p = 0.63 in SM cycles; cold: p = 0.63; p = 0.63 in SM cycles");
}

TEST(Gate, BatchNoiseOfKnownNumbers) {
  using Sizes = std::vector<std::size_t>;
  const std::vector<double> steady{10, 10, 10, 10}, stepped{9, 9, 11, 11};
  const Sizes two{2, 2};
  EXPECT_EQ(batch_noise({steady, two}, {steady, two}), 0);
  // Medians 9 and 11: s = sqrt 2, standard error 1.2533 x sqrt 2 / sqrt 2 = 1.2533 of 10. Two degrees of freedom.
  EXPECT_NEAR(batch_noise({steady, two}, {stepped, two}), (3 + 3.75 + 4.3125) * 0.12533, 1e-4);
  // Cut into as many pieces as there are samples: s = sqrt(4/3), over sqrt 4; four degrees of freedom.
  EXPECT_NEAR(batch_noise({steady, two}, {stepped, {}}), (3 + 1.875 + 1.078125) * 0.12533 * std::sqrt(4.0 / 3) / 2,
              1e-4);
  EXPECT_EQ(batch_noise({steady, Sizes{4}}, {stepped, Sizes{4}}), 0) << "nothing is known";
  std::vector<double> many;
  for (int i = 0; i < 2000; ++i) many.push_back(i % 2 == 0 ? 99 : 101);
  const Sizes single(many.size(), 1);
  EXPECT_NEAR(batch_noise({many, single}, {many, single}), 3 * std::sqrt(2) * 1.2533 * 0.01 / std::sqrt(2000), 1e-5);
}

// Such a baseline is another measurement.
TEST(Gate, RowsOfOtherNumbersOfPlacesDoNotRegress) {
  for (const bool alike : {true, false}) {
    Rows before = rows_of(4, 100), after = rows_of(4, 110);
    for (SyntheticRow& row : after) row.places = 20;
    if (alike)
      for (SyntheticRow& row : before) row.places = 20;
    const GateResult result = judged(synthetic_run(before, 1), synthetic_run(after, 2));
    EXPECT_EQ(result.count(alike ? GateVerdict::regressed : GateVerdict::ambiguous), 4u);
    EXPECT_EQ(result.rows.at(0).reason.find("places of its tensors: 1 before, 20 now") != std::string::npos, !alike)
        << result.rows.at(0).reason;
  }
}

// Eight places that differ by up to 9 %.
TEST(Gate, BatchesOfTheSamePlacesAreCompared) {
  using Sizes = std::vector<std::size_t>;
  const std::vector<double> places{100, 103, 95, 99, 101, 104, 97, 100}, same{200, 206, 190, 198, 202, 208, 194, 200},
      others{104, 97, 100, 100, 103, 95, 99, 101};
  const Sizes eight(8, 1);
  EXPECT_NEAR(batch_noise({places, eight}, {same, eight}, true), 0, 1e-12) << "the same pages";
  EXPECT_GT(batch_noise({places, eight}, {same, eight}), 0.05) << "not in places";
  const double apart = batch_noise({places, eight}, {others, eight}, true);
  EXPECT_GT(apart, 0.05) << "other pages";
  EXPECT_LT(apart, 0.12);
  const Sizes four(4, 2);
  EXPECT_GT(batch_noise({places, four}, {places, four}, true), 0.01) << "too few to say";
}

TEST(Gate, NamesWhatIsMissingOrBroken) {
  Rows before = rows_of(4, 100), after = before;
  before.resize(3);                      // row 4 is new
  after[0].status = Outcome::incorrect;  // broke
  after[1].status = Outcome::throttled;  // could not be measured
  const RunFiles a = synthetic_run(before, 1);
  GateResult result = judged(a, synthetic_run(after, 2));
  EXPECT_EQ(result.exit_code(), 1);
  ASSERT_EQ(result.gaps.size(), 3u);
  EXPECT_EQ(result.gaps[0].what, "ok in the baseline, incorrect in the candidate");
  EXPECT_EQ(result.gaps[0].weight, GateGap::Weight::fails);
  EXPECT_EQ(result.gaps[1].what, "ok in the baseline, throttled in the candidate");
  EXPECT_EQ(result.gaps[2].what, "missing in the baseline, ok in the candidate");
  after[0].status = Outcome::ok;
  EXPECT_EQ(judged(a, synthetic_run(after, 2)).exit_code(), 2);
  after[1].status = Outcome::ok;
  EXPECT_EQ(judged(a, synthetic_run(after, 2)).exit_code(), 2) << "half of the rows is no baseline";
  GateOptions lenient;
  lenient.new_rows = true;
  EXPECT_EQ(judged(a, synthetic_run(after, 2), {}, lenient).exit_code(), 0);
  after[1].status = Outcome::cuda_error;
  before[1].status = Outcome::cuda_error;  // broke before: named, and not this change's doing
  result = judged(synthetic_run(before, 1), synthetic_run(after, 2), {}, lenient);
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.count(GateGap::Weight::noted), 2u);
  after.resize(2), before[1].status = after[1].status = Outcome::unsupported_problem;
  result = judged(synthetic_run(before, 1), synthetic_run(after, 2), {}, lenient);
  EXPECT_EQ(result.exit_code(), 2) << "a row is missing in the candidate, whatever is allowed of new ones";
  EXPECT_EQ(result.untimed, 1u);
}

TEST(Gate, RefusesWhatCannotBeCompared) {
  const Rows rows = rows_of(2, 100);
  const RunFiles a = synthetic_run(rows, 1);
  EXPECT_NE(
      refusal(a, synthetic_run(rows, 2, "abc", "Another GPU")).find("is of 'Test GPU', synthetic of 'Another GPU'"),
      std::string::npos);
  EXPECT_NE(refusal(a, synthetic_run({}, 2)).find("the run has no rows"), std::string::npos);
  Rows half = rows;
  for (SyntheticRow& row : half) row.dtype = "fp16";
  EXPECT_NE(refusal(a, synthetic_run(half, 2)).find("synthetic has gemm in bf16; synthetic has gemm in fp16"),
            std::string::npos);
  RunFiles bare = synthetic_run(rows, 2);
  bare.samples.clear();
  EXPECT_NE(refusal(a, bare).find("samples.jsonl: no samples of the row gemm/"), std::string::npos);
  RunFiles two = synthetic_run(rows, 2);
  two.rows[1].device = "Another GPU";
  EXPECT_NE(refusal(a, two).find("more than one device: Another GPU, Test GPU"), std::string::npos);
}

TEST(Gate, PutsTheWorstFirstAndAddsUpNetworks) {
  Rows before = rows_of(5, 100), after = before;
  after[1].us = 120, after[3].us = 150, after[4].us = 60;
  const RunFiles run_before = synthetic_run(before, 1),
                 run_after = synthetic_run(after, 2);  // the result points at them
  const GateResult result = judged(run_before, run_after);
  ASSERT_EQ(result.rows.size(), 5u);
  EXPECT_EQ(result.rows[0].change.rows.a->problem, "m=4,n=64,k=64");
  EXPECT_EQ(result.rows[1].change.rows.a->problem, "m=2,n=64,k=64");
  EXPECT_EQ(result.rows[2].verdict, GateVerdict::improved);
  ASSERT_EQ(result.totals.size(), 1u);
  EXPECT_NEAR(result.totals[0].a.microseconds, 1000, 10);  // 5 x 100 us, twice a pass
  EXPECT_NEAR(result.totals[0].b.microseconds, 1060, 10);
  const std::string text = terminal_text(text_of(result)), markdown = markdown_text(text_of(result));
  EXPECT_LT(text.find("m=4,n=64,k=64"), text.find("m=2,n=64,k=64"));
  EXPECT_NE(text.find("5 rows compared: 2 regressed, 0 ambiguous, 1 improved, 2 pass"), std::string::npos);
  EXPECT_NE(markdown.find("| regressed | warm and cold | gemm | m=4,n=64,k=64 | bf16 | ptx |"), std::string::npos)
      << markdown;
  EXPECT_NE(markdown.find("### Totals of one forward pass"), std::string::npos);
}

TEST(Gate, NamesOtherGpusPowerLimitsAndLibrariesAndJudgesAllTheSame) {
  RunFiles before = synthetic_run(rows_of(2, 100), 1), after = synthetic_run(rows_of(2, 100), 2);
  for (RunFiles* run : {&before, &after}) {
    for (SweepRow& row : run->rows) row.gpu_uuid = "GPU-1";
    run->environment.power_limit_w = 700;
    run->environment.cudnn = "9.13.0";
  }
  EXPECT_TRUE(judged(before, after).differences.empty());
  after.rows[1].gpu_uuid = "GPU-2";  // as in a folder that was merged
  after.environment.power_limit_w = 652.5;
  after.environment.cudnn = "9.14.1";
  after.environment.cublaslt = "13.1.0";
  const GateResult result = judged(before, after);
  EXPECT_EQ(result.differences,
            (std::vector<std::string>{"GPU: GPU-1 and GPU-1, GPU-2", "power limit: 700 W and 652.5 W",
                                      "cuBLASLt: unknown and 13.1.0", "cuDNN: 9.13.0 and 9.14.1"}));
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_NE(terminal_text(text_of(result)).find("power limit: 700 W and 652.5 W"), std::string::npos);
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
  PairOptions options;
  options.variant_a = "ptx", options.variant_b = "tiled";
  const auto pairs = pair_rows(run, run, options);
  ASSERT_EQ(pairs.size(), 2u);
  for (const RowPair& pair : pairs) {
    EXPECT_EQ(pair.a->variant, "ptx");
    EXPECT_EQ(pair.b->variant, "tiled");
    EXPECT_EQ(pair.a->problem, pair.b->problem);
  }
  options.variant_b = "naive";
  EXPECT_THROW(pair_rows(run, run, options), std::runtime_error);
  PairOptions filtered;
  filtered.filter = name_filter("--filter", "m=3.*tiled");
  EXPECT_EQ(pair_rows(run, run, filtered).size(), 1u);
  filtered.filter = name_filter("--filter", "conv");
  EXPECT_THROW(pair_rows(run, run, filtered), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor
