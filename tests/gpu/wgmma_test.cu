// ptx::Wgmma, whose operand lists are written by the build: products of small whole numbers, which every type holds,
// are exact.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor {
namespace {

template <class T>
inline constexpr int kBytes = std::is_same_v<T, ptx::Tf32>   ? 4
                              : std::is_same_v<T, ptx::E4m3> ? 1
                                                             : 2;
constexpr int kRow = 128;  // bytes of k, four instructions' or, n-major, 64 columns

// Where byte `byte` of row `row` lies under the 128-byte swizzle.
__host__ __device__ constexpr int swizzled(int row, int byte) {
  return row * kRow + (byte / 16 ^ row % 8) * 16 + byte % 16;
}

// d[64, kN] = A B^T of tiles as TMA would leave them; `a_rows`: A once more, by rows.
template <class T, int kN, bool kNMajor, bool kRegisters>
__global__ void __launch_bounds__(128)
    multiply(const uint4* tiles, int bytes, const std::uint32_t* a_rows, float* out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint4 raw[];
  const std::uint32_t at = (ptx::shared_address(raw) + 1023) / 1024 * 1024, at_b = at + 64 * kRow;
  uint4* const shared = raw + (at - ptx::shared_address(raw)) / 16;
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += 128) shared[i] = tiles[i];
  ptx::fence_proxy_async_shared();
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int word = static_cast<int>(threadIdx.x) % 4;
  float d[kN / 2] = {};
  std::uint32_t a[4][4];
  for (int step = 0; step < 4; ++step)
    for (int i = 0; i < 4; ++i) a[step][i] = a_rows[(row + i % 2 * 8) * kRow / 4 + step * 8 + word + i / 2 * 4];
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const std::uint64_t b = kNMajor ? ptx::wgmma_descriptor_n_major_128b(at_b, 64 * kRow) + step * 128
                                    : ptx::wgmma_descriptor_128b(at_b) + step * 2;
    if constexpr (kRegisters)
      ptx::Wgmma<T, kN, kNMajor>::run(d, a[step], b, step > 0);
    else
      ptx::Wgmma<T, kN, kNMajor>::run(d, ptx::wgmma_descriptor_128b(at) + step * 2, b, step > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int i = 0; i < kN / 2; ++i) out[(row + i / 2 % 2 * 8) * kN + i / 4 * 8 + word * 2 + i % 2] = d[i];
#endif
}

template <class T>
void put(std::uint8_t* to, int value) {  // -1, 0, 1 or 2
  const auto number = static_cast<float>(value);
  if constexpr (std::is_same_v<T, ptx::E4m3>) {
    constexpr std::uint8_t kBits[] = {0xb8, 0, 0x38, 0x40};
    *to = kBits[value + 1];
  } else if constexpr (std::is_same_v<T, ptx::Tf32>) {
    std::memcpy(to, &number, 4);
  } else {
    const T rounded(number);
    std::memcpy(to, &rounded, 2);
  }
}

template <class T, int kN, bool kNMajor, bool kRegisters>
void expect_products() {
  constexpr int kK = kRow / kBytes<T>, kTileBytes = 64 * kRow + (kN + 63) / 64 * 64 * kRow;
  const auto value = [](int row, int k) { return (row * 7 + k * 5 + row * k % 11) % 4 - 1; };
  std::uint8_t* memory = nullptr;
  ASSERT_EQ(cudaMallocManaged(&memory, kTileBytes + 64 * kRow + 64 * kN * 4), cudaSuccess);
  std::memset(memory, 0, kTileBytes + 64 * kRow);
  for (int k = 0; k < kK; ++k) {
    for (int m = 0; m < 64; ++m) {
      put<T>(memory + swizzled(m, k * kBytes<T>), value(m, k));
      put<T>(memory + kTileBytes + m * kRow + k * kBytes<T>, value(m, k));
    }
    for (int n = 0; n < kN; ++n)
      put<T>(memory + 64 * kRow + (kNMajor ? n / 64 * 64 * kRow + swizzled(k, n % 64 * 2) : swizzled(n, k * kBytes<T>)),
             value(n + 64, k));
  }
  auto* const out = reinterpret_cast<float*>(memory + kTileBytes + 64 * kRow);
  const auto kernel = multiply<T, kN, kNMajor, kRegisters>;
  ASSERT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTileBytes + 1024), cudaSuccess);
  kernel<<<1, 128, kTileBytes + 1024>>>(reinterpret_cast<const uint4*>(memory), kTileBytes,
                                        reinterpret_cast<const std::uint32_t*>(memory + kTileBytes), out);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int wrong = 0;
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < kN; ++n) {
      int sum = 0;
      for (int k = 0; k < kK; ++k) sum += value(m, k) * value(n + 64, k);
      wrong += out[m * kN + n] != static_cast<float>(sum);
    }
  EXPECT_EQ(wrong, 0) << "of " << 64 * kN << ", n " << kN << ", n-major " << kNMajor << ", A in registers "
                      << kRegisters;
  cudaFree(memory);
}

template <class T, int... kN>
void expect_widths() {
  (expect_products<T, kN, false, false>(), ...);
  (expect_products<T, kN, false, true>(), ...);
  if constexpr (kBytes<T> == 2) {
    (expect_products<T, kN, true, false>(), ...);
    (expect_products<T, kN, true, true>(), ...);
  }
}

TEST(Wgmma, OfEveryTypeAndOperandMultiplies) {
  cudaDeviceProp device{};
  ASSERT_EQ(cudaGetDeviceProperties(&device, 0), cudaSuccess);
  if (device.major != 9) GTEST_SKIP() << "wgmma is of compute capability 9.0";
  expect_widths<__nv_bfloat16, 8, 72, 256>();
  expect_widths<__half, 24, 176>();
  expect_widths<ptx::Tf32, 8, 120>();
  expect_widths<ptx::E4m3, 16, 200>();
}

}  // namespace
}  // namespace noisefloor
