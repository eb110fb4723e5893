// What a platform keeps between the batches of a phase.
#include "bench/measure/contender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "bench/sweep/suite.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {
namespace {

// A platform whose graphs are numbers.
class GraphPlatform : public WrappedHost {
 public:
  std::vector<std::weak_ptr<const void>> made;
  std::size_t nodes = 20;  // of each
  std::vector<double> time_warm(const Launch&, int samples, int, KeptGraphs* kept, const Launch&) override {
    const auto graph = std::make_shared<const std::size_t>(made.size());
    made.push_back(graph);
    if (kept != nullptr) kept->add(graph, nodes);
    return std::vector<double>(static_cast<std::size_t>(samples), 1.0);
  }
  std::size_t alive() const {
    return static_cast<std::size_t>(std::ranges::count_if(made, [](const auto& graph) { return !graph.expired(); }));
  }
};

class GraphsOfAPhase : public testing::Test {
 protected:
  using Edges = TimingSource::Edges;
  GraphPlatform platform;
  const SuiteEntry& gemm = *suite().find("gemm");
  Fixture fixture{platform, gemm, gemm.workload->parse("m=4,n=4,k=4"), DType::fp32, 1};
  Verifier verifier{fixture};
  std::shared_ptr<BoundCase> bound = std::make_shared<BoundCase>(fixture, *gemm.find("host"));
};

TEST_F(GraphsOfAPhase, LieBesideEachOther) {
  {
    BoundContender timing(bound, verifier);
    for (int batch = 0; batch < 6; ++batch) timing.warm(1, 1, Edges::pipeline);
    EXPECT_EQ(platform.alive(), 6u);
    timing.warm(1, 1, Edges::ordinary);
    EXPECT_EQ(platform.alive(), 1u) << "another phase";
    for (int batch = 0; batch < 100; ++batch) timing.warm(1, 1, Edges::ordinary);
    EXPECT_EQ(platform.alive(), KeptGraphs::kMost);
    EXPECT_FALSE(platform.made.back().expired());
    (void)static_cast<Platform&>(platform).time_warm(bound->launch(), 1, 1);
    EXPECT_TRUE(platform.made.back().expired()) << "nobody asked to keep it";
  }
  EXPECT_EQ(platform.alive(), 0u);
  BoundContender quick(bound, verifier, {.quick = true});
  quick.warm(1, 1, Edges::pipeline);
  EXPECT_EQ(platform.alive(), 0u) << "of an order";
}

TEST_F(GraphsOfAPhase, OfManyNodesAreFew) {
  BoundContender timing(bound, verifier);
  platform.nodes = KeptGraphs::kMostNodes / 3;
  for (int batch = 0; batch < 6; ++batch) timing.warm(1, 1, Edges::pipeline);
  EXPECT_EQ(platform.alive(), 3u);
  platform.nodes = 2 * KeptGraphs::kMostNodes;
  timing.warm(1, 1, Edges::pipeline);
  EXPECT_EQ(platform.alive(), 1u) << "the last one stays";
  EXPECT_FALSE(platform.made.back().expired());
}

// Launches that follow each other read other contents; the last one's result is judged.
class OtherContents : public testing::Test {
 protected:
  std::unique_ptr<Platform> platform = make_host_platform();
  const SuiteEntry& gemm = *suite().find("gemm");
  Fixture fixture{*platform, gemm, gemm.workload->parse("m=4,n=4,k=4"), DType::fp32, 1};
  Verifier verifier{fixture};
  float* const d = static_cast<float*>(fixture.pointers().back());
  std::vector<float> seen;  // the first number of each launch
  std::size_t computed = 0;

