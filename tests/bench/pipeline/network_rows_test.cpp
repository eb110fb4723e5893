// Whole networks as rows of a sweep: their random weights, their verification, and plans that take known times.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/sweep/selection.h"
#include "bench/sweep/suite.h"
#include "reports/totals/totals.h"
#include "tests/support/counted_variants.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

using pipeline::network_workload;

const SuiteEntry& entry() {
  return *suite().find("network");
}

Case digits_case(const std::string& implementation, DType dtype = DType::bf16,
                 const char* text = "name=digits,batch=1") {
  return {&entry(), entry().find(implementation), network_workload().parse(text), dtype, text, "digits-b1:1"};
}

// ---- weights

TEST(RandomWeights, AreNeverZeroAndTheSameInEveryDtype) {
  const pipeline::RandomWeights weights;
  const auto network = networks::require_network("digits").build({.batch = 1, .dtype = DType::fp32});
  for (const networks::Value& value : network.graph.values()) {
    if (!value.source) continue;
    std::vector<float> exact(static_cast<std::size_t>(value.elements()));
    weights.fill(host(), value, exact.data());
    networks::Value rounded = value;
    rounded.dtype = DType::bf16;
    std::vector<std::uint16_t> bits(exact.size());
    weights.fill(host(), rounded, bits.data());
    double squares = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      squares += static_cast<double>(exact[i]) * exact[i];
      const double other = load_element(DType::bf16, bits.data(), static_cast<std::int64_t>(i));
      ASSERT_NEAR(other, exact[i], std::fabs(exact[i]) / 256) << value.name;
    }
    EXPECT_GT(squares, 0) << value.name;
    if (value.shape.size() > 1 && exact.size() > 4096) {  // products keep the variance of their inputs
      const auto rows = static_cast<double>(value.shape[0]);
      EXPECT_NEAR(squares / rows, 1, 0.1) << value.name;
    }
  }
}

// ---- verification

// plan_own, with 64 numbers of a tensor scaled behind it.
class Spoilt final : public Implementation {
 public:
  explicit Spoilt(std::size_t tensor = 3, float factor = 1.05f) : tensor_(tensor), factor_(factor) {
    kind = "network";
    on_host = true;
  }
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype,
                              KnownTimes& known) const override {
    class SpoiltReady final : public Ready {
     public:
      SpoiltReady(std::unique_ptr<Ready> right, const Spoilt& how) : right_(std::move(right)), how_(how) {}
      std::size_t workspace_bytes() const override { return right_->workspace_bytes(); }
      Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) override {
        const Status status = right_->launch(pointers, scratch, context);
        for (int i = 0; i < 64; ++i) static_cast<float*>(pointers[how_.tensor_])[i] *= how_.factor_;
        return status;
      }

     private:
      std::unique_ptr<Ready> right_;
      const Spoilt& how_;
    };
    return std::make_unique<SpoiltReady>(entry().find("plan_own")->make(platform, problem, dtype, known), *this);
  }

 private:
  std::size_t tensor_;
  float factor_;
};

Verdict verdict_of(const Implementation& implementation, DType dtype, const char* text = "name=digits,batch=1") {
  Fixture fixture(host(), entry(), network_workload().parse(text), dtype, 1);
  BoundCase bound(fixture, implementation);
  return Verifier(fixture).verify(bound);
}

TEST(NetworkVerification, HoldsTheOutputToTheNetworkInFp32) {
  const Implementation& own = *entry().find("plan_own");
  const Verdict rounded = verdict_of(own, DType::bf16);
  EXPECT_TRUE(rounded.correct()) << rounded.reason;
  EXPECT_GT(rounded.l2_error, 1e-4);  // it is another computation
  EXPECT_LT(rounded.l2_error, 2e-2);
  EXPECT_EQ(rounded.l2_tolerance, 2e-2);
  EXPECT_TRUE(verdict_of(own, DType::fp32).correct());
}

TEST(NetworkVerification, CatchesWhatIsOffByMoreThanRounding) {
  const Verdict verdict = verdict_of(Spoilt(), DType::bf16);
  EXPECT_FALSE(verdict.correct());
  EXPECT_NE(verdict.reason.find("relative L2 error"), std::string::npos) << verdict.reason;
}

TEST(NetworkVerification, HoldsTheGradientsOfATrainingStep) {
  const char* const step = "name=digits,batch=2,training=1";
  const Verdict right = verdict_of(*entry().find("plan_own"), DType::bf16, step);
  EXPECT_TRUE(right.correct()) << right.reason;
  EXPECT_GT(right.l2_error, 1e-3);
  constexpr std::size_t kGradients = 6;  // behind images, labels, step, rates, loss and norm
  EXPECT_FALSE(verdict_of(Spoilt(kGradients, 30), DType::bf16, step).correct());
}

// ---- rows

RunnerOptions hasty() {
  RunnerOptions options;
  options.cold.wall_seconds = options.warm.wall_seconds = 0.05;
  options.watch_others = false;  // whether it is ok shall not depend on what else this machine does
  return options;
}

TEST(NetworkRows, OfOtherSizesAreVerifiedToo) {
  CaseRunner runner(host(), nullptr, hasty());
  const char* const text = "name=digits,batch=2,height=6,width=10";
  const SweepRow row = runner.run(digits_case("plan_own", DType::bf16, text)).row;
  ASSERT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_EQ(row.problem, text);
  EXPECT_GT(row.peak_memory_bytes.value_or(0), 2 * 1'229'697);  // its weights are among them
}

