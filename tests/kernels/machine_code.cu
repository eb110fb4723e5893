// For test_machine_code.py: a kernel as it should be, one whose products ptxas serializes, and one that loads before it
// waits for the kernel ahead.
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace ptx = noisefloor::ptx;

template <bool kUse>
__device__ void multiply(float* out, std::uint64_t a, std::uint64_t b) {
  float d[32] = {};
  ptx::wgmma_fence();
  ptx::Wgmma<__half, 64>::run(d, a, b, 0);
  if (kUse) d[0] += 1;  // while the product is in flight
  ptx::Wgmma<__half, 64>::run(d, a + 2, b + 2, 1);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = d[i];
}

extern "C" __global__ void __launch_bounds__(128) asynchronous(float* out, const std::uint64_t* in) {
  ptx::griddepcontrol_wait();
  multiply<false>(out, in[0], in[1]);
}

extern "C" __global__ void __launch_bounds__(128) serialized_by_a_sum_in_use(float* out, const std::uint64_t* in) {
  ptx::griddepcontrol_wait();
  multiply<true>(out, in[0], in[1]);
}

extern "C" __global__ void loads_ahead_in_a_branch(float* out, const float* in, int n) {
  float sum = 0;
  if (n > 1)
    for (int i = 0; i < n; ++i) sum += in[i];
  ptx::griddepcontrol_wait();
  out[0] = sum;
}
