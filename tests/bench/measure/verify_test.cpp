// Verification itself, on gemm's host variant; tests/bench/measure/catalogue_test.cpp has every op's.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <set>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/verify.h"
#include "bench/sweep/suite.h"
#include "tests/support/comparisons.h"
#include "tests/support/counted_variants.h"

namespace noisefloor {
namespace {

const SuiteEntry& gemm() {
  return *suite().find("gemm");
}

TEST(Verdict, OfNoJudgementIsNotCorrect) {
  EXPECT_FALSE(Verdict().correct());
}

struct BufferSlots : testing::Test {
  const AnyProblem problem = gemm().workload->parse("m=8,n=8,k=8");
  std::size_t d = 0;  // the output

  BufferSlots() {
    const auto specs = gemm().workload->tensors(problem, DType::fp32);
    while (specs[d].role != Role::out) ++d;
  }
};

TEST_F(BufferSlots, HaveTheSameInputsAndGuardBandsAndPoisonedOutputs) {
  Fixture fixture(host(), gemm(), problem, DType::fp32, 1, {}, 4);
  ASSERT_EQ(fixture.slots(), 4u);
  const auto bits = [](float number) { return std::bit_cast<std::uint32_t>(number); };
  std::set<void*> seen;
  std::vector<std::uint64_t> sums;
  for (std::size_t slot : {0u, 3u, 1u, 2u, 0u}) {
    fixture.move_to(slot);
    seen.insert(fixture.pointers()[0]);
    EXPECT_EQ(fixture.resident()[d].first, fixture.pointers()[d]);
    sums.push_back(host().checksum(fixture.pointers()[0], fixture.specs()[0].bytes()));
    auto* const out = static_cast<float*>(fixture.pointers()[d]);
    EXPECT_TRUE(sums.size() == 1 || bits(out[5]) == 0xFFFFFFFFu) << slot;
    out[5] = 1;
    EXPECT_EQ(fixture.find_damage(), std::nullopt) << slot;
  }
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(sums, std::vector<std::uint64_t>(5, sums.front()));
  EXPECT_THROW(fixture.move_to(4), std::out_of_range);
}

TEST_F(BufferSlots, ShowDamageWhereTheTensorsLie) {
  Fixture fixture(host(), gemm(), problem, DType::fp32, 1, {}, 2);
  fixture.move_to(1);
  static_cast<float*>(fixture.pointers()[d])[64] = 0;
  EXPECT_EQ(fixture.find_damage(), std::string("wrote outside tensor '") + fixture.specs()[d].name + "'");
  fixture.reset_outputs();
  EXPECT_EQ(fixture.find_damage(), std::nullopt);
  fixture.use_inputs(1);
  EXPECT_EQ(fixture.find_damage(), std::nullopt) << "the second set's checksums are those of this place";
  static_cast<float*>(fixture.pointers()[0])[3] += 1;
  EXPECT_EQ(fixture.find_damage(), std::string("changed its input '") + fixture.specs()[0].name + "'");
}

TEST_F(BufferSlots, AreAsManyAsFit) {
  Fixture large(host(), gemm(), gemm().workload->parse("m=8192,n=2048,k=64"), DType::fp32, 1, {}, 20);
  const std::size_t bytes = 4 * (8192 * 2048 + 8192 * 64 + 2048 * 64 + 2048);
  EXPECT_EQ(large.slots(), Fixture::kSlotsBytes / (bytes + (1 << 20) + (64 << 10)));
  Fixture one(host(), gemm(), problem, DType::fp32, 1, {}, 0);
  EXPECT_EQ(one.slots(), 1u);
  EXPECT_EQ(usual_slots(host()), 1u);
}

// Right in every slot, and wrong where it keeps to its first launch's tensors.
TEST_F(BufferSlots, OfTimedLaunchesAreJudged) {
  RunnerOptions options;
  options.watch_others = false;
  options.slots = 3;
  CaseRunner runner(host(), nullptr, options);
  const AnyVariant& right = *gemm().find("host")->variant();
  std::set<void*> written;
  std::vector<void*> first;
  const auto run = [&](bool stale) {
    const AnyVariant variant = launched_by(right, [&, stale](const auto& own, auto pointers, const auto&) {
      written.insert(pointers[d]);
      if (first.empty()) first.assign(pointers.begin(), pointers.end());
      return own(stale ? std::span<void* const>(first) : pointers);
    });
    return runner.run({&gemm(), implementation_of(variant), problem, DType::fp32, "m=8,n=8,k=8"}).row;
  };
  const SweepRow row = run(false);
  EXPECT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_EQ(written.size(), 3u);
  EXPECT_EQ(row.buffer_slots, 3);
  EXPECT_GE(row.warm_samples, 3);
  EXPECT_EQ(run(true).status, Outcome::incorrect);
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

TEST(Platform, ComparesWithNumbers) {
  check_comparisons(host(), [](const std::string& wrong) { ADD_FAILURE() << wrong; });
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
