// gemm, tiled: shared-memory tiles, register blocking, fp32 FMAs. A and B are widened to float, transposed and
// double-buffered: the next step is loaded into registers while this one is multiplied. For geglu columns 0 to 63 of a
// tile are values and 64 to 127 their gates.
//
// Better than naive: an element that the block loads is used 128 times instead of once, and an element that a thread
// reads from shared memory 8 times, so that FMAs set the pace instead of loads.
//
// A gradient of so few outputs that warps of one each are resident at once has no tiles: a small layer's, where a
// tile's steps, one behind the other, are most of the time. So bits depend on the device's number of SMs.
//
// Requires: nothing beyond grid limits; loads are 16 bytes wide where k allows.
// Bound: FP32 FMA at 4096^3; expected limiter: FMA issue slots beside shared-memory reads.
// Numerics: one fp32 FMA chain of length k, of few outputs 32 of them.
// Source: original, after the CUDA C++ Programming Guide's shared-memory example.
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gradient.cuh"
#include "kernels/gemm/launchers.h"
#include "kernels/product/quadrants.cuh"

namespace noisefloor::gemm {
namespace {

constexpr int kTile = kTiledTile;
constexpr int kHalf = kTile / 2;
constexpr int kStep = product::kQuadrantStep;
constexpr int kThreads = product::kQuadrantThreads;
static_assert(kTile == product::kQuadrantTile);

// kStep elements of a row, from k0 on, as floats; zeros past k and where there is no row.
template <class T>
__device__ __forceinline__ void load_step(const T* __restrict__ row, std::int64_t k0, std::int64_t k, bool wide,
                                          float (&out)[kStep]) {
  constexpr int kLanes = kVectorLanes<T>;
  if (row != nullptr && wide && k0 + kStep <= k) {
#pragma unroll
    for (int i = 0; i < kStep; i += kLanes) {
      float lanes[kLanes];
      load_vector<T, CacheHint::read_only>(row + k0 + i, lanes);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) out[i + j] = lanes[j];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kStep; ++i) out[i] = row != nullptr && k0 + i < k ? to_float(row[k0 + i]) : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_tiled(const T* __restrict__ a, const T* __restrict__ b, std::int64_t m, std::int64_t k, Epilogue<T> epilogue) {
  __shared__ alignas(16) product::QuadrantTiles tiles;
  const std::int64_t n = epilogue.columns;
  const int columns = epilogue.gated ? kHalf : kTile;  // of D
  const auto tiles_n = static_cast<unsigned>((n + columns - 1) / columns);
  const int row0 = static_cast<int>(blockIdx.x / tiles_n) * kTile;  // extents are at most 2^24
  const int column0 = static_cast<int>(blockIdx.x % tiles_n) * columns;

  // Which row this thread loads, and where it puts it: neighbouring threads write neighbouring banks.
  const int line = static_cast<int>(threadIdx.x) % kTile;
  const bool loads_a = threadIdx.x < kTile;
  const T* source = nullptr;
  if (loads_a) {
    if (row0 + line < m) source = a + std::int64_t{row0 + line} * k;
  } else {
    const bool is_gate = epilogue.gated && line >= kHalf;
    const int column = column0 + (is_gate ? line - kHalf : line);
    if (column < n) source = b + (is_gate ? n + column : column) * k;
  }
  const bool wide = k % kVectorLanes<T> == 0;
  float(*target)[kStep][kTile] = loads_a ? tiles.a : tiles.b;

  const int thread_row = static_cast<int>(threadIdx.x) / 16 * 4;
  const int thread_column = static_cast<int>(threadIdx.x) % 16 * 4;
  float sums[8][8] = {};
  float next[kStep];
  load_step(source, 0, k, wide, next);
  int buffer = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += kStep, buffer ^= 1) {
#pragma unroll
    for (int i = 0; i < kStep; ++i) target[buffer][i][line] = next[i];
    __syncthreads();  // also: everyone has read the other buffer, which the next step overwrites
    load_step(source, k0 + kStep, k, wide, next);
    product::multiply_quadrants(tiles, buffer, thread_row, thread_column, sums);
  }

  const Columns<T, 4> left(epilogue, column0 + thread_column);
  const Columns<T, 4> right(epilogue, epilogue.gated ? n : column0 + kHalf + thread_column);  // n: none
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const int row = row0 + thread_row + (r / 4) * kHalf + r % 4;
    if (row >= m) continue;
    const float low[4] = {sums[r][0], sums[r][1], sums[r][2], sums[r][3]};
    const float high[4] = {sums[r][4], sums[r][5], sums[r][6], sums[r][7]};
    left.store(row, low, high, left.ahead(row));
    right.store(row, high, high, right.ahead(row));
  }
}

// A product of a gradient. What lies the other way round is read by neighbouring threads side by side, an element at a
// time. The threads that load A in the first column of tiles hold all of their row, which they sum.
template <class G>
__global__ void __launch_bounds__(kThreads, 2) gemm_tiled_gradient(const __grid_constant__ G g) {
  using T = typename G::Element;
  __shared__ alignas(16) product::QuadrantTiles tiles;
  const auto tiles_n = static_cast<unsigned>((g.n + kTile - 1) / kTile);
  const int row0 = static_cast<int>(blockIdx.x / tiles_n) * kTile;  // extents are at most 2^24
  const int column0 = static_cast<int>(blockIdx.x % tiles_n) * kTile;

  const int line = static_cast<int>(threadIdx.x) % kTile;
  const bool loads_a = threadIdx.x < kTile;
  const std::int64_t row = (loads_a ? row0 : column0) + line, step = loads_a ? g.a_step : g.b_step;
  const T* source = nullptr;
  if (row < (loads_a ? g.m : g.n)) source = loads_a ? g.a + row * g.a_row : g.b + row * g.b_row;
  const bool wide = g.k % kVectorLanes<T> == 0;
  float(*target)[kStep][kTile] = loads_a ? tiles.a : tiles.b;

  float row_sum = 0;
  const auto load = [&](std::int64_t k0, float(&next)[kStep]) {
    if (step == 1) return load_step(source, k0, g.k, wide, next);
#pragma unroll
    for (int i = 0; i < kStep; ++i)
      next[i] = source != nullptr && k0 + i < g.k ? to_float(source[(k0 + i) * step]) : 0.0f;
  };
  const auto put = [&](int buffer, const float(&next)[kStep]) {
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      target[buffer][i][line] = next[i];
      row_sum += next[i];
    }
  };
  float sums[8][8] = {};
  product::multiply_tile(tiles, g.k, load, put, sums);

#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const int to_row = row0 + product::quadrant_row(r);
    if (to_row >= g.m) continue;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int column = column0 + product::quadrant_column(c);
      if (column < g.n) g.store(to_row, column, sums[r][c]);
    }
  }
  if (g.row_sums && loads_a && column0 == 0 && row < g.m) g.row_sums[row] = g.scale * row_sum;
}

