// What a platform keeps between the batches of a phase.
#include "bench/measure/contender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "bench/sweep/suite.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {
namespace {

// A platform whose graphs are numbers.
class GraphPlatform : public WrappedHost {
 public:
  std::vector<std::weak_ptr<const void>> made;
  std::size_t nodes = 20;  // of each
  std::vector<double> time_warm(const Launch&, int samples, int, KeptGraphs* kept) override {
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

}  // namespace
}  // namespace noisefloor
