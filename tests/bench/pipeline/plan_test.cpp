// Plans: whose a file is, what runs where no vendor can, and what a want of memory is called.
#include "bench/pipeline/plan.h"
#include "bench/measure/case_result.h"
#include "bench/measure/fixture.h"

#include <gtest/gtest.h>

#include <deque>
#include <fstream>

#include "bench/sweep/suite.h"
#include "networks/rewrite.h"
#include "tests/support/counted_variants.h"
#include "tests/support/host_platforms.h"
#include "tests/support/refusal.h"
#include "tests/support/scripted_library.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

// What check_plan_origin says of this env.json beside a plan, on device H at commit c0ffee.
std::string origin(const char* environment) {
  const TemporaryFolder folder;
  if (environment != nullptr) std::ofstream(folder / "env.json") << environment;
  try {
    return check_plan_origin(folder / "plan.csv", "H", "c0ffee").value_or("");
  } catch (const InvalidInput& error) {
    return std::string("refused: ") + error.what();
  }
}

TEST(PlanFiles, AreOfADeviceAndACommit) {
  EXPECT_EQ(origin(R"({"device":"H","commit":"c0ffee","sm_count":132})"), "");
  expect_parts(origin(R"({"device":"A100","commit":"c0ffee"})"), {"refused: ", "plan.csv is a plan for A100", "H"});
  expect_parts(origin(R"({"commit":"c0ffee"})"), {"refused: ", "env.json", "field 'device' is missing"});
  // What is in doubt is said.
  expect_parts(origin(nullptr), {"plan.csv", "no env.json"});
  expect_parts(origin(R"({"device":"H","commit":"decade"})"), {"decade", "c0ffee", "may have changed"});
  EXPECT_EQ(origin(nullptr).find("refused"), std::string::npos);
}

TEST(PlanFiles, AreReadAsTheyWereWritten) {
  const TemporaryFolder folder;
  const PlanEntries entries{{{"gemm", "m=1,n=2,k=3", "bf16"}, "tiled"}, {{"conv2d", "n=1", "fp32"}, "naive"}};
  write_plan(folder / "plan.csv", entries);
  EXPECT_EQ(read_plan(folder / "plan.csv"), entries);
}

TEST(Plans, SayWhichNodesNoVendorRuns) {
  LimitedPlatform platform(std::size_t{1} << 30);  // a host has no vendor's variants at all
  const std::vector<CountedProblem> problems{
      {find_op("gemm"), "m=8,n=8,k=8", DType::fp32, 3},
      {find_op("gemm"), "m=8,n=8,k=16", DType::fp32, 2},
      {find_op("resample"), "op=nearest_up2,n=1,h=2,w=2,channels=8", DType::fp32, 4}};
  EXPECT_TRUE(Plan(platform, suite(), problems, {}).fallbacks().empty());
  const Plan plan(platform, suite(), problems, {.source = "baseline"});
  EXPECT_EQ(plan.fallbacks(), "ours run 9 nodes that no vendor here runs: gemm 5, resample 4");
}

TEST(Plans, CallAWantOfMemoryByItsName) {
  const std::vector<CountedProblem> problems{{find_op("gemm"), "m=64,n=64,k=64", DType::fp32, 1}};
  LimitedPlatform small(4096), large(std::size_t{1} << 24);
  KnownTimes known;
  const auto in = [&](Platform& platform) {
    return Plan(platform, two_ways(), problems, {.known = &known}).measured();
  };
  expect_parts(refusal_of<OutOfMemory>([&] { return in(small); }),
               {"m=64,n=64,k=64", "first: ", "the limit of the test"});
  EXPECT_EQ(in(large), 2);  // nothing is held against them
}

const CountedProblem kProduct{find_op("gemm"), "m=8,n=8,k=8", DType::fp32, 1};

Suite of_gemm(std::vector<ImplementationPtr> ways) {
  return Suite({{find_op("gemm"), std::move(ways), oracle_of(*find_op("gemm"))}});
}

using Calls = std::vector<std::pair<int, int>>;

// Of two by scripted times, wherever the faster one stands. The best is looked for from the end.
TEST(Plans, ChooseTheFaster) {
  for (const bool fast_last : {true, false}) {
    ScriptedPlatform platform;
    AnyVariant fast = platform.taking(10, host_gemm()), slow = platform.taking(30, host_gemm());
    fast.name = "fast";
    slow.name = "slow";
    const Suite two = of_gemm({implementation_of(fast_last ? slow : fast), implementation_of(fast_last ? fast : slow)});
    KnownTimes known;
    const ProblemId id = problem_id(kProduct);
    for (const int measured : {2, 0}) {  // what was measured is known
      const Plan plan(platform, two, {kProduct}, {.source = "own", .known = &known});
      EXPECT_EQ(plan.choice(id).implementation->name, "fast");
      EXPECT_EQ(plan.choice(id).warm_us, 10);
      EXPECT_EQ(plan.measured(), measured);
    }
    EXPECT_EQ(platform.warm_calls,
              fast_last ? (Calls{{1, 1}, {10, 1}, {1, 1}}) : (Calls{{1, 1}, {10, 1}, {1, 1}, {10, 1}}))
        << "one launch tells that another is far slower";
  }
}

