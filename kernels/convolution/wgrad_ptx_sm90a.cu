// wgrad with Hopper's own instructions: dy^T times the pixels under the taps. A step is 64 pixels: one box of dy and
// one of x with its neighbours arrive by TMA and serve all taps. wgmma takes both as they lie, a line of 64 channels
// for each pixel, which are rows of k: m-major dy, n-major x. Three warpgroups make one kernel row each, and one
// product of 192 columns makes its three taps: the descriptor's next block of 64 columns begins one pixel further on,
// in the same box. A convolution of one tap has 192 x 192 channels in their place. Spare warps of the producer sum dy.
//
// Blocks take whole tiles, then share the rest evenly (wgrad_cut.h); a second launch adds the shares' sums in the order
// of their pixels, and dy's boxes. Channels that TMA cannot address, and an upsample, are laid out in workspace first.
//
// Better than tensor_core_sm80: an element of x is loaded once for nine taps, and wgmma has twice the rate.
// Requires: bf16 or fp16; one tap without pad, or 3x3; stride 1.
// Bound: products at 32x32x32x384 -> 384; expected limiter: shared memory, of which they read 64 of 96 cycles.
// Numerics: fp32 sums over a share's pixels, then over shares. An Inf of x beside the image's last output may make NaN.
// Source: PTX ISA, "Matrix descriptor format", "cp.async.bulk.tensor"; otherwise original.
#include <algorithm>
#include <cstdint>

#include "kernels/convolution/gradient.h"
#include "kernels/convolution/wgrad_dy_sums.cuh"
#include "kernels/convolution/wgrad_shares.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/device/vector.cuh"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/setmaxnreg.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kConsumers = kWgradBlocks;
constexpr int kThreads = kConsumers * 128 + 128;
constexpr int kProducerRegisters = 80, kConsumerRegisters = 144;
static_assert(128 * kProducerRegisters + kConsumers * 128 * kConsumerRegisters <= 65536, "an SM's registers");
constexpr int kMostStages = 10;
// compute-sanitizer takes a product's 6,144 bytes of x to lie one behind the other. So much of them, of the halo's last
// product, would lie behind the last stage.
constexpr int kSlackBytes = 3072;
constexpr int kRingBytes = 227 * 1024 - 1024 - kMostStages * 16 - kScratchBytes - kSlackBytes;
constexpr int kLayThreads = 256;

// One warp: all steps of the block.
__device__ __forceinline__ void load_steps(const CUtensorMap* map_dy, const CUtensorMap* map_x,
                                           const WgradArguments& args, const WgradRing& at) {
  const WgradStep& step = args.step;
  const int stage_bytes = step.stage_bytes(), dy_bytes = step.dy_bytes(), x_bytes = step.x_bytes();
  WgradWalk walk(args.cut, static_cast<int>(blockIdx.x));
  WgradShare share;
  ptx::Ring ring;
  while (walk.next(share)) {
    const int co = args.out_channel(share.tile), ci = args.in_channel(share.tile);
#pragma unroll 1
    for (int i = share.first; i < share.first + share.count; ++i, ring.advance(args.stages)) {
      const int line = i / args.cut.across, x0 = (i - line * args.cut.across) * step.dy.w;
      const int images = line / args.cut.down, y0 = (line - images * args.cut.down) * step.dy.h;
      const int image = images * step.dy.images;
      const std::uint32_t full = at.full + ring.stage * 8, to = at.stages + ring.stage * stage_bytes;
      ptx::mbarrier_wait(at.empty + ring.stage * 8, ring.parity ^ 1);
      if (ptx::elect_one()) {
        ptx::mbarrier_arrive_expect_tx(full, static_cast<std::uint32_t>(step.bytes()));
#pragma unroll 1
        for (int box = 0; box < step.dy_boxes; ++box)
          ptx::tma_load_4d(to + box * (kWgradBlock * kWgradLine), map_dy, full, co + box * kWgradBlock, x0, y0, image);
#pragma unroll 1
        for (int box = 0; box < step.x_boxes; ++box)
          ptx::tma_load_4d(to + dy_bytes + box * x_bytes, map_x, full, ci + (step.columns ? 0 : box * kWgradBlock),
                           x0 - args.pad + (step.columns ? box : 0), y0 - args.pad, image);
      }
    }
  }
}