constexpr int kFewThreads = 128;
constexpr std::int64_t kFewOfSm = 64;  // warps that an SM holds at most

// A warp an output, its lanes along k.
template <class G>
__global__ void __launch_bounds__(kFewThreads) gemm_few_outputs(const __grid_constant__ G g) {
  const std::int64_t output = (std::int64_t{blockIdx.x} * kFewThreads + threadIdx.x) / 32;
  if (output >= g.m * g.n) return;
  const std::int64_t row = output / g.n, column = output % g.n;
  float sum = 0, row_sum = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x % 32; i < g.k; i += 32) {
    const float a = to_float(g.a[row * g.a_row + i * g.a_step]);
    sum = fmaf(a, to_float(g.b[column * g.b_row + i * g.b_step]), sum);
    row_sum += a;
  }
  const float2 sums = lane_sum(float2{sum, row_sum});
  if (threadIdx.x % 32 != 0) return;
  g.store(row, column, sums.x);
  if (g.row_sums && column == 0) g.row_sums[row] = g.scale * sums.y;
}

}  // namespace

Status launch_tiled(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  const auto blocks = static_cast<unsigned>(tile_count(problem, kTile, problem.gated() ? kHalf : kTile));
  if (!problem.forward())
    return with_gradient(problem, dtype, tensors, [&]<class G>(const G& gradient) {
      if (const std::int64_t outputs = problem.m * problem.n; outputs <= kFewOfSm * context.device->sm_count)
        return launch_kernel(
            "gemm_few_outputs", gemm_few_outputs<G>,
            {.grid = static_cast<unsigned>((outputs * 32 + kFewThreads - 1) / kFewThreads), .block = kFewThreads},
            context.stream, gradient);
      return launch_kernel("gemm_tiled_gradient", gemm_tiled_gradient<G>, {.grid = blocks, .block = kThreads},
                           context.stream, gradient);
    });
  return with_type(dtype, [&]<class T>(T) {
    return launch_kernel("gemm_tiled", gemm_tiled<T>, {.grid = blocks, .block = kThreads}, context.stream,
                         static_cast<const T*>(tensors.a), static_cast<const T*>(tensors.b), problem.m, problem.k,
                         Epilogue<T>(problem, tensors));
  });
}

}  // namespace noisefloor::gemm
