// What the blocks of ptx_sm90a and of ptx_sm90a_grid do with their rows of a bundle of groups: sum what each thread has
// fetched, merge that to moments of each group, fold all parameters into one multiply-add for each channel.
#pragma once

#include "kernels/device/block_sum.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/cluster_plan.h"
#include "kernels/groupnorm/device.cuh"
#include "kernels/ptx/cp_async.cuh"

namespace noisefloor::groupnorm {
namespace {

struct StripeArguments {
  Tensors t;
  int hw, channels, bundles;  // rows of the plan and bundles, of an image
  int scale_shift_stride;     // elements from image to image
  int width;                  // channels of a group
  int stages;                 // parts of a shared tile that are waited for one after the other
  int stage_accesses;         // of a thread in each; with down_w, quads of accesses
  float eps;
  float size_inverse;  // 1 / (the problem's hw * width)
  // For divide.
  float bundles_inverse, width_inverse, tile_rows_inverse;
  StripePlan plan;
};

// What an H200's memory delivers in an SM cycle, rounded: 4.25 TB/s at 1.98 GHz. Clusters and teams start as fast as
// that; elsewhere it is merely not ideal.
constexpr float kBytesPerCycle = 2048;

constexpr int kStages = 4;  // parts of a shared tile at most
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kTeam = 16;  // lanes that reduce one group

// `t`: scale and shift where they lie (unpacked).
inline StripeArguments make_stripe_arguments(const Problem& p, const Tensors& t, const StripePlan& plan,
                                             int pixels = 1) {
  StripeArguments a{};
  a.t = t;
  a.hw = static_cast<int>(p.hw) / pixels;
  a.channels = static_cast<int>(p.channels);
  a.scale_shift_stride = static_cast<int>(p.scale_shift_stride());
  a.bundles = static_cast<int>(p.groups) / plan.bundle;
  a.width = static_cast<int>(p.channels_per_group());
  const int accesses = (plan.shared_rows + plan.tile_rows - 1) / plan.tile_rows;
  a.stages = accesses * pixels >= 2 * kStages ? kStages : 1;
  a.stage_accesses = (accesses + a.stages - 1) / a.stages;
  a.eps = static_cast<float>(p.eps);
  a.size_inverse = static_cast<float>(1.0 / static_cast<double>(p.group_size()));
  a.bundles_inverse = 1.0f / static_cast<float>(a.bundles);
  a.width_inverse = 1.0f / static_cast<float>(a.width);
  a.tile_rows_inverse = 1.0f / static_cast<float>(plan.tile_rows);
  a.plan = plan;
  return a;
}

// Of a launch of so many blocks, each of which has a plan's stripe.
inline LaunchShape stripe_shape(const StripePlan& plan, int blocks, int shared_bytes) {
  return {.grid = static_cast<unsigned>(blocks),
          .block = dim3(static_cast<unsigned>(plan.columns), static_cast<unsigned>(plan.tile_rows)),
          .shared_bytes = static_cast<std::size_t>(shared_bytes),
          .shared_limit = kSharedBytesPerBlock};
}

// Blocks that start together load, reduce and write together. Number n starts when those before it should have loaded,
// so that from then on some reduce or write while others load.
__device__ __forceinline__ void wait_staggered(int number, float cycles_between) {
  const auto start = static_cast<unsigned>(clock());
  const auto delay = static_cast<unsigned>(static_cast<float>(number) * cycles_between);
  while (static_cast<unsigned>(clock()) - start < delay) __nanosleep(50);
}

// value / divisor, given 1.0f / divisor; exact for value < 2^21: (value + 1/2) / divisor is 1 / (2 divisor) or more
// away from an integer, and rounding moves it by less than 2^-23 of itself, 1 / (4 divisor).
__device__ __forceinline__ int divide(int value, float inverse) {
  return static_cast<int>((static_cast<float>(value) + 0.5f) * inverse);
}

__device__ __forceinline__ int linear_thread() {
  return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
}

// Starts copying the thread's rows from `r` on, in a.stages groups; `source` and `destination` are of the first of
// them.
template <class T, class Step>
__device__ __forceinline__ void fetch_stages(const StripeArguments& a, const T* source, Step step,
                                             std::uint32_t destination, int tile_step, int r, int rows) {
#pragma unroll 1
  for (int stage = 0; stage < a.stages; ++stage) {
#pragma unroll 4
    for (int k = 0; k < a.stage_accesses && r < rows; ++k, r += a.plan.tile_rows) {
      ptx::cp_async_16_alone(destination, source);
      source += step;
      destination += tile_step;
    }
    ptx::cp_async_commit();
  }
}

// Until all but the last `later` groups of the thread's copies have arrived; 0 to kStages - 1.
__device__ __forceinline__ void wait_groups(int later) {
  switch (later) {
    case 3:
      return ptx::cp_async_wait<3>();
    case 2:
      return ptx::cp_async_wait<2>();
    case 1:
      return ptx::cp_async_wait<1>();
    default:
      return ptx::cp_async_wait<0>();
  }
}

// What a thread has seen of its eight channels: sums of x - shift, then of its squares. Channels of one group share one
// shift, a value of the thread's first row, so that summing needs nothing but the thread's own rows.
struct ChannelSums {
  float shift[8], v[16];
};

// Of the eight channels from 8 * column on of the bundle: those that lie in their first group.
__device__ __forceinline__ int channels_in_first(const StripeArguments& a, int column) {
  return min((divide(column * 8, a.width_inverse) + 1) * a.width - column * 8, 8);
}

template <class T>
__device__ __forceinline__ void start_sums(const StripeArguments& a, ChannelSums& sums, const uint4& row, int split) {
  unpack_vector<T>(row, sums.shift);
  if (a.plan.entries == 8) return;
#pragma unroll
  for (int i = 1; i < 7; ++i) sums.shift[i] = i < split ? sums.shift[0] : sums.shift[7];
  if (split == 8) sums.shift[7] = sums.shift[0];
}

template <class T>
__device__ __forceinline__ void add_row(ChannelSums& sums, const uint4& row) {
  float value[8];
  unpack_vector<T>(row, value);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float d = value[i] - sums.shift[i];
    sums.v[i] += d;
    sums.v[i + 8] += d * d;
  }
}

// The rows of a block that each row of threads sums: `most` for the first `rest`, one less for the others.
struct RowShare {
  int rest;
  float least, most;

