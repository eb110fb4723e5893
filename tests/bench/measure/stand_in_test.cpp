// What stands in for the oracle where that only samples: whose outputs every element is compared with.
#include <gtest/gtest.h>

#include <limits>

#include "bench/measure/bound_case.h"
#include "bench/measure/verify.h"
#include "tests/support/counted_variants.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {
namespace {

constexpr VerifierOptions kSweep{.oracle_flops = 1}, kChoice{.oracle_flops = 1, .quick_stand_in = true};
constexpr double kWrong = 1e3;
using Launches = std::map<std::string, int>;

Fixture fixture_of(Platform& platform, const CountedVariants& variants) {
  return {platform, variants.entry(), variants.op().parse("m=64,n=64,k=8"), DType::fp32, /*seed=*/1};
}

// An element of the output that the oracle leaves out.
std::int64_t unsampled(Fixture& fixture) {
  const auto elements = fixture.oracle().expect(fixture, kSweep.oracle_flops).front().elements;
  std::int64_t element = 0;
  while (elements[static_cast<std::size_t>(element)] == element) ++element;
  return element;
}

std::function<Status(void*)> leaves(double value, std::int64_t element) {
  return [=](void* output) {
    store_element(DType::fp32, output, element, value);
    return success();
  };
}

// The variant that `judged`, wrong where the oracle does not look, was found to differ from.
std::string stand_in_of(const char* judged, CountedVariants& variants, const VerifierOptions& options,
                        int compute_capability = 90) {
  HostAsGpu<> platform(compute_capability);
  Fixture fixture = fixture_of(platform, variants);
  variants.then[judged] = leaves(kWrong, unsampled(fixture));
  BoundCase bound(fixture, variants.named(judged));
  const Verdict verdict = Verifier(fixture, options).verify(bound);
  variants.then.erase(judged);
  const std::string before = "differs from the ", behind = " variant by ";
  const std::size_t from = verdict.reason.find(before), to = verdict.reason.find(behind);
  if (from == std::string::npos || to == std::string::npos) return "none: " + verdict.reason + verdict.note;
  return verdict.reason.substr(from + before.size(), to - from - before.size());
}

TEST(StandIns, AreNaiveInASweepAndTiledForAChoice) {
  CountedVariants variants({kNaive, kTiled, kTensorCoreSm80, kPtxSm90a});
  for (const char* const expected : {"naive", "tiled"}) {
    variants.launches.clear();
    EXPECT_EQ(stand_in_of("ptx_sm90a", variants, expected == std::string("naive") ? kSweep : kChoice), expected);
    EXPECT_EQ(variants.launches, (Launches{{expected, 1}, {"ptx_sm90a", 1}}));
  }
  EXPECT_EQ(stand_in_of("tiled", variants, kSweep), "naive");
}

TEST(StandIns, AreNotLaunchedWhereThatWouldTakeLong) {
  CountedVariants variants({kNaive, kPtxSm90a});
  EXPECT_TRUE(
      stand_in_of("ptx_sm90a", variants, {.oracle_flops = 1, .stand_in_flops = 1}).starts_with("none: verified"));
  EXPECT_EQ(variants.launches, (Launches{{"ptx_sm90a", 1}}));
}

TEST(StandIns, OfAChoiceAreNeverTheJudged) {
  CountedVariants variants({kNaive, kTiled, kTensorCoreSm80}), short_one({kNaive, kTiled}), shortest({kTiled});
  EXPECT_EQ(stand_in_of("tiled", variants, kChoice), "tensor_core_sm80");
  EXPECT_EQ(stand_in_of("tiled", variants, kChoice, /*compute_capability=*/75), "naive");
  EXPECT_EQ(stand_in_of("tiled", short_one, kChoice), "naive");
  EXPECT_EQ(stand_in_of("naive", short_one, kChoice), "tiled");
  EXPECT_TRUE(stand_in_of("tiled", shortest, kChoice).starts_with("none: verified on "));
}

TEST(StandIns, AreLaunchedOnceForAllTheyJudge) {
  CountedVariants variants({kNaive, kTiled, kTensorCoreSm80, kPtxSm90a});
  HostAsGpu<> platform(90);
  Fixture fixture = fixture_of(platform, variants);
  Verifier verifier(fixture, kChoice);
  for (const char* judged : {"ptx_sm90a", "tensor_core_sm80", "tiled", "tiled"}) {
    BoundCase bound(fixture, variants.named(judged));
    const Verdict verdict = verifier.verify(bound);
    EXPECT_TRUE(verdict.correct()) << judged << ": " << verdict.reason;
    EXPECT_EQ(verdict.note, "") << "every element was compared";
  }
  // Twice judged and once beside it; of tiled the stand-in is the one of tensor cores.
  EXPECT_EQ(variants.launches, (Launches{{"ptx_sm90a", 1}, {"tensor_core_sm80", 2}, {"tiled", 3}}));
}

TEST(StandIns, ThatFailArePassedOver) {
  CountedVariants variants({kNaive, kTiled, kPtxSm90a});
  HostAsGpu<> platform(90);
  Fixture fixture = fixture_of(platform, variants);
  const std::map<std::string, std::function<Status(void*)>> faults = {
      {"wrong where the oracle looks", leaves(kWrong, 0)},
      {"a NaN where it does not", leaves(std::numeric_limits<double>::quiet_NaN(), unsampled(fixture))},
      {"refused", [](void*) { return failure(StatusCode::unsupported_problem, "too large a tile"); }},
      {"a failed launch", [](void*) -> Status { throw DeviceError("a bad launch", /*lost=*/false); }},
      {"no memory", [](void*) -> Status { throw OutOfMemory("full"); }}};
  for (const auto& [what, fault] : faults) {
    variants.then["tiled"] = fault;
    EXPECT_EQ(stand_in_of("ptx_sm90a", variants, kChoice), "naive") << what;
  }
  EXPECT_EQ(variants.launches.at("tiled"), static_cast<int>(faults.size()));
  variants.unable = {"tiled"};
  EXPECT_EQ(stand_in_of("ptx_sm90a", variants, kChoice), "naive");
  EXPECT_EQ(variants.launches.at("tiled"), static_cast<int>(faults.size())) << "it cannot run the problem";
}

TEST(StandIns, ThatFailedAreNotTriedAgain) {
  CountedVariants variants({kNaive, kPtxSm90a});
  variants.then["naive"] = leaves(kWrong, 0);
  HostAsGpu<> platform(90);
  Fixture fixture = fixture_of(platform, variants);
  Verifier verifier(fixture, kSweep);
  BoundCase bound(fixture, variants.named("ptx_sm90a"));
  for (int launch = 0; launch < 2; ++launch) EXPECT_TRUE(verifier.verify(bound).note.starts_with("verified on "));
  EXPECT_EQ(variants.launches, (Launches{{"naive", 1}, {"ptx_sm90a", 2}}));
}

TEST(StandIns, ThatLoseTheDeviceEndIt) {
  CountedVariants variants({kNaive, kTiled, kPtxSm90a});
  variants.then["tiled"] = [](void*) -> Status { throw DeviceError("fell off the bus", /*lost=*/true); };
  EXPECT_THROW(stand_in_of("ptx_sm90a", variants, kChoice), DeviceError);
  EXPECT_EQ(variants.launches, (Launches{{"tiled", 1}}));
}

// Without memory for their outputs none is launched, and the samples decide.
TEST(StandIns, AreNotLaunchedWithoutMemoryForTheirOutputs) {
  CountedVariants variants({kNaive, kTiled, kPtxSm90a});
  constexpr std::size_t kPlenty = std::size_t{1} << 24, kLittle = 64 * 64 * sizeof(float) - 1;
  std::size_t needed = 0;
  for (const bool plenty : {true, false}) {
    HostAsGpu<LimitedPlatform> platform(90, plenty ? kPlenty : needed + kLittle);
    Fixture fixture = fixture_of(platform, variants);
    BoundCase bound(fixture, variants.named("ptx_sm90a"));
    needed = kPlenty - platform.free_bytes();
    variants.launches.clear();
    const Verdict verdict = Verifier(fixture, kChoice).verify(bound);
    EXPECT_TRUE(verdict.correct()) << verdict.reason;
    EXPECT_EQ(verdict.note.empty(), plenty) << verdict.note;
    EXPECT_EQ(variants.launches, plenty ? (Launches{{"tiled", 1}, {"ptx_sm90a", 1}}) : (Launches{{"ptx_sm90a", 1}}));
  }
}

}  // namespace
}  // namespace noisefloor
