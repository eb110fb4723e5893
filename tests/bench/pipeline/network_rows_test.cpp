// Whole networks as rows of a sweep: the op, its random weights, its verification, and plans that take known times.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/pipeline/network_workload.h"
#include "bench/pipeline/plan.h"
#include "bench/pipeline/weights.h"
#include "bench/sweep/selection.h"
#include "bench/sweep/suite.h"
#include "reports/roofline.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/two_ways.h"

namespace noisefloor {
namespace {

using pipeline::network_workload;

const SuiteEntry& entry() {
  return *suite().find("network");
}

Platform& host() {
  static const std::unique_ptr<Platform> platform = make_host_platform();
  return *platform;
}

Case digits_case(const std::string& implementation, DType dtype = DType::bf16,
                 const char* text = "name=digits,batch=1") {
  return {&entry(), entry().find(implementation), network_workload().parse(text), dtype, text, "digits-b1:1"};
}

// ---- the workload

TEST(NetworkWorkload, IsTheLastThatASweepHas) {
  EXPECT_EQ(suite().entries().back().workload, &network_workload());
  EXPECT_EQ(suite().entries().size(), catalogue().size() + 1);
  EXPECT_EQ(find_op("network"), nullptr);
}

TEST(NetworkWorkload, PrintsWhatItParses) {
  const Workload& op = network_workload();
  EXPECT_EQ(op.print(op.parse("batch=32,name=adm64")), "name=adm64,batch=32");
  for (const char* wrong : {"name=adm64", "batch=1", "name=adm64,batch=0", "name=adm64,batch=1,h=2",
                            "name=adm64,batch=1,height=0", "name=adm64,batch=1,width=65544"})
    EXPECT_THROW(op.parse(wrong), InvalidInput) << wrong;
  try {
    op.parse("name=adm46,batch=1");
    FAIL();
  } catch (const InvalidInput& error) {
    for (const char* part : {"name", "adm46", "adm64", "edm-cifar", "digits"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
  }
}

// Folders and plans that were recorded before there were sizes keep their keys.
TEST(NetworkWorkload, PrintsOnlySizesThatAreNotTheNetworksOwn) {
  const Workload& op = network_workload();
  const auto canonical = [&](const char* text) { return op.print(op.parse(text)); };
  EXPECT_EQ(canonical("name=adm64,batch=1,height=64,width=64,frames=1,tokens=0"), "name=adm64,batch=1");
  EXPECT_EQ(canonical("name=digits,batch=1,width=64,height=8"), "name=digits,batch=1,width=64");
  EXPECT_EQ(canonical("height=96,name=adm64,batch=2,width=40"), "name=adm64,batch=2,height=96,width=40");
  EXPECT_EQ(op.values(op.parse("name=edm-cifar,batch=1,width=64")).size(), 6u);
  std::string all;
  for (const KeyValue& pair : op.values(op.parse("name=edm-cifar,batch=1,width=64")))
    all += pair.key + pair.value + " ";
  EXPECT_EQ(all, "nameedm-cifar batch1 height32 width64 frames1 tokens0 ");
}

TEST(NetworkWorkload, RefusesSizesThatANetworkDoesNotTake) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"name=adm64,batch=1,height=60", "problem: height 60: adm64 takes multiples of 8; the nearest are 56 and 64"},
      {"name=digits,batch=1,width=1", "problem: width 1: digits takes multiples of 2; the nearest is 2"},
      {"name=adm64,batch=1,frames=2", "problem: frames 2: adm64 makes single images; networks with frames: none"},
      {"name=digits,batch=1,tokens=77", "problem: tokens 77: digits takes no text; networks with tokens: none"}};
  for (const auto& [text, says] : kWrong) {
    try {
      network_workload().parse(text);
      ADD_FAILURE() << text;
    } catch (const InvalidInput& error) {
      EXPECT_STREQ(error.what(), says);
    }
  }
}

TEST(NetworkWorkload, OfOtherSizesTakesAndGivesThem) {
  const AnyProblem problem = network_workload().parse("name=adm64,batch=2,height=24,width=40");
  const auto specs = network_workload().tensors(problem, DType::bf16);
  EXPECT_EQ(specs[0].shape, (std::vector<std::int64_t>{2, 24, 40, 3}));
  EXPECT_EQ(specs[1].shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(specs[3].shape, (std::vector<std::int64_t>{2, 24, 40, 6}));
}

TEST(NetworkWorkload, TakesImagesLevelsAndLabels) {
  const auto specs = network_workload().tensors(network_workload().parse("name=adm64,batch=2"), DType::bf16);
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(specs[0].shape, (std::vector<std::int64_t>{2, 64, 64, 3}));
  EXPECT_STREQ(specs[1].name, "timesteps");
  EXPECT_EQ(specs[2].shape, (std::vector<std::int64_t>{2, 1000}));
  EXPECT_EQ(specs[2].dtype, DType::bf16);
  EXPECT_EQ(specs[3].shape, (std::vector<std::int64_t>{2, 64, 64, 6}));
  EXPECT_EQ(specs[3].dtype, DType::fp32);
  EXPECT_EQ(specs[3].role, Role::out);
  EXPECT_STREQ(network_workload().tensors(network_workload().parse("name=digits,batch=2"), DType::bf16)[1].name,
               "sigma");
}

TEST(NetworkWorkload, FillsLevelsWithinRangeAndOneLabelAnImage) {
  for (const char* text : {"name=adm64,batch=5", "name=digits,batch=5"}) {
    const AnyProblem problem = network_workload().parse(text);
    const auto specs = network_workload().tensors(problem, DType::fp32);
    std::vector<float> levels(5), labels(static_cast<std::size_t>(specs[2].elements()));
    network_workload().fill(problem, DType::fp32, 1, levels.data());
    network_workload().fill(problem, DType::fp32, 2, labels.data());
    for (const float level : levels) {
      EXPECT_GT(level, 0) << text;
      EXPECT_LE(level, specs[1].name == std::string("sigma") ? 2 : 999) << text;
    }
    EXPECT_EQ(std::set<float>(levels.begin(), levels.end()).size(), 5u);
    const std::int64_t classes = specs[2].shape[1];
    for (std::int64_t image = 0; image < 5; ++image) {
      float sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) sum += labels[static_cast<std::size_t>(image * classes + c)];
      EXPECT_EQ(sum, 1);
    }
  }
}

TEST(NetworkWorkload, CostsItsNodesAndItsCompulsoryBytes) {
  const Workload& op = network_workload();
  const auto cost = [&](const char* text, DType dtype) { return op.cost(op.parse(text), dtype); };
  const Cost one = cost("name=digits,batch=1", DType::bf16), two = cost("name=digits,batch=2", DType::bf16);
  EXPECT_DOUBLE_EQ(two.flops, 2 * one.flops);
  EXPECT_EQ(one.pipe, Pipe::tensor);
  // An image brings x and the output (fp32, 8x8), a level and ten bf16 labels; the rest is weights.
  EXPECT_DOUBLE_EQ(two.bytes - one.bytes, 2 * 64 * 4 + 4 + 10 * 2);
  EXPECT_NEAR(one.bytes, 2 * 1'229'697, 2e4);
  // Dhariwal and Nichol's 64x64 network: about 104 billion multiply-adds a call.
  EXPECT_NEAR(cost("name=adm64,batch=1", DType::bf16).flops, 2 * 104e9, 0.03 * 208e9);
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

// plan_own, with its output or input spoilt behind it.
enum class How { scaled, not_a_number, input };
class Spoilt final : public Implementation {
 public:
  explicit Spoilt(How how) : how_(how) {
    kind = "network";
    on_host = true;
  }
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype,
                              KnownTimes& known) const override {
    class SpoiltReady final : public Ready {
     public:
      SpoiltReady(std::unique_ptr<Ready> right, How how) : right_(std::move(right)), how_(how) {}
      std::size_t workspace_bytes() const override { return right_->workspace_bytes(); }
      Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) override {
        const Status status = right_->launch(pointers, scratch, context);
        auto* output = static_cast<float*>(pointers[3]);
        if (how_ == How::scaled)
          for (int i = 0; i < 64; ++i) output[i] *= 1.05f;
        if (how_ == How::not_a_number) output[63] = NAN;
        if (how_ == How::input) static_cast<float*>(pointers[0])[5] += 1;
        return status;
      }

     private:
      std::unique_ptr<Ready> right_;
      How how_;
    };
    return std::make_unique<SpoiltReady>(entry().find("plan_own")->make(platform, problem, dtype, known), how_);
  }