// A warpgroup: its three blocks of each tile.
template <class T>
__device__ __forceinline__ void multiply_steps(const WgradArguments& args, const WgradRing& at, int consumer) {
  const WgradStep& step = args.step;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t first_dy = static_cast<std::uint32_t>(step.one_tap() ? consumer * kWgradBlock * kWgradLine : 0);
  const std::uint32_t first_x = static_cast<std::uint32_t>(step.dy_bytes() + consumer * step.to_row);
  const std::uint32_t to_block = static_cast<std::uint32_t>(step.to_block) / 16 << 16;
  const std::uint32_t to_product = static_cast<std::uint32_t>(step.to_product) / 16;
  const int stage_bytes = step.stage_bytes(), to_group = step.to_group;
  const auto release = [&](int stage) {
    if (lane == 0) ptx::mbarrier_arrive(at.empty + stage * 8);
  };
  WgradWalk walk(args.cut, static_cast<int>(blockIdx.x));
  WgradShare share;
  ptx::Ring ring;
  float acc[1][kWgradColumns / 2];
  while (walk.next(share)) {
    int held = -1;
#pragma unroll 1
    for (int i = 0; i < share.count; ++i, ring.advance(args.stages)) {
      const std::uint32_t stage = at.stages + ring.stage * stage_bytes;
      const std::uint32_t dy = (stage + first_dy) / 16, x = (stage + first_x) / 16 | to_block;
      ptx::mbarrier_wait(at.full + ring.stage * 8, ring.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kWgradBlock / 16; ++k)
        ptx::Wgmma<T, kWgradColumns, /*kNMajor=*/true, /*kMMajor=*/true>::run(
            acc[0], ptx::wgmma_descriptor_128b_of(dy + k * (16 * kWgradLine / 16)),
            ptx::wgmma_descriptor_128b_of(x + k * to_product, to_group), i > 0 || k > 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (held >= 0) release(held);
      held = ring.stage;
    }
    product::finish_products(acc);
    release(held);
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const auto each_run = [&](const auto& store) {
#pragma unroll
      for (int j = 0; j < kWgradColumns / 8; ++j)
        store(j, make_float4(acc[0][4 * j], acc[0][4 * j + 1], acc[0][4 * j + 2], acc[0][4 * j + 3]));
    };
    const WeightPlace place(args, share.tile, consumer, thread);
    if (share.whole(args.cut.steps)) {
      each_run([&](int j, const float4& sums) { place.store(j, sums); });
    } else {
      auto* const partials = reinterpret_cast<float4*>(args.partials + std::int64_t{share.place} * kWgradShare) +
                             consumer * (kWgradColumns / 8) * 128 + thread;
      if (place.all_there())
        each_run([&](int j, const float4& sums) { partials[j * 128] = sums; });
      else
        each_run([&](int j, const float4& sums) {
          if (place.there(j)) partials[j * 128] = sums;
        });
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    convolution_wgrad_ptx_sm90a(const __grid_constant__ CUtensorMap map_dy, const __grid_constant__ CUtensorMap map_x,
                                const __grid_constant__ WgradArguments args) {
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t stages = (ptx::shared_address(raw) + 1023) / 1024 * 1024;
  const std::uint32_t full = stages + args.stages * args.step.stage_bytes();
  const WgradRing at{stages, full, full + args.stages * 8};
  const product::ThreadRole<kConsumers> role;
  const int summers = args.dbias != nullptr || args.dshift != nullptr ? kSummers : 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < args.stages; ++stage) {
      ptx::mbarrier_init(at.full + stage * 8, 1);
      ptx::mbarrier_init(at.empty + stage * 8, static_cast<std::uint32_t>(kConsumers * 4 + summers));
    }
    ptx::fence_mbarrier_init();
  }
  if (role.first_of_producer) {
    ptx::prefetch_tensor_map(&map_dy);
    ptx::prefetch_tensor_map(&map_x);
  }
  __syncthreads();
  product::wait_for_launches();
  if (role.producer) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    const int summer = role.warp - kConsumers * 4 - 1;
    if (role.tma_warp) {
      load_steps(&map_dy, &map_x, args, at);
      product::let_next_launch_start();
    } else if (summer < summers) {
      sum_gradients<T>(args, at, summer, at.empty + args.stages * 8);
    }
  } else {
    ptx::setmaxnreg_inc<kConsumerRegisters>();
    multiply_steps<T>(args, at, role.consumer);
  }
}

// Rows of pixels, of `count` runs of 8 channels, so many a block: every pixel `times` times, its channels filled up
// with zeros to a multiple of 8.
template <class T>
__global__ void __launch_bounds__(kLayThreads)
    convolution_wgrad_lay_out(const T* __restrict__ from, std::int64_t rows, int rows_of_block, int width, int channels,
                              int times, Divider chunks, Divider count, uint4* __restrict__ to) {
  product::wait_for_launches();
  product::let_next_launch_start();
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_of_block;
  for (int j = static_cast<int>(threadIdx.x); j < rows_of_block * count; j += kLayThreads) {
    const int of_block = j / count, i = j - of_block * count;
    const std::int64_t row = first + of_block;
    if (row >= rows) return;
    const int pixel = i / chunks, channel = (i - pixel * chunks) * 8;
    const T* const at = from + (row / times * width + pixel / times) * channels + channel;
    uint4 bits{};
    if (channels % 8 == 0) {
      bits = load_16_bytes(at);
    } else {
      auto* const values = reinterpret_cast<T*>(&bits);
#pragma unroll
      for (int c = 0; c < 8; ++c)
        if (channel + c < channels) values[c] = at[c];
    }
    to[row * count + i] = bits;
  }
}

// Lays out `rows` rows of pixels at `from`; each becomes `times`.
Status lay_out(DType dtype, const void* from, std::int64_t rows, int width, int channels, int times, void* to,
               const LaunchContext& context) {
  const int chunks = (channels + 7) / 8, count = width * times * chunks;
  const int rows_of_block = std::max(1, kLayThreads / count);
  const LaunchShape shape{.grid = static_cast<unsigned>((rows * times + rows_of_block - 1) / rows_of_block),
                          .block = kLayThreads,
                          .programmatic = context.programmatic_launch};
  return with_half_type(dtype, [&]<class T>(T) {
    return launch_kernel("convolution_wgrad_lay_out", convolution_wgrad_lay_out<T>, shape, context.stream,
                         static_cast<const T*>(from), rows * times, rows_of_block, width, channels, times,
                         Divider(chunks), Divider(count), static_cast<uint4*>(to));
  });
}

// Boxes of `pixels`, channels-last images [images, h, w, channels], or of all their pixels in one row.
Status encode_boxes(CUtensorMap& map, DType dtype, const void* pixels, bool flat, const WgradBox& box,
                    std::int64_t images, std::int64_t h, std::int64_t w, std::int64_t channels) {
  if (flat) w *= h * images, h = images = 1;
  return encode_strided_map(map, {dtype,
                                  pixels,
                                  4,
                                  {channels, w, h, images},
                                  {channels, w * channels, h * w * channels},
                                  {kWgradBlock, box.w, box.h, box.images}});
}

}  // namespace