// Weights that a step writes are prepared before each launch: the faster one, which prepares them, is then slower.
TEST(Plans, CountThePreparingOfWeightsThatAreTrained) {
  ScriptedPlatform platform;
  AnyVariant fast = platform.taking(10, host_gemm()), slow = platform.taking(30, host_gemm());
  fast.name = "fast";
  slow.name = "slow";
  fast.prepared_bytes = [](const AnyProblem&, DType) { return std::size_t{64}; };
  fast.prepare = [&](auto&&...) { return platform.clock_us += 40, success(); };
  const Suite two = of_gemm({implementation_of(slow), implementation_of(fast)});
  CountedProblem trained = kProduct;
  trained.written_weights = true;
  KnownTimes known;
  for (const auto& [problem, name] : {std::pair(kProduct, "fast"), {trained, "slow"}, {kProduct, "fast"}}) {
    const Plan plan(platform, two, {problem}, {.source = "own", .known = &known});
    EXPECT_EQ(plan.choice(problem_id(problem)).implementation->name, name);
  }
}

// A plan that is made again is of the same times, where the launches are the same.
TEST(Plans, TakeTimesOfTheSameLaunchFromAnEarlierRun) {
  ScriptedPlatform platform;
  AnyVariant fast = platform.taking(10, host_gemm()), slow = platform.taking(30, host_gemm());
  fast.name = "fast";
  slow.name = "slow";
  const Suite two = of_gemm({implementation_of(slow), implementation_of(fast)});
  const Case before{two.find("gemm"), two.find("gemm")->find("slow"), kProduct.op->parse(kProduct.text), kProduct.dtype,
                    kProduct.text};
  const Signatures signatures(platform, nullptr);
  EarlierRow row{blank_row(before, platform.description(), "host")};
  row.row.status = Outcome::ok;
  row.row.time_warm_us = 5;  // as if it had been the faster one
  for (const PhaseVersions::value_type& phase : kPhaseVersions) set_phase(row.row.phases, phase.first, kPhaseVersions);
  row.row.verification = signatures.of_verification(before);
  const auto chosen = [&](const std::string& signature, const CountedProblem& problem = kProduct) {
    row.row.signature = signature;
    KnownTimes known;
    known.earlier = [&](const CaseId& id) { return id.variant == "slow" ? &row : nullptr; };
    return Plan(platform, two, {problem}, {.source = "own", .known = &known})
        .choice(problem_id(kProduct))
        .implementation->name;
  };
  const std::string same = signatures.without_launch(before, nullptr).value();
  EXPECT_EQ(chosen(same), "slow");
  EXPECT_EQ(chosen("other code"), "fast");
  CountedProblem trained = kProduct;
  trained.written_weights = true;
  EXPECT_EQ(chosen(same, trained), "slow");
  row.row.prepare_us = 1;  // which its time is without
  EXPECT_EQ(chosen(same, trained), "fast");
  EXPECT_EQ(chosen(same), "slow");
}

// Variants by scripted times, of which one may be wrong.
class VariantPlans : public testing::Test {
 protected:
  ScriptedPlatform platform;
  KnownTimes known;

  // The variant that is chosen, and how many were timed.
  std::pair<std::string, int> chosen(const std::vector<double>& variants_us, int wrong = -1) {
    std::vector<ImplementationPtr> variants;
    for (const double us : variants_us) {
      AnyVariant& variant = variants_.emplace_back(platform.taking(us, host_gemm()));
      variant.name = "variant " + std::to_string(variants.size());
      if (static_cast<int>(variants.size()) == wrong)
        variant = followed_by(variant, [](auto pointers) { store_element(DType::fp32, pointers.back(), 0, 1e3); });
      variants.push_back(implementation_of(variant));
    }
    const Suite suite = of_gemm(variants);
    const Plan plan(platform, suite, {kProduct}, {.source = "own", .known = &known});
    return {plan.choice(problem_id(kProduct)).implementation->name, plan.measured()};
  }

 private:
  std::deque<AnyVariant> variants_;
};

using Choice = std::pair<std::string, int>;

