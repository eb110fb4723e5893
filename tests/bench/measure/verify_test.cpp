// Verification itself, on gemm's host variant; tests/bench/measure/catalogue_test.cpp has every op's.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <cmath>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/verify.h"
#include "bench/sweep/suite.h"
#include "tests/support/counted_ladder.h"
#include "tests/support/wrong_variants.h"

namespace noisefloor {
namespace {

Platform& host() {
  static const std::unique_ptr<Platform> platform = make_host_platform();
  return *platform;
}

const SuiteEntry& gemm() {
  return *suite().find("gemm");
}

TEST(Verification, NamesTheTensorThatWasOverrun) {
  Fixture fixture(host(), gemm(), gemm().workload->parse("m=5,n=7,k=3"), DType::fp32, 1);
  const AnyVariant wrong = wrong_variant(*gemm().find("host")->variant(), Tampering::past_the_end, fixture);
  BoundCase bound(fixture, *implementation_of(wrong));
  EXPECT_EQ(Verifier(fixture).verify(bound).reason, "wrote outside tensor 'd'");
}

// Right when it is verified, wrong in the timed launches: the row must say so and carry no time.
TEST(Verification, LaunchesThatGoWrongLaterAreCaught) {
  auto launches = std::make_shared<int>(0);
  AnyVariant wrong = *gemm().find("host")->variant();
  wrong.launch = [launches, launch = wrong.launch](const AnyProblem& problem, DType dtype,
                                                   std::span<void* const> pointers, const Scratch& scratch,
                                                   const LaunchContext& context) {
    const Status status = launch(problem, dtype, pointers, scratch, context);
    if (++*launches > 2) store_element(dtype, pointers.back(), 3, 1e3);
    return status;
  };
  RunnerOptions options;
  options.cold.wall_seconds = options.warm.wall_seconds = 0.05;
  options.watch_others = false;
  CaseRunner runner(host(), nullptr, options);
  const char* text = "m=8,n=8,k=8";
  const CaseResult result =
      runner.run({&gemm(), implementation_of(wrong), gemm().workload->parse(text), DType::fp32, text});
  EXPECT_EQ(result.row.status, Outcome::incorrect);
  EXPECT_EQ(result.row.reason.rfind("after the cold launches: d[3] is", 0), 0u) << result.row.reason;
  EXPECT_FALSE(result.row.time_cold_us.has_value());
  EXPECT_FALSE(result.row.gflops.has_value());
}

// What lies beyond an input is NaN, so that a result made from it cannot pass.
TEST(Verification, ReadingPastAnInputShows) {
  const Fixture fixture(host(), gemm(), gemm().workload->parse("m=5,n=7,k=3"), DType::bf16, 1);
  for (std::size_t i = 0; i < fixture.specs().size(); ++i) {
    EXPECT_TRUE(std::isnan(load_element(DType::bf16, fixture.pointers()[i], -1)));
    EXPECT_TRUE(std::isnan(load_element(DType::bf16, fixture.pointers()[i], fixture.specs()[i].elements())));
  }
}

TEST(Verification, InputsDependOnTheSeedAlone) {
  const AnyProblem problem = gemm().workload->parse("m=9,n=11,k=13");
  Fixture a(host(), gemm(), problem, DType::bf16, 1), b(host(), gemm(), problem, DType::bf16, 1),
      c(host(), gemm(), problem, DType::bf16, 2);
  const auto sum = [](Fixture& fixture) { return host().checksum(fixture.pointers()[0], fixture.specs()[0].bytes()); };
  EXPECT_EQ(sum(a), sum(b));
  EXPECT_NE(sum(a), sum(c));
}

// What elements share is computed once in each range of them, of a group norm a whole group: the oracle has a range for
// each core of the host, however many the GPU has.
TEST(Oracle, AsksForNoMoreRangesThanTheHostHasCores) {
  std::atomic<int> ranges = 0, elements = 0;
  Op op = *find_op("gemm");
  op.reference = [&, reference = op.reference](const AnyProblem& problem, DType dtype,
                                               std::span<const HostTensor> inputs, std::size_t output,
                                               std::span<const std::int64_t> wanted, std::span<double> values) {
    ++ranges;
    elements += static_cast<int>(wanted.size());
    reference(problem, dtype, inputs, output, wanted, values);
  };
  const SuiteEntry entry{&op, {}, oracle_of(op)};
  HostAsGpu<> platform(90);
  Fixture fixture(platform, entry, op.parse("m=64,n=64,k=8"), DType::fp32, 1);
  const auto expected = fixture.oracle().expect(fixture, /*flops=*/1e9);
  EXPECT_EQ(elements, 64 * 64);
  EXPECT_EQ(expected.front().values.size(), std::size_t{64 * 64});
  EXPECT_LE(ranges, omp_get_max_threads());
}

TEST(Platform, ComparisonSeesNaN) {
  const float a[] = {1, 2, std::numeric_limits<float>::quiet_NaN(), 4}, b[] = {1, 2, 3, 4};
  const Difference difference = host().compare(DType::fp32, a, b, 4, 1);
  EXPECT_FALSE(difference.all_finite);
  EXPECT_EQ(difference.worst, 2);
}

TEST(Platform, ChecksumsSeeEveryByte) {
  const std::string text = "all words, and a tail";
  const std::uint64_t whole = host().checksum(text.data(), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = '#';
    EXPECT_NE(host().checksum(other.data(), other.size()), whole) << i;
  }
}

TEST(Platform, TooLargeAnAllocationIsOutOfMemory) {
  EXPECT_THROW(host().allocate(std::size_t{1} << 60), OutOfMemory);
}

}  // namespace
}  // namespace noisefloor