// Naive variants and the plan's are the same there: that such a row is ok says nothing of them.
TEST(NetworkRows, OfAHostInFp32SayThatTheyAreComparedWithThemselves) {
  CaseRunner runner(host(), nullptr, hasty());
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const SweepRow row = runner.run(digits_case("plan_own", dtype)).row;
    ASSERT_EQ(row.status, Outcome::ok) << row.reason;
    EXPECT_EQ(row.reason.find("cannot come out incorrect") != std::string::npos, dtype == DType::fp32) << row.reason;
  }
}

TEST(NetworkRows, OfPlansThatNeedAGpuSayIt) {
  CaseRunner runner(host(), nullptr, hasty());
  for (const char* name : {"plan_baseline", "plan_fastest"}) {
    const SweepRow row = runner.run(digits_case(name)).row;
    EXPECT_EQ(row.status, Outcome::no_device) << name;
    EXPECT_EQ(row.reason, "needs a CUDA device");
  }
  EXPECT_EQ(entry().find("plan_baseline")->kind, "baseline");
}

TEST(NetworkRows, AreChosenByNetworkAndRunLast) {
  const auto problems = load_problems("bench/problems");
  Selection selection{{}, {"adm64-b1"}, {}, {}, {"bf16"}};
  const auto names = [&](bool on_host) {
    std::vector<std::string> list;
    for (const Case& one : select_cases(problems, selection, on_host))
      if (one.entry == &entry()) list.push_back(one.text + "/" + one.implementation->name);
    return list;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(true), Names{"name=adm64,batch=1/plan_own"});
  EXPECT_EQ(names(false),
            (Names{"name=adm64,batch=1/plan_own", "name=adm64,batch=1/plan_baseline", "name=adm64,batch=1/plan_fastest",
                   "name=adm64,batch=1/torch_eager", "name=adm64,batch=1/torch_compile"}));
  EXPECT_EQ(select_cases(problems, selection, false).back().entry, &entry());
  selection.whole_networks = {"digits-b1"};  // as the default of a host has it
  EXPECT_EQ(names(true), Names{"name=digits,batch=1/plan_own"});
  EXPECT_GT(select_cases(problems, selection, true).size(), 10u);  // the ops of adm64-b1
  selection.kinds = {"network"};
  EXPECT_EQ(names(false), (Names{"name=digits,batch=1/plan_own", "name=digits,batch=1/plan_fastest"}));
}

TEST(NetworkRows, HaveNoPlaceInAPlan) {
  const TemporaryFolder folder;
  SweepRow op, network;
  op.op = "gemm", op.problem = "m=1,n=1,k=1", op.variant = "tiled";
  network.op = "network", network.problem = "name=digits,batch=1", network.variant = "plan_own";
  for (SweepRow* row : {&op, &network}) row->dtype = "bf16", row->status = Outcome::ok, row->time_cold_us = 1;
  write_plan_csv(folder / "plan.csv", {op, network});
  std::ifstream stream(folder / "plan.csv");
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("gemm"), std::string::npos);
  EXPECT_EQ(text.find("network"), std::string::npos);
}

// ---- plans take known times

const std::vector<networks::CountedProblem>& one_problem() {
  static const std::vector<networks::CountedProblem> problems{{find_op("gemm"), "m=8,n=8,k=8", DType::fp32, 1}};
  return problems;
}

std::string choice_of(const pipeline::Plan& plan) {
  return plan.choice(pipeline::problem_id(one_problem().front())).implementation->name;
}

SweepRow row_of(const char* variant, Outcome status, std::optional<double> warm_us) {
  SweepRow row;
  row.op = "gemm", row.problem = "m=8,n=8,k=8", row.dtype = "fp32", row.variant = variant;
  row.status = status, row.reason = "a reason", row.time_warm_us = warm_us;
  return row;
}

TEST(Plans, TakeTheRowsOfTheRun) {
  const auto choice = [&](const SweepRow& first, const SweepRow& second, int measured) {
    KnownTimes known;
    known.add(first);
    known.add(second);
    const pipeline::Plan plan(host(), two_ways(), one_problem(), {"own", false, &known});
    EXPECT_EQ(plan.measured(), measured);
    return choice_of(plan);
  };
  EXPECT_EQ(choice(row_of("first", Outcome::ok, 3), row_of("second", Outcome::ok, 4), 0), "first");
  EXPECT_EQ(choice(row_of("first", Outcome::ok, 4), row_of("second", Outcome::ok, 3), 0), "second");
  EXPECT_EQ(choice(row_of("first", Outcome::incorrect, {}), row_of("second", Outcome::ok, 3), 0), "second");
  // A throttled row says nothing: that variant is measured.
  EXPECT_EQ(choice(row_of("first", Outcome::throttled, {}), row_of("second", Outcome::ok, 1e9), 1), "first");
  KnownTimes none_right;
  none_right.add(row_of("first", Outcome::incorrect, {}));
  none_right.add(row_of("second", Outcome::cuda_error, {}));
  expect_parts(refusal_of([&] {
                 pipeline::Plan(host(), two_ways(), one_problem(), {"own", false, &none_right});
               }),
               {"first: incorrect: a reason"});
}

}  // namespace
}  // namespace noisefloor