Status launch_wgrad_ptx_sm90a(const Convolution& c, DType dtype, const Wgrad& t, float scale, void* workspace,
                              const LaunchContext& context) {
  const WgradWorkspace places(c, dtype, t.dshift != nullptr, context.device->sm_count);
  const auto at = [&](std::size_t offset) { return static_cast<std::uint8_t*>(workspace) + offset; };
  const Convolution laid = laid_out(c);
  const void *x = t.x, *dy = t.dy;
  if (places.x_bytes > 0) {
    const Status status =
        lay_out(dtype, t.x, std::int64_t{c.images} * c.y.in, c.x.in, c.cin, c.x.repeat, at(places.x), context);
    if (!status.ok()) return status;
    x = at(places.x);
  }
  if (places.dy_bytes > 0) {
    const Status status =
        lay_out(dtype, t.dy, std::int64_t{c.images} * c.y.out, c.x.out, c.cout, 1, at(places.dy), context);
    if (!status.ok()) return status;
    dy = at(places.dy);
  }

  WgradArguments args{};
  args.cut = places.cut;
  args.step = wgrad_step_of(laid, args.cut);
  args.images = c.images, args.cout = c.cout, args.cin = c.cin, args.pad = -c.x.origin;
  args.stages = std::min(kMostStages, kRingBytes / args.step.stage_bytes());
  args.scale = scale;
  args.dw = t.dw, args.dbias = t.dbias, args.dshift = args.step.one_tap() ? nullptr : t.dshift;
  args.box_sums = places.boxes_bytes > 0 ? static_cast<float*>(workspace) : nullptr;
  args.partials = reinterpret_cast<float*>(at(places.partials));
  CUtensorMap map_dy, map_x;
  Status status =
      encode_boxes(map_dy, dtype, dy, args.step.one_tap(), args.step.dy, c.images, c.y.out, c.x.out, laid.cout);
  if (status.ok())
    status = encode_boxes(map_x, dtype, x, args.step.one_tap(), args.step.x, c.images, laid.y.in, laid.x.in, laid.cin);
  if (!status.ok()) return status;
  const LaunchShape shape{.grid = static_cast<unsigned>(args.cut.blocks),
                          .block = kThreads,
                          .shared_bytes = static_cast<std::size_t>(1024 + args.stages * (args.step.stage_bytes() + 16) +
                                                                   kScratchBytes + kSlackBytes),
                          .shared_limit = 227 * 1024,
                          .programmatic = context.programmatic_launch};
  status = with_half_type(dtype, [&]<class T>(T) {
    const Status made = launch_kernel("convolution_wgrad_ptx_sm90a", convolution_wgrad_ptx_sm90a<T>, shape,
                                      context.stream, map_dy, map_x, args);
    if (!made.ok() || (args.cut.shared_tiles() == 0 && args.box_sums == nullptr)) return made;
    return add_shares<T>(args, context);
  });
  if (!status.ok() || t.dshift == nullptr || !args.step.one_tap()) return status;
  Wgrad of_images = t;
  of_images.dbias = nullptr;  // made already
  return launch_channel_sums(c, dtype, of_images, scale, workspace, context);
}

}  // namespace noisefloor::convolution
