// Paired comparisons of scripted contenders: who is faster, what an interval says, and results that are wrong.
#include "bench/measure/pair.h"

#include <gtest/gtest.h>

#include <functional>

#include "bench/measure/case_runner.h"
#include "kernels/catalogue.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {
namespace {

// What both see of the machine: its clock, which slows everybody, and who was called.
struct Machine {
  std::function<double(int)> slowness = [](int) { return 1.0; };  // of block i
  std::string calls;
  int blocks = 0;
};

class Scripted final : public Contender {
 public:
  Scripted(Machine& machine, char name, double us) : machine_(&machine), name_(name), us_(us) {}
  int wrong_in_block = -1;
  bool wrong_at_the_end = false;

  std::vector<double> cold(int samples) override { return timed(samples, 'c', 2); }
  std::vector<double> warm(int samples, int, Edges) override {
    std::vector<double> times = timed(samples, 'w', 1);
    if (samples > 1) times.front() *= 100;  // what the other left in L2
    return times;
  }
  void poison(std::size_t) override { poisoned_ = true; }
  Verdict judge() override {
    Verdict verdict;
    verdict.reason = !poisoned_ || machine_->blocks == wrong_in_block ? "d[3] is nan" : "";
    poisoned_ = false;
    return verdict;
  }

  Verdict replay() override {
    machine_->calls += name_;
    machine_->calls += 'r';
    return {.reason = wrong_at_the_end ? "late" : ""};
  }

 private:
  std::vector<double> timed(int samples, char phase, double factor) {
    machine_->calls += name_;
    machine_->calls += phase;
    return std::vector<double>(static_cast<std::size_t>(samples),
                               factor * us_ * machine_->slowness(machine_->blocks++));
  }
  Machine* machine_;
  char name_;
  double us_;
  bool poisoned_ = false;
};

TEST(PairedRun, BlocksAlternateAndTheRatioIsOfTheTimes) {
  Machine machine;
  Scripted ours(machine, 'a', 10), theirs(machine, 'b', 12);
  const PairResult times = paired_run(ours, theirs);
  EXPECT_EQ(times.wrong, "");
  EXPECT_EQ(times.rounds, 12);
  EXPECT_NEAR(times.cold.value, 1.2, 1e-12);
  EXPECT_NEAR(times.warm.value, 1.2, 1e-12);
  EXPECT_TRUE(
      machine.calls.starts_with("awawbwbw"  // how many launches make a sample
                                "acawbcbwbcbwacaw"
                                "bcbwacawacawbcbw"))
      << machine.calls;
}

TEST(PairedRun, ADriftFallsOnBothAlikeAndNoiseTakesMoreRounds) {
  Machine machine;
  machine.slowness = [](int block) { return 1 + 0.001 * block; };  // 10 % over the paired comparison
  Scripted ours(machine, 'a', 10), theirs(machine, 'b', 10);
  PairResult times = paired_run(ours, theirs);
  EXPECT_NEAR(times.cold.value, 1, 1e-4);
  EXPECT_NEAR(times.warm.value, 1, 1e-4);
  machine.slowness = [](int block) { return 1 + 0.2 * ((block * 7919) % 13) / 13.0; };
  times = paired_run(ours, theirs);
  EXPECT_EQ(times.rounds, 24) << "up to an end";
  EXPECT_LT(times.cold.low, 1);
  EXPECT_GT(times.cold.high, 1);
}

TEST(PairedRun, AWrongBlockEndsItAndAWrongReplayBehindTheLastVoidsIt) {
  for (const bool is_ours : {true, false})
    for (const bool at_the_end : {true, false}) {
      Machine machine;
      Scripted ours(machine, 'a', 10), theirs(machine, 'b', 12);
      Scripted& wrong = is_ours ? ours : theirs;
      wrong.wrong_at_the_end = at_the_end;
      if (!at_the_end) wrong.wrong_in_block = is_ours ? 6 : 8;  // four before say how many launches make a sample
      const PairResult times = paired_run(ours, theirs);
      EXPECT_TRUE(times.wrong.starts_with(is_ours ? "ours after " : "theirs after ")) << times.wrong;
      EXPECT_EQ(times.ours_wrong, is_ours);
      EXPECT_EQ(times.cold.value, 0);
      EXPECT_EQ(times.rounds, at_the_end ? 12 : 0);
      EXPECT_EQ(machine.calls.ends_with(is_ours ? "ar" : "arbr"), at_the_end) << machine.calls;
    }
}

// ---- who is compared with whom when the cases of a problem have run

struct Problem {
  SuiteEntry entry{&catalogue().front(), {}, nullptr};
  std::vector<Case> cases;
  std::map<CaseId, SweepRow> rows;

  void add(const std::string& name, Kind kind, double us, const std::string& plugin = "") {
    const auto one = std::make_shared<MadeBy>(name, kind, nullptr);
    one->plugin = plugin;
    cases.push_back({&entry, one, {}, DType::bf16, "n=1"});
    SweepRow& row = rows[cases.back().id()];
    row.status = Outcome::ok;
    row.time_warm_us = us;
  }
  // "ptx:cublaslt", with an asterisk behind who keeps the ratio.
  std::vector<std::string> pairs() const {
    std::vector<std::string> all;
    for (const Pair& one : pairs_to_compare(cases, rows))
      all.push_back(one.ours->implementation->name + (one.own_row ? "*:" : ":") + one.theirs->implementation->name +
                    (one.their_row ? "*" : ""));
    return all;
  }
};

using Names = std::vector<std::string>;

TEST(Pairs, AreTheFastestOfEachSide) {
  Problem problem;
  EXPECT_EQ(problem.pairs(), Names{});
  problem.add("tiled", Kind::tiled, 9);
  problem.add("ptx", Kind::ptx, 5);
  EXPECT_EQ(problem.pairs(), Names{});
  problem.add("cudnn", Kind::baseline, 4);
  problem.add("cublaslt", Kind::baseline, 3);
  problem.add("wrong", Kind::ptx, 1);
  problem.rows[problem.cases.back().id()].status = Outcome::incorrect;
  EXPECT_EQ(problem.pairs(), Names{"ptx*:cublaslt*"});
}

TEST(Pairs, APluginTakesNobodysPlaceAndMeetsNoPlugin) {
  Problem problem;
  problem.add("mine", Kind::ptx, 2, "mine.so");
  problem.add("slower", Kind::naive, 3, "mine.so");
  problem.add("library", Kind::baseline, 1, "other.so");
  EXPECT_EQ(problem.pairs(), Names{});
  problem.add("cublaslt", Kind::baseline, 4);
  EXPECT_EQ(problem.pairs(), Names{"mine*:cublaslt"});
  problem.add("ptx", Kind::ptx, 5);
  EXPECT_EQ(problem.pairs(), (Names{"ptx*:cublaslt*", "mine*:cublaslt", "ptx:library*"}));
}

TEST(Pairs, AMixedPlanIsOfNeitherSide) {
  Problem problem;
  problem.entry.whole_networks = true;
  problem.add("plan_own", Kind::ptx, 5);
  problem.add("plan_fastest", Kind::ptx, 1);
  problem.add("plan_baseline", Kind::baseline, 4);
  EXPECT_EQ(problem.pairs(), Names{"plan_own*:plan_baseline*"});
}

}  // namespace
}  // namespace noisefloor