  __device__ __forceinline__ RowShare(const StripeArguments& a, int rows) {
    const int share = divide(rows, a.tile_rows_inverse);
    rest = rows - share * a.plan.tile_rows;
    least = static_cast<float>(share);
    most = least + 1.0f;
  }
  __device__ __forceinline__ float of(int row) const { return row < rest ? most : least; }
  __device__ __forceinline__ void count_pixels(int of_row) {
    least *= static_cast<float>(of_row);
    most *= static_cast<float>(of_row);
  }
};

// Mean and M2 of `count` values from the sums about `shift`; of none: shift and 0, which weigh nothing.
__device__ __forceinline__ float2 entry_moments(float shift, float sum, float squares, float count) {
  const float offset = sum * ptx::rcp_approx(fmaxf(count, 1.0f));
  return {shift + offset, squares - sum * offset};
}

// Leaves the moments of what the thread has summed for group_moments, [entry][row]: entry 2 * column for its first
// group and 2 * column + 1 for its second, or an entry for each channel where eight channels may span more groups.
__device__ __forceinline__ void store_moments(const StripeArguments& a, const ChannelSums& sums, float rows, int split,
                                              float2* shared) {
  const int pitch = a.plan.tile_rows | 1;
  float2* out = shared + static_cast<int>(threadIdx.x) * a.plan.entries * pitch + threadIdx.y;
  if (a.plan.entries == 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i * pitch] = entry_moments(sums.shift[i], sums.v[i], sums.v[i + 8], rows);
    return;
  }
  float2 low{}, high{};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool in_low = i < split;
    low.x += in_low ? sums.v[i] : 0.0f;
    low.y += in_low ? sums.v[i + 8] : 0.0f;
    high.x += in_low ? 0.0f : sums.v[i];
    high.y += in_low ? 0.0f : sums.v[i + 8];
  }
  const auto low_channels = static_cast<float>(split);
  out[0] = entry_moments(sums.shift[0], low.x, low.y, rows * low_channels);
  out[pitch] = entry_moments(sums.shift[7], high.x, high.y, rows * (8.0f - low_channels));
}

// Mean and M2 of group `j` of the bundle over this block's rows, to all lanes of a team: Chan's formula over the
// entries, about the first one's mean.
__device__ __forceinline__ float2 group_moments(const StripeArguments& a, const float2* entries, const RowShare& share,
                                                int rows, int j) {
  const int begin = j * a.width;
  const int end = begin + a.width;
  const bool pairs = a.plan.entries == 2;
  const int pitch = a.plan.tile_rows | 1;
  const int last = pairs ? (end + 7) / 8 : end;
  const int start = pairs ? begin / 8 : begin;
  const auto entry_of = [&](int i) { return (pairs ? 2 * i + (i * 8 < begin ? 1 : 0) : i) * pitch; };
  const float origin = entries[entry_of(start)].x;
  float sum = 0, squares = 0;
#pragma unroll 1
  for (int i = start; i < last; ++i) {
    const float2* entry = entries + entry_of(i);
    const float channels = pairs ? static_cast<float>(min(end, 8 * i + 8) - max(begin, 8 * i)) : 1.0f;
#pragma unroll 2
    for (int row = linear_thread() % kTeam; row < a.plan.tile_rows; row += kTeam) {
      const float2 part = entry[row];
      const float count = channels * share.of(row);
      const float delta = part.x - origin;
      sum += count * delta;
      squares += part.y + count * delta * delta;
    }
  }
  sum = lane_sum<kTeam>(sum);
  squares = lane_sum<kTeam>(squares);
  if (rows == 0) return {0, 0};
  const float offset = sum * ptx::rcp_approx(static_cast<float>(rows * a.width));
  return {origin + offset, fmaxf(squares - sum * offset, 0.0f)};
}

