// temporal_attention with Hopper's copy engine: persistent warps that share nothing. Each has two buffers for the
// queries, keys and values of one pixel and head: a lane asks TMA for the next unit, in place and by stride,
// then the warp multiplies what has arrived in the other buffer (ldmatrix, mma.sync), with a softmax over complete rows
// in registers. The output takes the place of the queries and leaves by TMA. Frames past the last one arrive as zeros
// and are not written.
//
// Better than tensor_core_sm80: loads in flight need no registers, so that a unit's loads overlap another's arithmetic,
// and no lane computes an address.
//
// Requires: bf16 or fp16, head size a multiple of 8 (16-byte strides), a layout with contiguous heads.
// Bound: memory, at every problem: the compulsory bytes over DRAM bandwidth.
// Numerics: fp32 sums in the tensor core, exponentials by ex2.approx, weights rounded to 16 bits for the second
// product.
// Source: original; PTX ISA, "cp.async.bulk.tensor", "mbarrier", "ldmatrix", "mma".
#include <algorithm>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/ldmatrix.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/temporal_attention/temporal_attention.h"
#include "kernels/temporal_attention/warp_softmax.cuh"

namespace noisefloor::temporal_attention {
namespace {

constexpr int kBoxColumns = 64;
constexpr int kRowBytes = 128;
constexpr int kSwizzleAtom = 1024;
constexpr int kMaxWarps = 8;
constexpr int kSharedBytes = 227 * 1024;  // of an SM that blocks can have; 1 KiB more each is the system's
static_assert(2 * (kSwizzleAtom + kMaxWarps * (2 * 3 * 16 * kRowBytes + 2 * 8) + 1024) <= 228 * 1024,
              "at 16 frames of 64 elements two blocks fit an SM");

struct Maps {
  CUtensorMap q, k, v, out;
};

struct Arguments {
  int units, heads, pixels, frames, boxes;  // boxes of 64 elements per head
  float scale_log2;                         // of the logits, times log2(e)
};

// The address of chunk `chunk` (16 bytes) of row `row` in a swizzled box.
__device__ __forceinline__ std::uint32_t chunk_address(std::uint32_t box, int row, int chunk) {
  return box + static_cast<std::uint32_t>(row * kRowBytes + ((chunk ^ (row % 8)) * 16));
}

// Logits, softmax and output of one unit whose queries, keys and values lie at `queries` and `tensor_bytes` further on
// each. The output replaces the queries.
template <class T, int kSixteens>
__device__ __forceinline__ void compute_unit(const Arguments& args, std::uint32_t queries, std::uint32_t tensor_bytes) {
  constexpr int kBoxBytes = 16 * kSixteens * kRowBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t keys = queries + tensor_bytes, values = keys + tensor_bytes;
  float logits[kSixteens][2 * kSixteens][4] = {};
  for (int box = 0; box < args.boxes; ++box)
#pragma unroll
    for (int step = 0; step < kBoxColumns / 16; ++step) {
      std::uint32_t b[kSixteens][4];
#pragma unroll
      for (int n = 0; n < kSixteens; ++n)
        ptx::ldmatrix_x4(
            b[n], chunk_address(keys + box * kBoxBytes, 16 * n + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < kSixteens; ++m) {
        std::uint32_t a[4];
        ptx::ldmatrix_x4(a, chunk_address(queries + box * kBoxBytes, 16 * m + lane % 16, 2 * step + lane / 16));
#pragma unroll
        for (int n = 0; n < kSixteens; ++n) {
          ptx::mma_m16n8k16<T>(logits[m][2 * n], a, b[n][0], b[n][1]);
          ptx::mma_m16n8k16<T>(logits[m][2 * n + 1], a, b[n][2], b[n][3]);
        }
      }
    }

  float inverse[kSixteens][2];
  std::uint32_t weights[kSixteens][kSixteens][4];
#pragma unroll
  for (int m = 0; m < kSixteens; ++m) {
    softmax_rows<2 * kSixteens>(logits[m], args.frames, args.scale_log2, inverse[m]);
#pragma unroll
    for (int step = 0; step < kSixteens; ++step) weights_fragment<T, 2 * kSixteens>(logits[m], step, weights[m][step]);
  }
  __syncwarp();  // the queries have been read

  for (int box = 0; box < args.boxes; ++box)
#pragma unroll
    for (int n = 0; n < kBoxColumns / 8; n += 2) {
      float sums[kSixteens][2][4] = {};
#pragma unroll
      for (int step = 0; step < kSixteens; ++step) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, chunk_address(values + box * kBoxBytes, 16 * step + lane % 16, n + lane / 16));
#pragma unroll
        for (int m = 0; m < kSixteens; ++m) {
          ptx::mma_m16n8k16<T>(sums[m][0], weights[m][step], b[0], b[1]);
          ptx::mma_m16n8k16<T>(sums[m][1], weights[m][step], b[2], b[3]);
        }
      }
#pragma unroll
      for (int m = 0; m < kSixteens; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int tile = i / 2, half = i % 2;
          const std::uint32_t at =
              chunk_address(queries + box * kBoxBytes, 16 * m + 8 * half + lane / 4, n + tile) + lane % 4 * 4;
          ptx::store_shared(at, pack_pair<T>(sums[m][tile][2 * half] * inverse[m][half],
                                             sums[m][tile][2 * half + 1] * inverse[m][half]));
        }
    }
}

// kSixteens: frames / 16, rounded up.
template <class T, int kSixteens>
__global__ void __launch_bounds__(32 * kMaxWarps)
    temporal_attention_ptx_sm90a(const __grid_constant__ Maps maps, const __grid_constant__ Arguments args) {
  constexpr int kBoxBytes = 16 * kSixteens * kRowBytes;
  extern __shared__ std::uint8_t raw[];
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto tensor_bytes = static_cast<std::uint32_t>(args.boxes * kBoxBytes);
  const std::uint32_t base = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  const std::uint32_t buffers = base + static_cast<std::uint32_t>(warp) * 2 * 3 * tensor_bytes;
  const std::uint32_t barriers =
      base + static_cast<std::uint32_t>(warps) * 2 * 3 * tensor_bytes + static_cast<std::uint32_t>(warp) * 2 * 8;
  if (threadIdx.x == 0)
    for (const CUtensorMap* map : {&maps.q, &maps.k, &maps.v, &maps.out}) ptx::prefetch_tensor_map(map);
  if (threadIdx.x % 32 == 0) {
    ptx::mbarrier_init(barriers, 1);
    ptx::mbarrier_init(barriers + 8, 1);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();

  const auto load = [&](int unit, int buffer) {
    const int head = unit % args.heads, pixel = unit / args.heads % args.pixels,
              video = unit / args.heads / args.pixels;
    const std::uint32_t barrier = barriers + static_cast<std::uint32_t>(buffer) * 8;
    std::uint32_t to = buffers + static_cast<std::uint32_t>(buffer) * 3 * tensor_bytes;
    ptx::mbarrier_arrive_expect_tx(barrier, 3 * tensor_bytes);
    for (const CUtensorMap* map : {&maps.q, &maps.k, &maps.v})
      for (int box = 0; box < args.boxes; ++box, to += kBoxBytes)
        ptx::tma_load_5d(to, map, barrier, box * kBoxColumns, 0, head, pixel, video);
  };

  const int stride = static_cast<int>(gridDim.x) * warps;
  int unit = static_cast<int>(blockIdx.x) * warps + warp;
  if (unit < args.units && ptx::elect_one()) load(unit, 0);
  std::uint32_t parity = 0;
  for (int buffer = 0; unit < args.units; unit += stride, buffer ^= 1) {
    if (unit < args.units - stride && ptx::elect_one()) {
      ptx::tma_store_wait_read<0>();  // the other buffer's output has left
      load(unit + stride, buffer ^ 1);
    }
    __syncwarp();
    ptx::mbarrier_wait(barriers + static_cast<std::uint32_t>(buffer) * 8, parity);
    const std::uint32_t queries = buffers + static_cast<std::uint32_t>(buffer) * 3 * tensor_bytes;
    compute_unit<T, kSixteens>(args, queries, tensor_bytes);
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (ptx::elect_one()) {
      const int head = unit % args.heads, pixel = unit / args.heads % args.pixels;
      for (int box = 0; box < args.boxes; ++box)
        ptx::tma_store_5d(&maps.out, queries + box * kBoxBytes, box * kBoxColumns, 0, head, pixel,
                          unit / args.heads / args.pixels);
      ptx::tma_store_commit();
    }
    if (buffer == 1) parity ^= 1;
  }
  if (ptx::elect_one()) ptx::tma_store_wait_read<0>();
}

// Boxes of `rows` frames of one pixel and head, 64 elements wide.
Status encode_view(CUtensorMap& map, DType dtype, const void* data, const Shape& shape, const attention::View& view,
                   int rows) {
  const void* start = static_cast<const char*>(data) + view.offset * static_cast<std::int64_t>(size_of(dtype));
  return encode_strided_map(map, StridedMap{dtype,
                                            start,
                                            5,
                                            {shape.dim, shape.seq_q, shape.heads, shape.inner, shape.outer},
                                            {view.seq, view.head, view.inner, view.outer},
                                            {kBoxColumns, rows, 1, 1, 1}});
}

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                        const LaunchContext& context) {
  if (const Status status = check_pointers(t); !status.ok()) return status;
  const Shape shape = problem.shape();
  const int rows = problem.frames <= 16 ? 16 : 32;
  Maps maps;
  if (const Status s = encode_view(maps.q, dtype, t.q, shape, shape.q, rows); !s.ok()) return s;
  if (const Status s = encode_view(maps.k, dtype, t.k, shape, shape.k, rows); !s.ok()) return s;
  if (const Status s = encode_view(maps.v, dtype, t.v, shape, shape.v, rows); !s.ok()) return s;
  if (const Status s = encode_view(maps.out, dtype, t.out, shape, shape.out, rows); !s.ok()) return s;

  const int boxes = static_cast<int>((problem.dim + kBoxColumns - 1) / kBoxColumns);
  const Arguments arguments{static_cast<int>(problem.units()),
                            static_cast<int>(problem.heads),
                            static_cast<int>(problem.hw),
                            static_cast<int>(problem.frames),
                            boxes,
                            shape.scale * attention::kLog2E};
  const int warp_bytes = 2 * 3 * boxes * rows * kRowBytes + 2 * 8;
  // Few units go one by one to all SMs: warps of one block would share its copy engine.
  const int sm_count = context.device->sm_count;
  const std::int64_t units_per_sm = (problem.units() + sm_count - 1) / sm_count;
  const int most_warps = std::min(kMaxWarps, (kSharedBytes - kSwizzleAtom) / warp_bytes);
  const int warps = static_cast<int>(std::min<std::int64_t>(most_warps, units_per_sm));
  const int block_bytes = kSwizzleAtom + warps * warp_bytes;
  const std::int64_t per_sm = std::max(1, (kSharedBytes + 1024) / (block_bytes + 1024));
  const std::int64_t blocks = std::min((problem.units() + warps - 1) / warps, per_sm * sm_count);
  return with_half_type(dtype, [&]<class T>(T) {
    const auto kernel = rows == 16 ? temporal_attention_ptx_sm90a<T, 1> : temporal_attention_ptx_sm90a<T, 2>;
    const LaunchShape launch{.grid = static_cast<unsigned>(blocks),
                             .block = static_cast<unsigned>(32 * warps),
                             .shared_bytes = static_cast<std::size_t>(block_bytes),
                             .shared_limit = kSharedBytes,
                             .programmatic = context.programmatic_launch};
    return launch_kernel("temporal_attention_ptx_sm90a", kernel, launch, context.stream, maps, arguments);
  });
}

}  // namespace noisefloor::temporal_attention