 private:
  How how_;
};

Verdict verdict_of(const Implementation& implementation, DType dtype) {
  Fixture fixture(host(), entry(), network_workload().parse("name=digits,batch=1"), dtype, 1);
  BoundCase bound(fixture, implementation);
  return Verifier(fixture).verify(bound);
}

TEST(NetworkVerification, HoldsTheOutputToTheNetworkInFp32) {
  const Implementation& own = *entry().find("plan_own");
  const Verdict rounded = verdict_of(own, DType::bf16);
  EXPECT_TRUE(rounded.correct) << rounded.reason;
  EXPECT_GT(rounded.l2_error, 1e-4);  // it is another computation
  EXPECT_LT(rounded.l2_error, 2e-2);
  EXPECT_EQ(rounded.l2_tolerance, 2e-2);
  EXPECT_TRUE(verdict_of(own, DType::fp32).correct);
}

TEST(NetworkVerification, CatchesSpoiltOnes) {
  const std::pair<How, const char*> kSpoilt[] = {
      {How::scaled, "relative L2 error"}, {How::not_a_number, "is nan"}, {How::input, "changed its input 'x'"}};
  for (const auto& [how, expected] : kSpoilt) {
    const Verdict verdict = verdict_of(Spoilt(how), DType::bf16);
    EXPECT_FALSE(verdict.correct) << expected;
    EXPECT_NE(verdict.reason.find(expected), std::string::npos) << verdict.reason;
  }
}

