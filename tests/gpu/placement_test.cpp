// Where a row's time depends on where its tensors lie: the same launch on tensors, and with a workspace, that lie
// elsewhere. Run by hand; no test:
//   run.sh exec bin/gpu_tests --gtest_also_run_disabled_tests --gtest_filter='*Placement*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "bench/measure/bound_case.h"
#include "bench/measure/fixture.h"
#include "bench/sweep/suite.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

constexpr int kPlaces = 12, kSamples = 20, kRepeats = 20;

// The median of three batches, each a graph of its own, in microseconds a launch with ordinary edges.
double warm_us(Platform& platform, BoundCase& bound) {
  KeptGraphs graphs;
  std::vector<double> us;
  const Launch launch = bound.launch();
  for (int batch = 0; batch < 3; ++batch)
    for (const double one : platform.time_warm(launch, kSamples, kRepeats, &graphs)) us.push_back(one);
  return median(us);
}

void print(const char* what, const std::vector<double>& us) {
  const auto [least, most] = std::ranges::minmax_element(us);
  std::string text;
  for (const double one : us) text += fmt::format(" {:.3f}", one);
  fmt::print("  {:<22}{:5.2f} %:{}\n", what, 100 * (*most / *least - 1), text);
}

TEST(DISABLED_Placement, OfTensorsAndWorkspace) {
  const auto platform = make_cuda_platform(0);
  constexpr std::array<std::array<const char*, 3>, 9> kCases{{
      {"groupnorm", "n=160,hw=16,channels=96,groups=8,fusion=silu", "ptx_sm90a"},
      {"groupnorm", "n=160,hw=64,channels=32,groups=8,eps=1e-06", "ptx_sm90a"},
      {"groupnorm", "n=160,hw=256,channels=16,groups=8,fusion=silu", "ptx_sm90a_grid"},
      {"gemm", "m=2560,n=288,k=96", "cublaslt"},
      {"gemm", "m=40960,n=16,k=32", "ptx_sm90a"},
      {"conv2d", "n=160,h=16,w=16,cin=32,cout=16,image_shift=1", "ptx_sm90a"},
      {"conv2d", "n=160,h=16,w=16,cin=32,cout=16,image_shift=1", "ptx_sm90a_halo"},
      {"conv3d_temporal", "batch=10,frames=16,hw=256,cin=16,cout=16", "ptx_sm90a_halo"},
      {"resample", "op=concat,n=160,h=16,w=16,channels=16,skip_channels=16", "ptx_sm90a"},
  }};
  for (const auto& [op, problem, variant] : kCases) {
    const SuiteEntry& entry = *suite().find(op);
    const ImplementationPtr implementation = entry.find(variant);
    ASSERT_TRUE(implementation) << variant;
    const AnyProblem parsed = entry.workload->parse(problem);
    fmt::print("{} {} {}\n", op, problem, variant);
    std::vector<std::unique_ptr<Fixture>> fixtures;
    std::vector<std::unique_ptr<BoundCase>> bound;
    const auto place = [&] { fixtures.push_back(std::make_unique<Fixture>(*platform, entry, parsed, DType::bf16, 1)); };
    const auto bind = [&] { bound.push_back(std::make_unique<BoundCase>(*fixtures.back(), *implementation)); };
    place();
    bind();
    std::vector<double> us;
    for (int i = 0; i < kPlaces; ++i) us.push_back(warm_us(*platform, *bound.back()));
    print("in the same place", us);
    us.clear();
    for (int i = 0; i < kPlaces; ++i) bind(), us.push_back(warm_us(*platform, *bound.back()));
    print("another workspace", us);
    us.clear();
    for (int i = 0; i < kPlaces; ++i) place(), bind(), us.push_back(warm_us(*platform, *bound.back()));
    print("other tensors", us);
    us.clear();
    for (auto& one : bound) us.push_back(warm_us(*platform, *one));
    print("all of these again", us);
  }
}

}  // namespace
}  // namespace noisefloor
