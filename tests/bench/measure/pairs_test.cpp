// Who is compared with whom when the cases of a problem have run.
#include "bench/measure/case_runner.h"

#include <gtest/gtest.h>

#include "kernels/catalogue.h"

namespace noisefloor {
namespace {

class Named final : public Implementation {
 public:
  Named(const std::string& its_name, Kind its_kind, const std::string& file) {
    name = its_name, kind = to_string(its_kind), plugin = file;
  }
  std::unique_ptr<Ready> make(Platform&, const AnyProblem&, DType, KnownTimes&) const override { return nullptr; }
};

struct Problem {
  SuiteEntry entry{&catalogue().front(), {}, nullptr};
  std::vector<Case> cases;
  std::map<CaseId, SweepRow> rows;

  void add(const std::string& name, Kind kind, double us, const std::string& plugin = "") {
    cases.push_back({&entry, std::make_shared<Named>(name, kind, plugin), {}, DType::bf16, "n=1"});
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
