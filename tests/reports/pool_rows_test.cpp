#include "reports/run/pool_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace noisefloor {
namespace {

// A run with batches of two samples: batch i's are `us` + i.
PooledRow run_of(double us, std::size_t batches, long places) {
  PooledRow run;
  run.row.op = "gemm";
  run.row.status = Outcome::ok;
  run.row.places = places;
  run.row.edge_us = 0.8;
  run.row.spent_s = 2.0;
  for (std::size_t i = 0; i < batches; ++i) {
    run.samples.cold_us.insert(run.samples.cold_us.end(), 2, us + static_cast<double>(i));
    run.samples.cold_batches.push_back(2);
    run.samples.cold_mhz.push_back(1000 + us);
  }
  run.samples.warm_us = {us, us};
  run.samples.warm_edge_us = {0.8, 0.8};
  return run;
}

TEST(PoolRows, KeepWholeRoundsOverPlaces) {
  const PooledRow pooled = pool_rows({run_of(10, 5, 2), run_of(20, 2, 2), run_of(30, 3, 2)});
  EXPECT_EQ(pooled.samples.cold_us, (std::vector<double>{10, 10, 11, 11, 20, 20, 21, 21, 30, 30, 31, 31}));
  EXPECT_EQ(pooled.samples.cold_batches, std::vector<std::size_t>(6, 2));
  EXPECT_EQ(pooled.samples.cold_mhz.size(), 6u);
  EXPECT_EQ(*pooled.row.time_cold_us, (20 + 21) / 2.0);
  EXPECT_EQ(*pooled.row.time_warm_us, 20);
  EXPECT_EQ(pooled.row.samples, 12);
  EXPECT_EQ(pooled.row.processes, 3);
  EXPECT_EQ(*pooled.row.spent_s, 6);
  EXPECT_EQ(*pooled.row.edge_us, 0.8);
}

PooledRow run_with_duel(const char* rival, double warm) {
  PooledRow run = run_of(10, 2, 2);
  run.row.rival = rival;
  run.row.duel_cold = 1.0, run.row.duel_cold_low = 0.98, run.row.duel_cold_high = 1 / 0.98;
  run.row.duel_warm = warm, run.row.duel_warm_low = warm / 1.02, run.row.duel_warm_high = warm * 1.02;
  return run;
}

TEST(PoolRows, HaveTheMeanOfTheDuels) {
  const SweepRow row = pool_rows({run_with_duel("cublaslt", 1.1), run_with_duel("cublaslt", 1.1)}).row;
  EXPECT_EQ(row.rival, "cublaslt");
  EXPECT_NEAR(*row.duel_warm, 1.1, 1e-12);
  EXPECT_LT(*row.duel_warm_high / *row.duel_warm, 1.02) << "independent errors";
  EXPECT_GT(*row.duel_warm_high / *row.duel_warm, std::pow(1.02, std::sqrt(0.5)));
  const SweepRow apart = pool_rows({run_with_duel("cublaslt", 1.0), run_with_duel("cublaslt", 1.21)}).row;
  EXPECT_NEAR(*apart.duel_warm, 1.1, 1e-12);
  EXPECT_GT(*apart.duel_warm_high, 1.2) << "no surer than the processes agree";
  EXPECT_NEAR(*apart.duel_cold, 1, 1e-12);
}

TEST(PoolRows, HaveNoDuelWhereOthersMet) {
  PooledRow none = run_with_duel("", 1.1);
  for (Figure SweepRow::*figure : {&SweepRow::duel_cold, &SweepRow::duel_warm}) (none.row.*figure).reset();
  for (const PooledRow& other : {run_with_duel("cublaslt_2", 1.1), none}) {
    const SweepRow row = pool_rows({run_with_duel("cublaslt", 1.1), other}).row;
    EXPECT_TRUE(row.rival.empty() && !row.duel_warm && !row.duel_warm_low && !row.duel_cold_high);
    EXPECT_TRUE(pool_rows({other, run_with_duel("cublaslt", 1.1)}).row.rival.empty());
  }
}

TEST(PoolRows, KeepAllBatchesOfOnePlace) {
  EXPECT_EQ(pool_rows({run_of(10, 5, 1), run_of(20, 2, 1)}).samples.cold_batches.size(), 7u);
}

TEST(PoolRows, HaveNoEdgeAcrossTwoLevels) {
  PooledRow longer = run_of(10, 2, 2);
  longer.row.edge_us = 1.0;
  EXPECT_FALSE(pool_rows({run_of(10, 2, 2), longer}).row.edge_us);
}

TEST(PoolRows, CountProcessesOfPooledOnes) {
  const PooledRow two = pool_rows({run_of(10, 2, 2), run_of(10, 2, 2)});
  EXPECT_EQ(pool_rows({two, run_of(10, 2, 2)}).row.processes, 3);
}

TEST(PoolRows, GiveEachProcessOfAPoolItsRounds) {
  const PooledRow two = pool_rows({run_of(10, 4, 2), run_of(20, 4, 2)});
  EXPECT_EQ(two.samples.cold_batches.size(), 8u);
  const PooledRow three = pool_rows({two, run_of(30, 3, 2)});
  EXPECT_EQ(three.samples.cold_us, (std::vector<double>{10, 10, 11, 11, 20, 20, 21, 21, 30, 30, 31, 31}));
}

TEST(PoolRows, FailWhereOneFailed) {
  PooledRow failed = run_of(10, 2, 2);
  failed.row.status = Outcome::incorrect;
  failed.row.places = std::nullopt;
  const PooledRow pooled = pool_rows({run_of(10, 2, 2), failed});
  EXPECT_EQ(pooled.row.status, Outcome::incorrect);
  EXPECT_EQ(pooled.samples.cold_us, failed.samples.cold_us);
  PooledRow throttled = run_of(10, 2, 2);
  throttled.row.status = Outcome::throttled;
  EXPECT_EQ(pool_rows({throttled, run_of(10, 2, 2), failed}).row.status, Outcome::incorrect) << "the worst";
  EXPECT_EQ(pool_rows({failed, throttled}).row.status, Outcome::incorrect);
  EXPECT_EQ(pool_rows({run_of(10, 2, 2), throttled}).row.status, Outcome::throttled);
}

TEST(PoolRows, LoseNothingWhereARunEndedWithinItsFirstRound) {
  EXPECT_EQ(pool_rows({run_of(10, 1, 4), run_of(20, 5, 4)}).samples.cold_us.size(), 12u);
}

TEST(PoolRows, SayTheWorstOfAnyProcess) {
  PooledRow first = run_of(10, 2, 2), other = run_of(10, 2, 2);
  first.row.throttle = "none";
  first.row.load = 0.1;
  other.row.throttle = "sw_power_cap";
  other.row.load = 2.0;
  other.row.max_rel_error = 0.5;
  other.row.warm_stop = "time_cap";
  other.samples.kernels = {"another"};
  other.samples.kernel_counts = {1};
  first.row.reason = "compared with the naive variant";
  EXPECT_EQ(pool_rows({first, other}).row.reason, first.row.reason) << "one run does not know its kernels";
  first.samples.kernels = {"one"};
  first.samples.kernel_counts = {1};
  const SweepRow row = pool_rows({first, other}).row;
  EXPECT_EQ(row.warm_stop, "time_cap");
  EXPECT_NE(row.reason.find("naive variant; its processes"), std::string::npos) << row.reason;
  EXPECT_EQ(row.throttle, "sw_power_cap");
  EXPECT_EQ(*row.load, 2.0);
  EXPECT_EQ(*row.max_rel_error, 0.5);
  EXPECT_NE(row.reason.find("different kernels"), std::string::npos);
  first.row.throttle = "sw_thermal_slowdown";
  EXPECT_EQ(pool_rows({first, other}).row.throttle, "sw_power_cap|sw_thermal_slowdown");
}

TEST(PoolRows, RefuseOtherGpusAndPlaces) {
  PooledRow other = run_of(10, 2, 2);
  other.row.gpu_uuid = "GPU-2";
  EXPECT_THROW(pool_rows({run_of(10, 2, 2), other}), std::runtime_error);
  EXPECT_THROW(pool_rows({run_of(10, 2, 2), run_of(10, 2, 1)}), std::runtime_error);
  EXPECT_THROW(pool_rows({run_of(10, 2, 0), run_of(10, 2, 0)}), std::runtime_error);
  other = run_of(10, 2, 2);
  other.row.processes = 0;
  EXPECT_THROW(pool_rows({run_of(10, 2, 2), other}), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor
