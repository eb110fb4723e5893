// The second and third kernel of the two-pass variants: merge the slabs' partial moments into coefficients, then
// normalise.
#pragma once

#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/device.cuh"
#include "kernels/groupnorm/slabs.h"

namespace noisefloor::groupnorm {
namespace {  // each file that includes this is compiled for architectures of its own

constexpr int kFinishThreads = 256;

// Moments of slabs and channels: the first kernel's, or given ones.
struct Partials {
  const float *mean, *m2;  // [n, slabs, channels], `stride` floats from slab to slab
  std::int64_t stride, slabs;
  std::int64_t slab_rows, part_rows, part_slabs;  // an image is parts of part_rows, each in part_slabs slabs

  __device__ __forceinline__ float rows(std::int64_t slab) const {
    return static_cast<float>(min(slab_rows, part_rows - slab % part_slabs * slab_rows));
  }
};
inline Partials own_partials(const Problem& p, const SlabPlan& plan, const float* partials) {
  return {partials, partials + p.channels, 2 * p.channels, plan.slabs, plan.slab_rows, p.hw, plan.slabs};
}
inline Partials given_partials(const Problem& p, const Tensors& t) {
  return {t.slab_mean,
          t.slab_m2,
          p.channels,
          p.given_slabs(),
          kGivenSlabRows,
          p.hw / p.quarters(),
          p.given_slabs() / p.quarters()};
}

// One block per (image, group): the partials' moments about the first partial's mean, so that merging is adding. Each
// thread adds every 256th partial, then the block adds pairwise: a fixed order.
template <class T>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(Problem p, Tensors t, Partials partials, float* coefficients) {
  __shared__ float shared_sum[kFinishThreads], shared_squares[kFinishThreads];
  // 32-bit arithmetic where it divides: channels <= 2^16, slabs * width < 2^31.
  const unsigned groups = static_cast<unsigned>(p.groups);
  const unsigned width = static_cast<unsigned>(p.channels) / groups;
  const std::int64_t image = blockIdx.x / groups;
  const std::int64_t first = blockIdx.x % groups * width;
  const std::int64_t corner = image * partials.slabs * partials.stride + first;
  const float origin = partials.mean[corner];
  float sum = 0, squares = 0;
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(partials.slabs) * width; i += kFinishThreads) {
    const std::int64_t slab = i / width;
    const std::int64_t at = corner + slab * partials.stride + i % width;
    const float rows = partials.rows(slab);
    const float delta = partials.mean[at] - origin;
    sum += rows * delta;
    squares += partials.m2[at] + rows * delta * delta;
  }
  shared_sum[threadIdx.x] = sum;
  shared_squares[threadIdx.x] = squares;
  for (int stride = kFinishThreads / 2; stride > 0; stride /= 2) {
    __syncthreads();
    if (threadIdx.x < stride) {
      shared_sum[threadIdx.x] += shared_sum[threadIdx.x + stride];
      shared_squares[threadIdx.x] += shared_squares[threadIdx.x + stride];
    }
  }
  __syncthreads();
  const float scale = 1.0f / (static_cast<float>(p.hw) * static_cast<float>(width));
  const float offset = shared_sum[0] * scale;
  const float variance = fmaxf(shared_squares[0] - shared_sum[0] * offset, 0.0f) * scale;
  const float mean = origin + offset;
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(p.eps));
  for (std::int64_t c = first + threadIdx.x; c < first + width; c += kFinishThreads) {
    const float2 ab = channel_coefficients<T>(p, t, mean, rstd, c, image * p.scale_shift_stride() + c);
    coefficients[image * 2 * p.channels + c] = ab.x;
    coefficients[(image * 2 + 1) * p.channels + c] = ab.y;
  }
  if (p.stats && threadIdx.x == 0) {
    t.mean[blockIdx.x] = mean;
    t.rstd[blockIdx.x] = rstd;
  }
}

// Where a thread of a slab kernel works: grid (slabs, tiles, n), block tile_columns * tile_rows.
struct SlabPosition {
  std::int64_t first_row;  // of the slab, counted over all images
  std::int64_t rows;       // of the slab
  std::int64_t channel;    // the thread's first; channels or more: nothing to do
  int row;                 // the thread's first row in the slab; then every tile_rows
};

// `hw`: pixels of an image.
__device__ __forceinline__ SlabPosition slab_position(std::int64_t hw, const SlabPlan& plan, int lanes) {
  const std::int64_t row = blockIdx.x * plan.slab_rows;
  const int column = static_cast<int>(threadIdx.x) % plan.tile_columns;
  return {blockIdx.z * hw + row, min(plan.slab_rows, hw - row),
          (static_cast<std::int64_t>(blockIdx.y) * plan.tile_columns + column) * lanes,
          static_cast<int>(threadIdx.x) / plan.tile_columns};
}

// `kLanes` elements: one 16-byte access, or one element.
template <class T, int kLanes>
__device__ __forceinline__ void load_lanes(const T* pointer, float (&out)[kLanes]) {
  if constexpr (kLanes == 1)
    out[0] = to_float(*pointer);
  else
    load_vector<T>(pointer, out);
}
template <class T, int kLanes>
__device__ __forceinline__ void store_lanes(T* pointer, const float (&in)[kLanes]) {
  if constexpr (kLanes == 1)
    *pointer = from_float<T>(in[0]);
  else
    store_vector<T>(pointer, in);
}

// kDown: a thread's row is a pixel of y and x_down, the means of four of what y would be and of x.
template <class T, int kLanes, bool kDown>
__global__ void __launch_bounds__(kSlabThreads)
    normalise_kernel(Problem p, Tensors t, SlabPlan plan, const float* coefficients) {
  const SlabPosition at = slab_position(kDown ? p.y_pixels() : p.hw, plan, kLanes);
  if (at.channel >= p.channels) return;
  float a[kLanes], b[kLanes];
  const float* row = coefficients + blockIdx.z * 2 * p.channels + at.channel;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    a[i] = row[i];
    b[i] = row[p.channels + i];
  }
  const std::int64_t offset = at.first_row * p.channels + at.channel;
  const bool activate = p.fusion != Fusion::none;
  const auto normalised = [&](float value, int i) {
    value = value * a[i] + b[i];
    return activate ? silu(value) : value;
  };
  for (std::int64_t s = at.row; s < at.rows; s += plan.tile_rows) {
    float value[kLanes];
    T* const y = static_cast<T*>(t.y) + offset + s * p.channels;
    if constexpr (kDown) {
      const T* x = static_cast<const T*>(t.x) + p.first_of_four(at.first_row + s) * p.channels + at.channel;
      float sum[kLanes] = {}, x_sum[kLanes] = {};
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        load_lanes<T>(x + (corner / 2 * p.down_w + corner % 2) * p.channels, value);
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          x_sum[i] += value[i];
          sum[i] += to_float(from_float<T>(normalised(value[i], i)));
        }
      }
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sum[i] *= 0.25f;
        x_sum[i] *= 0.25f;
      }
      store_lanes<T>(y, sum);
      store_lanes<T>(static_cast<T*>(t.x_down) + offset + s * p.channels, x_sum);
    } else {
      load_lanes<T>(static_cast<const T*>(t.x) + offset + s * p.channels, value);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) value[i] = normalised(value[i], i);
      store_lanes<T>(y, value);
    }
  }
}

// All kernels of the variant `name`; statistics(grid, partials) launches the first. `plan`: of the slabs of x;
// `max_columns` as it was planned with.
template <class T, int kLanes, class Statistics>
Status launch_slabs(const char* name, const Problem& p, const Tensors& t, const SlabPlan& plan, int max_columns,
                    const Scratch& scratch, const LaunchContext& context, const Statistics& statistics) {
  auto* partials = static_cast<float*>(scratch.workspace);
  float* coefficients = slab_coefficients(p, t, plan, partials);
  const auto grid = [&](const SlabPlan& of) {
    return dim3(static_cast<unsigned>(of.slabs), static_cast<unsigned>(of.tiles), static_cast<unsigned>(p.n));
  };
  if (!p.given()) {
    if (const Status status = statistics(grid(plan), partials); !status.ok()) return status;
  }
  const Status finished = launch_kernel(
      name, finish_kernel<T>, {.grid = static_cast<unsigned>(p.n * p.groups), .block = kFinishThreads}, context.stream,
      p, t, p.given() ? given_partials(p, t) : own_partials(p, plan, partials), coefficients);
  if (!finished.ok() || p.coefficients) return finished;
  const SlabPlan last = p.down() ? plan_down_slabs(p, kLanes, context.device->sm_count, max_columns) : plan;
  const auto kernel = p.down() ? normalise_kernel<T, kLanes, true> : normalise_kernel<T, kLanes, false>;
  return launch_kernel(name, kernel, {.grid = grid(last), .block = static_cast<unsigned>(last.threads())},
                       context.stream, p, t, last, coefficients);
}

}  // namespace
}  // namespace noisefloor::groupnorm
