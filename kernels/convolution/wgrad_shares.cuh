// What ptx_sm90a's wgrad is told, where its sums of a tile go, and how the shares of a tile are added. Device code, and
// the launch of what adds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/convolution/wgrad_cut.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::convolution {

inline constexpr int kWgradColumns = kWgradBlocks * kWgradBlock;  // of a warpgroup's three blocks

struct WgradArguments {
  WgradStep step;
  WgradCut cut;
  int images, cout, cin, pad, stages;
  float scale;
  float *dw, *dbias;  // dbias: null where it is not wanted
  void* dshift;       // likewise, and of one tap
  float* box_sums;    // [images][boxes][wgrad_box_channels], of dy, where an image has several
  float* partials;    // [places][kWgradShare]

  __device__ __forceinline__ int channels() const { return step.one_tap() ? kWgradColumns : kWgradBlock; }  // of a tile
  __device__ __forceinline__ int out_channel(int tile) const { return tile / cut.tiles_ci * channels(); }
  __device__ __forceinline__ int in_channel(int tile) const { return tile % cut.tiles_ci * channels(); }
};

// Where a thread's sums of a tile go: runs of two sums of row r and two of row r + 8, in wgmma's order
// (kernels/ptx/wgmma.cuh). Run j has columns 8 j of the warpgroup's three blocks.
class WeightPlace {
 public:
  __device__ __forceinline__ WeightPlace(const WgradArguments& args, int tile, int consumer, int thread)
      : cin_(args.cin), scale_(args.scale) {
    const bool one = args.step.one_tap();
    const int taps = one ? 1 : kWgradBlocks * kWgradBlocks;
    const int co = args.out_channel(tile) + (one ? consumer * kWgradBlock : 0) + thread / 32 * 16 + thread % 32 / 4;
    rows_ = co + 8 < args.cout ? 2 : co < args.cout ? 1 : 0;
    ci_ = args.in_channel(tile) + thread % 4 * 2;
    row_ = args.dw + (std::int64_t{co} * taps + (one ? 0 : consumer * kWgradBlocks)) * cin_ + ci_;
    to_row_ = 8 * taps * cin_;
    to_block_ = one ? kWgradBlock : cin_;
    channels_of_block_ = one ? kWgradBlock : 0;
    all_there_ = rows_ == 2 && cin_ % 2 == 0 && args.in_channel(tile) + args.channels() <= cin_;
  }
  __device__ __forceinline__ bool all_there() const { return all_there_; }
  // Whether run j has any weight that there is.
  __device__ __forceinline__ bool there(int j) const {
    return all_there_ || (rows_ > 0 && left(j / (kWgradBlock / 8), j % (kWgradBlock / 8) * 8) > 0);
  }
  __device__ __forceinline__ void store(int j, const float4& sums) const {
    const int block = j / (kWgradBlock / 8), column = j % (kWgradBlock / 8) * 8;
    float* const to = row_ + block * to_block_ + column;
    if (all_there_) {
      *reinterpret_cast<float2*>(to) = make_float2(scale_ * sums.x, scale_ * sums.y);
      *reinterpret_cast<float2*>(to + to_row_) = make_float2(scale_ * sums.z, scale_ * sums.w);
      return;
    }
    const int channels = left(block, column);
    if (rows_ > 0) store_pair(to, channels, sums.x, sums.y);
    if (rows_ > 1) store_pair(to + to_row_, channels, sums.z, sums.w);
  }

 private:
  __device__ __forceinline__ int left(int block, int column) const {
    return cin_ - ci_ - column - block * channels_of_block_;
  }
  __device__ __forceinline__ void store_pair(float* to, int channels, float first, float second) const {
    if (channels > 0) to[0] = scale_ * first;
    if (channels > 1) to[1] = scale_ * second;
  }

  int cin_, rows_, ci_, to_row_, to_block_, channels_of_block_;
  bool all_there_;
  float scale_;
  float* row_;
};

inline constexpr int kAddThreads = 256;

// The sum of `count` numbers, `stride` apart: `lanes` threads of a block take every lanes-th, and the first of them
// adds what they have in order.
static __device__ __forceinline__ float4 add_in_lanes(const float4* from, int count, int stride, int lanes) {
  constexpr int kLoads = 4;  // under way
  __shared__ float4 sums[kAddThreads];
  const auto add = [](float4& sum, const float4& other) {
    sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
  };
  const int width = kAddThreads / lanes, thread = static_cast<int>(threadIdx.x);
  float4 sum{};
  ptx::griddepcontrol_wait();  // launched while they are still being made
#pragma unroll 1
  for (int i = thread / width; i < count; i += kLoads * lanes) {
    float4 loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      loaded[k] = i + k * lanes < count ? from[std::int64_t{i + k * lanes} * stride] : float4{};
#pragma unroll
    for (int k = 0; k < kLoads; ++k) add(sum, loaded[k]);
  }
  ptx::griddepcontrol_launch_dependents();
  sums[thread] = sum;
  __syncthreads();
  for (int lane = 1; lane < lanes && thread < width; ++lane) add(sum, sums[lane * width + thread]);
  return sum;
}

