// A program of someone else's: multiplies two matrices with the host variant of noisefloor's gemm, and checks one
// number.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/gemm/gemm.h"

int main() {
  using namespace noisefloor;
  const gemm::Problem problem{.m = 3, .n = 5, .k = 64, .scale = 0.5, .bias = true};
  const std::vector<float> a(3 * 64, 2.0f), b(5 * 64, 0.25f), bias(5, 1.0f);
  std::vector<float> d(3 * 5, NAN);
  const DeviceInfo host{.sm_count = 2};
  for (const auto& variant : gemm::variants()) {
    if (std::strcmp(variant.name, "host") != 0) continue;
    const std::size_t bytes = variant.workspace_bytes ? variant.workspace_bytes(problem, DType::fp32, host) : 0;
    void* workspace = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    const gemm::Tensors tensors{.a = a.data(), .b = b.data(), .bias = bias.data(), .d = d.data()};
    const Status status = variant.launch(problem, DType::fp32, tensors, {.workspace = workspace}, {.device = &host});
    std::free(workspace);
    const float expected = 0.5f * 64 * 2.0f * 0.25f + 1.0f;
    std::printf("%s: d[14] = %g, expected %g\n", to_string(status.code), d[14], expected);
    return status.ok() && std::fabs(d[14] - expected) < 1e-5f ? 0 : 1;
  }
  std::puts("gemm has no host variant");
  return 1;
}
