// Cases that wait for their counters: whose rows come back, with what.
#include "bench/measure/uncounted_cases.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

struct Named final : Implementation {
  Named(const std::string& its_name, ImplementationPtr its_host) : host(std::move(its_host)) {
    name = its_name;
    on_host = true;
  }
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype,
                              KnownTimes& known) const override {
    return host->make(platform, problem, dtype, known);
  }
  ImplementationPtr host;
};

class Uncounted : public testing::Test {
 protected:
  const SuiteEntry& gemm = *suite().find("gemm");
  std::unique_ptr<Platform> platform = make_host_platform();
  Fixture fixture{*platform, gemm, gemm.workload->parse("m=4,n=4,k=4"), DType::fp32, 1, GivenTensors{}, 1};
  UncountedCases uncounted;
  std::weak_ptr<BoundCase> last;

  // As the harness leaves one: with other inputs than a cold launch has.
  SweepRow add(const std::string& name) {
    const auto implementation = std::make_shared<Named>(name, gemm.find("host"));
    const Case one{&gemm, implementation, gemm.workload->parse("m=4,n=4,k=4"), DType::fp32, "m=4,n=4,k=4"};
    const auto bound = std::make_shared<BoundCase>(fixture, *implementation);
    last = bound;
    uncounted.add(one, bound);
    fixture.use_inputs(1);
    SweepRow row;
    static_cast<CaseId&>(row) = one.id();
    row.time_cold_us = 3;
    row.counter_status = "cut_off";
    uncounted.finish(row);
    return row;
  }
};

TEST_F(Uncounted, RowsComeBackInTheirOrder) {
  add("a"), add("b");
  SweepRow other;
  other.variant = "nobody";
  uncounted.finish(other);
  const auto [rows, lost] = uncounted.count(fixture, [&](const Case& one, BoundCase&, SweepRow& row) {
    EXPECT_EQ(fixture.inputs(), 0u);
    EXPECT_EQ(one.implementation->name, row.variant);
    row.counter_status = "ok " + row.variant;
  });
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].counter_status, "ok a");
  EXPECT_EQ(rows[1].counter_status, "ok b");
  EXPECT_EQ(rows[1].time_cold_us, 3);
  EXPECT_FALSE(lost);
  EXPECT_TRUE(uncounted.empty());
  EXPECT_TRUE(last.expired()) << "its memory is free again";
}

TEST_F(Uncounted, ALaunchThatFailsCostsItsOwnRow) {
  add("a"), add("b");
  const auto [rows, lost] = uncounted.count(fixture, [](const Case&, BoundCase&, SweepRow& row) {
    if (row.variant == "a") throw std::runtime_error("no");
    row.counter_status = "ok";
  });
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(is_failure(rows[0]));
  EXPECT_EQ(rows[0].reason, "no");
  EXPECT_FALSE(rows[0].time_cold_us.has_value());
  EXPECT_EQ(rows[1].counter_status, "ok");
  EXPECT_FALSE(lost);
}

TEST_F(Uncounted, NothingIsLaunchedOnALostDevice) {
  add("a"), add("b");
  const auto [rows, lost] =
      uncounted.count(fixture, [](const Case&, BoundCase&, SweepRow&) { throw DeviceError("gone", true); });
  ASSERT_EQ(rows.size(), 1u) << "the row behind it stays as it was written";
  EXPECT_EQ(rows[0].status, Outcome::cuda_error);
  EXPECT_TRUE(lost);
  EXPECT_TRUE(uncounted.empty());
}

}  // namespace
}  // namespace noisefloor
