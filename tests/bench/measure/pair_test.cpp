// Paired comparisons of scripted contenders: who is faster, what an interval says, and results that are wrong.
#include "bench/measure/pair.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "bench/measure/case_runner.h"
#include "bench/sweep/suite.h"

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
  std::vector<double> warm(int samples, int) override {
    std::vector<double> times = timed(samples, 'w', 1);
    if (samples > 1) times.front() *= 100;  // what the other left in L2
    return times;
  }
  void poison() override { poisoned_ = true; }
  Verdict judge() override {
    Verdict verdict;
    verdict.correct = poisoned_ && machine_->blocks != wrong_in_block;
    verdict.reason = verdict.correct ? "" : "d[3] is nan";
    poisoned_ = false;
    return verdict;
  }

  Verdict replay() override {
    machine_->calls += name_;
    machine_->calls += 'r';
    Verdict verdict;
    verdict.correct = !wrong_at_the_end;
    verdict.reason = verdict.correct ? "" : "late";
    return verdict;
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

TEST(PairedRun, OfHostVariants) {
  const auto platform = make_host_platform();
  const SuiteEntry& gemm = *suite().find("gemm");
  CaseRunner runner(*platform, nullptr, {});
  const Case one{&gemm, gemm.find("host"), gemm.workload->parse("m=8,n=8,k=8"), DType::fp32, "m=8,n=8,k=8"};
  const PairResult result = runner.run_pair(one, one);
  EXPECT_EQ(result.wrong, "");
  EXPECT_GE(result.rounds, 12);
  EXPECT_GT(result.cold.value, 0);
  EXPECT_LE(result.warm.low, result.warm.high);
}

}  // namespace
}  // namespace noisefloor
