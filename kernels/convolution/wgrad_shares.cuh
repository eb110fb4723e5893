// What ptx_sm90a's wgrad is told, where its sums of a tile go, and how the shares of a tile are added. Device code, and
// the launch of what adds.
#pragma once

#include <cstdint>

#include "kernels/convolution/wgrad_cut.h"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::convolution {

inline constexpr int kWgradColumns = kWgradBlocks * kWgradBlock;  // of a warpgroup's three blocks

struct WgradArguments {
  WgradStep step;
  WgradCut cut;
  int images, cout, cin, pad, stages;
  float scale;
  float *dw, *dbias;  // dbias: null where it is not wanted
  float* box_sums;    // [images][boxes][cout], of dy; null where they are not wanted
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
  __device__ __forceinline__ void store(int j, const float4& sums) const {
    const int block = j / (kWgradBlock / 8), column = j % (kWgradBlock / 8) * 8;
    float* const to = row_ + block * to_block_ + column;
    if (all_there_) {
      *reinterpret_cast<float2*>(to) = make_float2(scale_ * sums.x, scale_ * sums.y);
      *reinterpret_cast<float2*>(to + to_row_) = make_float2(scale_ * sums.z, scale_ * sums.w);
      return;
    }
    const int left = cin_ - ci_ - column - block * channels_of_block_;
    if (rows_ > 0) store_pair(to, left, sums.x, sums.y);
    if (rows_ > 1) store_pair(to + to_row_, left, sums.z, sums.w);
  }

 private:
  __device__ __forceinline__ void store_pair(float* to, int left, float first, float second) const {
    if (left > 0) to[0] = scale_ * first;
    if (left > 1) to[1] = scale_ * second;
  }

  int cin_, rows_, ci_, to_row_, to_block_, channels_of_block_;
  bool all_there_;
  float scale_;
  float* row_;
};

inline constexpr int kAddThreads = 256;

// Adds the shares of the tiles that blocks share, `runs` runs of each tile; `lanes` threads add every lanes-th share of
// a run, and their sums are added in order.
static __global__ void __launch_bounds__(kAddThreads)
    convolution_wgrad_add_shares(const __grid_constant__ WgradArguments args, int tile_blocks, int lanes) {
  __shared__ float4 sums[kAddThreads];
  __shared__ int blocks[2];    // the first and the last that share the tile
  ptx::griddepcontrol_wait();  // launched while the shares are still being made
  const int width = kAddThreads / lanes, thread = static_cast<int>(threadIdx.x);
  const int shared_tile = static_cast<int>(blockIdx.x) / tile_blocks, tile = args.cut.whole + shared_tile;
  const int run = static_cast<int>(blockIdx.x) % tile_blocks * width + thread % width;
  if (thread < 2) blocks[thread] = args.cut.block_of(std::int64_t{shared_tile + thread} * args.cut.steps - thread);
  __syncthreads();
  const int first = blocks[0], last = blocks[1];
  if (first == last) return;  // whole, after all
  const bool of_biases = args.dbias != nullptr && tile % args.cut.tiles_ci == 0;
  const bool there = run < (of_biases ? kWgradShare / kWgradRun : kWgradRuns);
  float4 sum{};
  if (there) {
    const auto* const from = reinterpret_cast<const float4*>(args.partials) + run;
#pragma unroll 4
    for (int block = first + thread / width; block <= last; block += lanes) {
      const float4 share = from[std::int64_t{shared_tile + block} * (kWgradShare / kWgradRun)];
      sum.x += share.x, sum.y += share.y, sum.z += share.z, sum.w += share.w;
    }
  }
  sums[thread] = sum;
  __syncthreads();
  if (!there || thread >= width) return;
  for (int lane = 1; lane < lanes; ++lane) {
    const float4 other = sums[lane * width + thread];
    sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
  }
  if (run < kWgradRuns) {
    const int row = run / 128;
    WeightPlace(args, tile, row / (kWgradColumns / 8), run % 128).store(row % (kWgradColumns / 8), sum);
  } else {
    const int column = (run - kWgradRuns) * kWgradRun;
    const float values[] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0; i < kWgradRun && column + i < args.channels(); ++i)
      if (const int channel = args.out_channel(tile) + column + i; channel < args.cout)
        args.dbias[channel] = args.scale * values[i];
  }
}

inline Status add_shares(const WgradArguments& args, const LaunchContext& context) {
  int lanes = 1;  // that a tile's shares keep busy
  for (const int shares = args.cut.places() / args.cut.shared_tiles(); lanes < 8 && 4 * lanes <= shares;) lanes *= 2;
  const int width = kAddThreads / lanes, tile_blocks = (kWgradShare / kWgradRun + width - 1) / width;
  const LaunchShape shape{
      .grid = static_cast<unsigned>(args.cut.shared_tiles() * tile_blocks), .block = kAddThreads, .programmatic = true};
  return launch_kernel("convolution_wgrad_add_shares", convolution_wgrad_add_shares, shape, context.stream, args,
                       tile_blocks, lanes);
}

}  // namespace noisefloor::convolution