  // Computes where it is asked to, else leaves what it did last.
  template <class Again>
  Verdict after_cold(int samples, const Again& again) {
    const AnyVariant variant =
        launched_by(*gemm.find("host")->variant(), [&](const auto& own, auto pointers, const auto&) {
          seen.push_back(*static_cast<const float*>(pointers[0]));
          if (!again()) return success();
          ++computed;
          return own(pointers);
        });
    BoundContender timed(std::make_shared<BoundCase>(fixture, *implementation_of(variant)), verifier);
    timed.poison(0);
    (void)timed.cold(1);  // as a phase begins
    seen.clear(), computed = 0;
    (void)timed.cold(samples);
    return timed.judge();
  }
};

TEST_F(OtherContents, KeepNoResult) {
  const float first = *static_cast<const float*>(fixture.pointers()[0]);
  float known = 0;  // what a result is kept by
  const Verdict kept = after_cold(20, [&] { return std::exchange(known, seen.back()) != seen.back(); });
  EXPECT_TRUE(kept.correct()) << kept.reason;
  EXPECT_GE(computed, 20u) << "it had to compute all the same";
  EXPECT_EQ(seen.back(), first);
  EXPECT_FALSE(after_cold(20, [&] { return std::isnan(d[0]); }).correct()) << "what is there already is another's";
}

TEST_F(OtherContents, EndWithALaunchThatThrows) {
  const std::vector<void*> before(fixture.pointers().begin(), fixture.pointers().end());
  EXPECT_THROW(after_cold(20, [&]() -> bool { return seen.size() > 3 ? throw std::runtime_error("no luck") : true; }),
               std::runtime_error);
  EXPECT_TRUE(std::ranges::equal(fixture.pointers(), before)) << "the next contender has the fixture, too";
  EXPECT_EQ(fixture.find_damage(), std::nullopt);
}

// A cache of any size, and a launch ahead of the others, as where a graph is replayed.
class SmallCache final : public WrappedHost {
 public:
  std::size_t& l2_bytes() { return description_.info.l2_bytes; }
  std::vector<double> time_warm(const Launch& launch, int, int repeats, KeptGraphs*, const Launch& ahead) override {
    throw_if_failed(ahead());
    for (int left = repeats; left > 0; --left) {
      at_last_launch_ = left == 1;
      throw_if_failed(launch());
    }
    return {1.0};
  }
};

class ColdWeights : public testing::Test {
 protected:
  static constexpr std::size_t kB = 1, kBytes = 16 * sizeof(float);  // gemm's weight
  SmallCache platform;
  const SuiteEntry& gemm = *suite().find("gemm");
  Fixture fixture{platform, gemm, gemm.workload->parse("m=4,n=4,k=4,bias=0"), DType::fp32, 1};
  Verifier verifier{fixture};
  AnyVariant variant = *gemm.find("host")->variant();
  std::vector<const void*> read;  // by each launch: its weights, packed ones where there are
  std::function<void(std::span<void* const>)> after = [](auto) {};

  Verdict timed(int repeats) {
    AnyVariant watched = variant;
    watched.launch = [&, truth = fixture.pointers()[kB]](const AnyProblem& problem, DType dtype, auto pointers,
                                                         const Scratch& scratch, const LaunchContext& context) {
      EXPECT_TRUE(context.constant(kB));
      read.push_back(scratch.prepared != nullptr ? scratch.prepared : pointers[kB]);
      EXPECT_EQ(std::memcmp(read.back(), truth, kBytes), 0);
      const Status status = variant.launch(problem, dtype, pointers, scratch, context);
      after(pointers);
      return status;
    };
    const auto implementation = implementation_of(watched);
    BoundContender timing(std::make_shared<BoundCase>(fixture, *implementation), verifier, {.weights = 1 << kB});
    timing.poison(1);
    (void)timing.weights_cold(1, repeats);
    return timing.judge();
  }
  std::size_t copies(std::size_t first, std::size_t launches) const {
    const auto begin = read.begin() + static_cast<std::ptrdiff_t>(first);
    return std::set<const void*>(begin, begin + static_cast<std::ptrdiff_t>(launches)).size();
  }
};

TEST_F(ColdWeights, ComeAgainBehindTwiceTheCache) {
  platform.l2_bytes() = 90;  // three of them are more than twice that
  EXPECT_TRUE(timed(9).correct());
  ASSERT_EQ(read.size(), 10u) << "and one ahead";
  EXPECT_EQ(copies(0, 10), 4u) << "no more than it takes";
  for (std::size_t i = 0; i + 4 <= read.size(); ++i) EXPECT_EQ(copies(i, 4), 4u);
}

TEST_F(ColdWeights, ThatAllFitAreReadOncePackedOrNot) {
  platform.l2_bytes() = 1 << 20;
  EXPECT_TRUE(timed(5).correct());
  EXPECT_EQ(copies(0, 6), 6u);
  variant.prepared_bytes = [](const AnyProblem&, DType) { return kBytes; };
  variant.prepare = [](const AnyProblem&, DType, auto pointers, void* prepared, const LaunchContext&) {
    std::memcpy(prepared, pointers[kB], kBytes);
    return success();
  };
  EXPECT_TRUE(timed(5).correct());
  EXPECT_EQ(copies(0, 12), 12u);
}

TEST_F(ColdWeights, AreWrongWhereALaunchWroteBesideThemOrLeftAnotherResult) {
  after = [](auto pointers) { static_cast<float*>(pointers[kB])[17] = 3; };
  EXPECT_FALSE(timed(3).correct());
  after = [](auto pointers) { static_cast<float*>(pointers.back())[0] = 1e3; };
  EXPECT_FALSE(timed(3).correct());
}

}  // namespace
}  // namespace noisefloor