// The whole of a short variants; further down where a variant is wrong; and every time that is known.
TEST_F(VariantPlans, TimeTheBestByItsOrderAndTheTwoBeforeIt) {
  const std::tuple<std::vector<double>, int, Choice> variants[] = {{{10, 50, 30, 20, 40}, -1, {"variant 3", 3}},
                                                                   {{10, 20, 30}, -1, {"variant 0", 3}},
                                                                   {{5, 10, 30, 20, 40}, 4, {"variant 1", 4}}};
  for (const auto& [variants_us, wrong, choice] : variants) {
    known = {};
    EXPECT_EQ(chosen(variants_us, wrong), choice);
  }
  known = {};
  known.add({problem_id(kProduct), "variant 0"}, {10.0, {}});
  EXPECT_EQ(chosen({10, 50, 30, 20, 40}), Choice("variant 0", 3));
}

// The naive variant of a large problem takes seconds: a plan compares with others, also where it judges those.
TEST(Plans, OnAGpuCompareWithoutTheNaiveVariant) {
  constexpr VariantInfo kSecondBest{"ptx_second", Kind::ptx, Arch::sm90a};
  const CountedProblem problem{find_op("gemm"), "m=256,n=256,k=320", DType::fp32, 1};  // the oracle samples it
  for (const bool judges_tiled : {false, true}) {
    HostAsGpu<ScriptedPlatform> platform(90);
    CountedVariants variants(judges_tiled ? std::vector{kNaive, kTiled, kTensorCoreSm80, kPtxSm90a}
                                          : std::vector{kNaive, kTiled, kTensorCoreSm80, kSecondBest, kPtxSm90a});
    for (const char* variant : {"tiled", "tensor_core_sm80", "ptx_second", "ptx_sm90a"})
      variants.then[variant] = [&](void*) {
        platform.clock_us += 10;
        return success();
      };
    const Plan plan(platform, variants.suite(), {problem}, {.source = "own"});
    EXPECT_EQ(plan.measured(), 3);
    EXPECT_FALSE(variants.launches.contains("naive"));
    EXPECT_EQ(variants.launches["tiled"] == 1, !judges_tiled) << "once for all that it judges";
  }
}

TEST(Plans, TryTheNaiveVariantOfALargeProblemLast) {
  for (const bool large : {false, true})
    for (const bool others_right : {true, false}) {
      HostAsGpu<ScriptedPlatform> platform(90);
      CountedVariants variants({kNaive, kPtxSm90a});
      variants.op().cost = [large](const AnyProblem&, DType) {
        return Cost{.flops = large ? 2e10 : 1e9, .bytes = 1e3};
      };
      const auto takes = [&](double us, double first) {
        return [&platform, us, first](void* output) {
          platform.clock_us += us;
          if (first != 0) store_element(DType::fp32, output, 0, first);
          return success();
        };
      };
      variants.then["naive"] = takes(10, 0);
      variants.then["ptx_sm90a"] = takes(20, others_right ? 0 : 1e3);
      const CountedProblem problem{&variants.op(), "m=8,n=8,k=8", DType::fp32, 1};
      const Plan plan(platform, variants.suite(), {problem}, {.source = "own"});
      EXPECT_EQ(plan.choice(problem_id(problem)).implementation->name, large && others_right ? "ptx_sm90a" : "naive");
    }
}

TEST(Plans, MakeALibraryReadyWithItsFastestAccurateAlgorithm) {
  ScriptedPlatform platform;
  ScriptedLibrary library(platform, {{.us = 30}, {.us = 10, .right = false}, {.us = 40, .warm_us = 20}});
  const auto kept = std::make_shared<SearchCache>("", [](const std::string&) {});
  const Suite libraries = of_gemm({library.implementation(kept)});
  const CountedProblem& problem = kProduct;
  const Plan plan(platform, libraries, {problem}, {.source = "baseline"});
  EXPECT_TRUE(plan.fallbacks().empty());
  EXPECT_EQ(plan.choice(problem_id(problem)).warm_us, 20);
  Node node;
  node.op = problem.op;
  node.text = problem.text;
  node.problem = problem.op->parse(problem.text);
  node.dtype = problem.dtype;
  const auto ready = plan.make_ready(platform, node);
  EXPECT_EQ(ready->description(), "algorithm 0 cold, 2 warm; best of 3; cached");
  EXPECT_EQ(library.searches, 1) << "that of the plan is enough";

  Fixture fixture(platform, libraries.entries().front(), node.problem, node.dtype, /*seed=*/1);
  const Buffer workspace(platform, ready->workspace_bytes());
  library.algorithms[0].launches = library.algorithms[2].launches = 0;
  EXPECT_TRUE(ready->launch(fixture.pointers(), {workspace.data()}, platform.context()).ok());
  EXPECT_EQ(library.algorithms[2].launches, 1) << "a network runs warm";
  EXPECT_EQ(library.algorithms[0].launches, 0);
}

