// groupnorm_backward, tensor cores: as tiled, with kernels/groupnorm's statistics by mma, and the sums of dv and dv xh
// as products with ones by mma.sync, each number as two of bf16.
//
// What differs from tiled: of eight channels of two rows, 64 splits and 8 mma take the place of 32 additions, and the
// block's reduction is of eight warps. README.md: why it does not win.
//
// Requires: bf16 or fp16; channels divisible by 8; an even number of channels per group.
// Bound: memory, three reads of x, two of dy and one write.
// Numerics: numbers of 16 bits are summed, in fp32; statistics as the forward's tensor_core_sm80; all sums in fixed
// order. Source: original; the fragment layouts are the PTX ISA's, "Matrix Fragments for mma.m16n8k16".
#include "kernels/groupnorm_backward/slabs.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr int kWarps = kSlabThreads / 32, kWarpRows = 8;
constexpr int kTileColumns = 8;  // of 16 bytes: a warp's lanes g

SlabPlan mma_plan(const Problem& p, int sm_count) {
  return groupnorm::plan_slabs(statistics_of(p), 8, sm_count, kTileColumns);
}
std::size_t mma_statistics_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return aligned(groupnorm::tensor_core_sm80_workspace_bytes(statistics_of(p), dtype, device));
}

// sum += the eight channels of two rows. As the A operand, row g: pair 2 m, row g + 8: pair 2 m + 1; k: rows of the
// tile, a pair's two channels side by side. `selector`: B[k][n] = 1 where k and n are both even or both odd.
__device__ __forceinline__ void add_rows(float (&sum)[2][4], float (&low)[8], float (&high)[8],
                                         std::uint32_t selector) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    std::uint32_t words[2][4];
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      float(*const rows[2])[8] = {&low, &high};
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float &first = (*rows[row])[i], &second = (*rows[row])[i + 1], of_first, of_second;
        words[row][i / 2] = pack_pair<__nv_bfloat16>(first, second);
        unpack_pair<__nv_bfloat16>(words[row][i / 2], of_first, of_second);
        first -= of_first;
        second -= of_second;
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
      ptx::mma_m16n8k16<__nv_bfloat16>(
          sum[m], {words[0][2 * m], words[0][2 * m + 1], words[1][2 * m], words[1][2 * m + 1]}, selector, selector);
  }
}

// A lane, g = lane / 4 and t = lane % 4, has column g of rows t and t + 4 of its warp's eight.
template <class T>
__global__ void __launch_bounds__(kSlabThreads) mma_sums_kernel(Problem p, Tensors t, SlabPlan plan, Work work) {
  __shared__ float shared[2][kWarps][kTileColumns * 8];
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int row_of_lane = static_cast<int>(threadIdx.x) % 4;
  const std::int64_t first = blockIdx.x * plan.slab_rows, rows = min(plan.slab_rows, p.hw - first);
  const std::int64_t tile_channel = static_cast<std::int64_t>(blockIdx.y) * kTileColumns * 8;
  // Lanes beyond the last column read the last one; nothing reads their sums.
  const std::int64_t channel = min(tile_channel + g * 8, p.channels - 8);
  const Channels<T, 8> channels(p, t, work, channel);
  const std::uint32_t selector = g % 2 == 0 ? 0x00003f80u : 0x3f800000u;  // one, zero; zero, one
  float sum[2][4] = {}, sum_xh[2][4] = {};
  for (std::int64_t base = warp * kWarpRows; base < rows; base += kWarps * kWarpRows) {
    float xh[2][8], dv[2][8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = base + row_of_lane + 4 * half;
      channels.load(p, t, (blockIdx.z * p.hw + first + min(row, rows - 1)) * p.channels + channel, xh[half], dv[half]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (row >= rows) dv[half][i] = 0;
        xh[half][i] = row < rows ? dv[half][i] * xh[half][i] : 0.0f;
      }
    }
    add_rows(sum, dv[0], dv[1], selector);
    add_rows(sum_xh, xh[0], xh[1], selector);
  }
  if (row_of_lane == 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      shared[0][warp][g * 8 + i] = sum[i / 4][i % 4];
      shared[1][warp][g * 8 + i] = sum_xh[i / 4][i % 4];
    }
  }
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x) % (kTileColumns * 8);
  const int which = static_cast<int>(threadIdx.x) / (kTileColumns * 8);
  if (which >= 2 || tile_channel + c >= p.channels) return;
  float total = 0;
#pragma unroll
  for (int other = 0; other < kWarps; ++other) total += shared[which][other][c];
  work.partials[((blockIdx.z * plan.slabs + blockIdx.x) * 2 + which) * p.channels + tile_channel + c] = total;
}

}  // namespace

std::size_t tensor_core_sm80_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return mma_statistics_bytes(p, dtype, device) + Work::floats(p, mma_plan(p, device.sm_count)) * sizeof(float);
}

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                               const LaunchContext& context) {
  if (scratch.workspace == nullptr) return failure(StatusCode::invalid_argument, "groupnorm_backward: no workspace");
  const Tensors t = unpacked(p, dtype, tensors);
  const SlabPlan plan = mma_plan(p, context.device->sm_count);
  auto* const workspace = reinterpret_cast<float*>(static_cast<std::byte*>(scratch.workspace) +
                                                   mma_statistics_bytes(p, dtype, *context.device));
  return with_half_type(dtype, [&]<class T>(T) {
    return launch_slabs<T, 8>(
        p, t, plan, workspace, context,
        [&](const groupnorm::Problem& forward, const groupnorm::Tensors& of) {
          return groupnorm::launch_tensor_core_sm80(forward, dtype, of, scratch, context);
        },
        [&](const Work& work) {
          return launch_kernel("groupnorm_backward mma_sums_kernel", mma_sums_kernel<T>,
                               {.grid = slab_grid(p, plan), .block = kSlabThreads}, context.stream, p, t, plan, work);
        });
  });
}

}  // namespace noisefloor::groupnorm_backward