// ---- rows

RunnerOptions hasty() {
  RunnerOptions options;
  options.cold.wall_seconds = options.warm.wall_seconds = 0.05;
  return options;
}

TEST(NetworkRows, AreMeasuredAsAnyOther) {
  CaseRunner runner(host(), nullptr, hasty());
  const CaseResult result = runner.run(digits_case("plan_own"));
  const SweepRow& row = result.row;
  ASSERT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_EQ(row.kind, "network");
  EXPECT_EQ(row.name(), "network/name=digits,batch=1/bf16/plan_own");
  EXPECT_GT(row.time_cold_us.value_or(0), 0);
  EXPECT_GT(row.time_warm_us.value_or(0), 0);
  EXPECT_GT(row.max_rel_error.value_or(0), 0);
  EXPECT_EQ(row.tolerance, 0.2);
  EXPECT_EQ(row.reason.rfind("nodes: ", 0), 0u) << row.reason;
  EXPECT_GT(row.workspace_bytes.value_or(0), 2 * 1'229'697);  // its weights are among them
  EXPECT_FALSE(result.cold_us.empty());
}

TEST(NetworkRows, OfOtherSizesAreVerifiedToo) {
  CaseRunner runner(host(), nullptr, hasty());
  const char* const text = "name=digits,batch=2,height=6,width=10";
  const SweepRow row = runner.run(digits_case("plan_own", DType::bf16, text)).row;
  ASSERT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_EQ(row.problem, text);
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
  EXPECT_EQ(names(false), (Names{"name=adm64,batch=1/plan_own", "name=adm64,batch=1/plan_baseline",
                                 "name=adm64,batch=1/plan_fastest"}));
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
  return plan.choice(pipeline::problem_id(one_problem().front()))->name;
}

TEST(Plans, MeasureOnlyWhatIsNotKnown) {
  KnownTimes known;
  const pipeline::Plan measured(host(), two_ways(), one_problem(), {"own", false, &known});
  EXPECT_EQ(measured.measured(), 2);
  const pipeline::Plan again(host(), two_ways(), one_problem(), {"fastest", false, &known});
  EXPECT_EQ(again.measured(), 0);
  EXPECT_EQ(choice_of(again), choice_of(measured));
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
  try {
    const pipeline::Plan plan(host(), two_ways(), one_problem(), {"own", false, &none_right});
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("first: incorrect: a reason"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace noisefloor