// Edges of five microseconds: behind a library's kernel one of ours waits for one.
struct PlatformWithEdges : ScriptedPlatform {
  std::vector<double> time_edges(int samples) override {
    return std::vector<double>(static_cast<std::size_t>(samples), 5.0);
  }
};

TEST(Plans, OfAllTakeALibraryThatSavesMoreThanTheEdgeBehindIt) {
  for (const double library_us : {14.0, 16.0}) {
    PlatformWithEdges platform;
    ScriptedLibrary library(platform, {{.us = library_us}});
    AnyVariant ours = platform.taking(20, host_gemm());
    ours.name = "ours";
    const auto kept = std::make_shared<SearchCache>("", [](const std::string&) {});
    const ImplementationPtr theirs = library.implementation(kept);
    for (const bool library_last : {false, true}) {
      const Suite both =
          of_gemm({library_last ? implementation_of(ours) : theirs, library_last ? theirs : implementation_of(ours)});
      const Plan plan(platform, both, {kProduct}, {.source = "fastest"});
      const bool worth_it = library_us < 15;
      EXPECT_EQ(plan.choice(problem_id(kProduct)).implementation->own(), !worth_it) << library_us;
      EXPECT_EQ(plan.choice(problem_id(kProduct)).warm_us, worth_it ? library_us : 20) << "as it was measured";
    }
  }
}

// ---- what a plan's networks are built with

// All of our variants of some ops, as if they were built or not.
struct Variants {
  explicit Variants(bool built) {
    for (const char* name : {"conv2d", "groupnorm"}) ops.push_back(*find_op(name));
    std::vector<SuiteEntry> entries;
    for (Op& op : ops) {
      std::vector<ImplementationPtr> ways;
      for (AnyVariant& variant : op.variants) {
        variant.built = built;
        ways.push_back(implementation_of(variant));
      }
      entries.push_back({&op, ways, oracle_of(op)});
    }
    suite = Suite(std::move(entries));
  }
  std::deque<Op> ops;
  Suite suite = Suite({});
};

TEST(PlannedGraphs, HaveTheFoldsOfTheirPoolWhereOursRunThem) {
  const Variants built(true), apart(false);
  const HostAsGpu<> hopper(90), ampere(80), blackwell(100);
  EXPECT_TRUE(folds_skips(built.suite, hopper, "own", DType::bf16));
  EXPECT_TRUE(folds_skips(built.suite, hopper, "fastest", DType::fp16));
  for (const char* source : {"baseline", "naive", "plan.csv"})
    EXPECT_FALSE(folds_skips(built.suite, hopper, source, DType::bf16)) << source;
  EXPECT_FALSE(folds_skips(built.suite, hopper, "own", DType::fp32));
  EXPECT_FALSE(folds_skips(built.suite, ampere, "own", DType::bf16));
  EXPECT_FALSE(folds_skips(built.suite, blackwell, "own", DType::bf16));
  EXPECT_FALSE(folds_skips(built.suite, *make_host_platform(), "own", DType::bf16));
  EXPECT_FALSE(folds_skips(apart.suite, hopper, "own", DType::bf16));
}

// Norms in front of convolutions of 64x64, where times say so: of adm64 at batch 32 these are 15.
TEST(PlannedGraphs, HaveTheNormsInConvolutionsThatTakeLessTimeSo) {
  const Variants built(true);
  HostAsGpu<> hopper(90);
  const auto fused = [&](double us_of_fused, const char* source = "own", bool strict = false) {
    Network network = require_network("adm64").build({.batch = 32});
    KnownTimes known;
    fuse(network, {.fuse_norms = NormFusion{.pays = [&](const std::vector<Change>& changes) {
                     for (const auto& [node, problem, inputs] : changes)
                       for (const ImplementationPtr& way : built.suite.find(node->op->name)->implementations) {
                         known.add({problem_id(*node), way->name}, {10, ""});
                         const CountedProblem fused_node{node->op, node->op->print(problem), node->dtype, 1};
                         known.add({problem_id(fused_node), way->name}, {us_of_fused, ""});
                       }
                     return us_of_fused < 10;
                   }}});
    network = require_network("adm64").build({.batch = 32});
    fuse_norms_that_pay(network, hopper, built.suite, {.source = source, .strict = strict, .known = &known});
    return std::ranges::count_if(
        network.graph.nodes(), [](const Node& node) { return node.text.find("coefficients=1") != std::string::npos; });
  };
  EXPECT_EQ(fused(9), 15);
  EXPECT_EQ(fused(11), 0);
  EXPECT_EQ(fused(9, "baseline"), 0);
  EXPECT_EQ(fused(9, "own", /*strict=*/true), 0);
}

}  // namespace
}  // namespace noisefloor::pipeline