// Adds the shares of the tiles that blocks share, `tile_blocks` blocks a tile; further blocks add the boxes of images.
// T: dshift's.
template <class T>
__global__ void __launch_bounds__(kAddThreads, 2048 / kAddThreads)
    convolution_wgrad_add_shares(const __grid_constant__ WgradArguments args, int tile_blocks, int lanes) {
  __shared__ int blocks[2];  // the first and the last that share the tile
  const int width = kAddThreads / lanes, thread = static_cast<int>(threadIdx.x);
  const int shared_tile = static_cast<int>(blockIdx.x) / tile_blocks, tile = args.cut.whole + shared_tile;
  const int tiles_blocks = args.cut.shared_tiles() * tile_blocks;
  const auto each = [&](const float4& sum, const auto& store) {
    store(0, sum.x), store(1, sum.y), store(2, sum.z), store(3, sum.w);
  };
  if (shared_tile >= args.cut.shared_tiles()) {
    const int runs = wgrad_box_channels(args.cout) / kWgradRun, boxes = args.cut.boxes();
    const std::int64_t run = std::int64_t{static_cast<int>(blockIdx.x) - tiles_blocks} * width + thread % width;
    const std::int64_t image = run / runs;
    const auto chunk = static_cast<int>(run - image * runs);
    const float4 sum = add_in_lanes(reinterpret_cast<const float4*>(args.box_sums) + image * boxes * runs + chunk,
                                    image < args.images ? boxes : 0, runs, lanes);
    if (image >= args.images || thread >= width) return;
    each(sum, [&](int i, float value) {
      if (const int channel = chunk * kWgradRun + i; channel < args.cout)
        static_cast<T*>(args.dshift)[image * args.cout + channel] = from_float<T>(args.scale * value);
    });
    return;
  }
  const int run = static_cast<int>(blockIdx.x) % tile_blocks * width + thread % width;
  if (thread < 2) blocks[thread] = args.cut.block_of(std::int64_t{shared_tile + thread} * args.cut.steps - thread);
  __syncthreads();
  const int first = blocks[0], last = blocks[1];  // where they are one, it has the tile whole
  const int row = run / 128, column = (run - kWgradRuns) * kWgradRun;
  const auto place = [&] { return WeightPlace(args, tile, row / (kWgradColumns / 8), run % 128); };
  const bool narrow = args.cin < args.channels() || args.cout < kWgradBlock;  // most of the tile may not be there
  const bool of_biases = run >= kWgradRuns;
  const bool there =
      first < last && (of_biases ? args.dbias != nullptr && tile % args.cut.tiles_ci == 0 && column < args.channels()
                                 : !narrow || place().there(row % (kWgradColumns / 8)));
  const float4 sum = add_in_lanes(
      reinterpret_cast<const float4*>(args.partials + std::int64_t{shared_tile + first} * kWgradShare) + run,
      there ? last - first + 1 : 0, kWgradShare / kWgradRun, lanes);
  if (!there || thread >= width) return;
  if (!of_biases) return place().store(row % (kWgradColumns / 8), sum);
  each(sum, [&](int i, float value) {
    if (const int channel = args.out_channel(tile) + column + i; channel < args.cout)
      args.dbias[channel] = args.scale * value;
  });
}

template <class T>
Status add_shares(const WgradArguments& args, const LaunchContext& context) {
  const int tiles = args.cut.shared_tiles(), boxes = args.box_sums != nullptr ? args.cut.boxes() : 0;
  const int summands = std::max(boxes, tiles > 0 ? args.cut.places() / tiles : 0);
  int lanes = 1;  // that they keep busy
  while (lanes < 8 && 4 * lanes <= summands) lanes *= 2;
  const int width = kAddThreads / lanes, tile_blocks = (kWgradShare / kWgradRun + width - 1) / width;
  const std::int64_t runs = boxes > 0 ? std::int64_t{args.images} * wgrad_box_channels(args.cout) / kWgradRun : 0;
  const LaunchShape shape{.grid = static_cast<unsigned>(tiles * tile_blocks + (runs + width - 1) / width),
                          .block = kAddThreads,
                          .programmatic = true};
  return launch_kernel("convolution_wgrad_add_shares", convolution_wgrad_add_shares<T>, shape, context.stream, args,
                       tile_blocks, lanes);
}

}  // namespace noisefloor::convolution
