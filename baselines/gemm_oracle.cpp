#include "baselines/gemm_oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/core/cuda_status.h"

namespace noisefloor::gemm {
namespace {

constexpr std::int64_t kMinimumSamples = 1024;
constexpr std::int64_t kOracleProducts = 20'000'000;  // some 30 ms of one core

}  // namespace

Status SampledOracle::open(std::span<void* const> pointers, Stream stream) {
  const auto specs = definition.tensors(problem_, dtype_);
  std::vector<std::vector<char>> copies(specs.size());
  std::vector<void*> inputs(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].role != Role::in) continue;
    copies[i].resize(specs[i].bytes());
    NOISEFLOOR_CUDA(cudaMemcpyAsync(copies[i].data(), pointers[i], copies[i].size(), cudaMemcpyDeviceToHost, stream));
    inputs[i] = copies[i].data();
  }
  NOISEFLOOR_CUDA(cudaStreamSynchronize(stream));
  // Every element where that is cheap: a wrong split shows in few of them.
  const std::int64_t total = problem_.m * problem_.n;
  const auto affordable = std::max<std::int64_t>(kMinimumSamples, kOracleProducts / problem_.k);
  if (total <= affordable) {
    elements_.resize(static_cast<std::size_t>(total));
    std::iota(elements_.begin(), elements_.end(), std::int64_t{0});
  } else {
    std::mt19937_64 random(1);
    std::uniform_int_distribution<std::int64_t> any(0, total - 1);
    for (std::int64_t i = 0; i < affordable; ++i) elements_.push_back(any(random));
    std::sort(elements_.begin(), elements_.end());
  }
  expected_.resize(elements_.size());
  reference(problem_, dtype_, definition.bind(problem_, inputs), "d", elements_, expected_);
  double squares = 0;
  for (const double value : expected_) squares += value * value;
  rms_ = std::sqrt(squares / static_cast<double>(expected_.size()));
  return success();
}

Status SampledOracle::check(const void* d, Stream stream, bool& accurate) const {
  std::vector<char> actual(static_cast<std::size_t>(problem_.m * problem_.n) * size_of(dtype_));
  NOISEFLOOR_CUDA(cudaMemcpyAsync(actual.data(), d, actual.size(), cudaMemcpyDeviceToHost, stream));
  NOISEFLOOR_CUDA(cudaStreamSynchronize(stream));
  accurate = true;
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    const double error = std::abs(load_element(dtype_, actual.data(), elements_[i]) - expected_[i]);
    accurate = accurate && error <= tolerance_.max_error * (std::abs(expected_[i]) + rms_);
  }
  return success();
}

}  // namespace noisefloor::gemm