__device__ __forceinline__ int rows_of(const StripeArguments& a, int rank) {
  return max(min(a.plan.rows, a.hw - rank * a.plan.rows), 0);
}

__device__ __forceinline__ float2 mean_and_rstd(const StripeArguments& a, float mean, float m2) {
  return {mean, rsqrtf(m2 * a.size_inverse + a.eps)};
}

template <class T>
struct Eight {
  uint4 bits[sizeof(T) / 2];

  __device__ __forceinline__ void load(const void* base, int index) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i)
      bits[i] = load_16_bytes(static_cast<const T*>(base) + index + 16 / sizeof(T) * i);
  }
  __device__ __forceinline__ void unpack(float (&values)[8]) const {
    constexpr int kLanes = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < 8; i += kLanes) {
      float part[kLanes];
      unpack_vector<T>(bits[i / kLanes], part);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) values[i + j] = part[j];
    }
  }
};

// The parameters of a thread's eight channels, gamma and beta as A; scale and shift only where the problem has them.
template <class A>
struct ChannelParameters {
  Eight<A> gamma, beta;
  uint4 scale, shift;
};

// From `row` = image * scale_shift_stride + channel.
template <class T, class A>
__device__ __forceinline__ ChannelParameters<A> load_parameters(const Tensors& t, int channel, int row) {
  const auto at = [](const void* base, int index) { return static_cast<const T*>(base) + index; };
  ChannelParameters<A> p{};
  p.gamma.load(t.gamma, channel);
  p.beta.load(t.beta, channel);
  if (t.scale != nullptr) {
    p.scale = load_16_bytes(at(t.scale, row));
    p.shift = load_16_bytes(at(t.shift, row));
  }
  return p;
}

// Calls body(i, its group in the bundle) for each of the eight channels from 8 * column on.
template <class Body>
__device__ __forceinline__ void each_channel(const StripeArguments& a, int column, const Body& body) {
  int group = divide(column * 8, a.width_inverse);
  int position = column * 8 - group * a.width;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (position == a.width) {
      position = 0;
      ++group;
    }
    ++position;
    body(i, group);
  }
}

// y = x * a + b for each of the eight channels from 8 * column on, `finals` the mean and rstd of the bundle's groups;
// half of both where silu_of_twice follows.
template <class T, bool kActivate, class A>
__device__ __forceinline__ void fold_coefficients(const StripeArguments& a, const ChannelParameters<A>& p, int column,
                                                  const float2* finals, float (&ca)[8], float (&cb)[8]) {
  p.gamma.unpack(ca);
  p.beta.unpack(cb);
  each_channel(a, column, [&](int i, int group) {
    const float2 total = finals[group];
    ca[i] *= total.y;
    cb[i] -= total.x * ca[i];
  });
  if (a.t.scale != nullptr) {
    float other[8];
    unpack_vector<T>(p.scale, other);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      ca[i] *= 1.0f + other[i];
      cb[i] *= 1.0f + other[i];
    }
    unpack_vector<T>(p.shift, other);
#pragma unroll
    for (int i = 0; i < 8; ++i) cb[i] += other[i];
  }
  if constexpr (kActivate) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      ca[i] *= 0.5f;
      cb[i] *= 0.5f;
    }
  }
}

// x to y, eight channels of one pixel.
template <bool kActivate>
__device__ __forceinline__ void fuse_row(float (&value)[8], const float (&ca)[8], const float (&cb)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    value[i] = value[i] * ca[i] + cb[i];
    if constexpr (kActivate) value[i] = silu_of_twice(value[i]);
  }
}

// y of eight channels of one row.
template <class T, bool kActivate>
__device__ __forceinline__ void write_row(T* destination, const uint4& row, const float (&ca)[8],
                                          const float (&cb)[8]) {
  float value[8];
  unpack_vector<T>(row, value);
  fuse_row<kActivate>(value, ca, cb);
  store_vector<T>(destination, value);
}

}  // namespace
}  // namespace noisefloor::groupnorm
