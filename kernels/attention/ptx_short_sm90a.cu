// attention past few keys (at most 80: the 77 of a text, the 64 of an 8x8 image) with Hopper's own instructions: all
// keys and values are one tile, so the softmax is over complete rows and nothing is rescaled. A block is one warpgroup
// with 64 queries of one head. One thread loads queries and keys by TMA, and values on a barrier of their own, so that
// they arrive under the first product and the softmax. A single key has the weight 1: then the output is its value, and
// the kernel a broadcast that reads values only (unless the log-sum-exp is wanted).
//
// Better than ptx_sm90a there: no producer to set up, no ring, and several small blocks share an SM, so that their
// loads, products and stores overlap.
//
// Requires: bf16 or fp16, at most 80 keys, head size a multiple of 8, contiguous heads, fewer than 2^31 blocks.
// Bound: memory at 4096 queries and 77 keys of 64: queries in, outputs out; expected limiter: latency.
// Numerics, source: as ptx_sm90a.cu.
#include "kernels/attention/attention.h"
#include "kernels/attention/ptx_sm90a_maps.cuh"
#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"

namespace noisefloor::attention {
namespace {

constexpr int kThreads = 128;
constexpr int kKeys = static_cast<int>(kShortKeys);
constexpr int kQueryBox = 64 * kBoxRowBytes, kKeyBox = kKeys * kBoxRowBytes;

// 28 KiB at head size 64, 84 KiB at 160, 112 KiB at 256.
template <int kDim>
constexpr int kSharedBytes = kSwizzleAtom + boxes_of(kDim) * (kQueryBox + 2 * kKeyBox) + 2 * 8;

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads)
    attention_ptx_short_sm90a(const __grid_constant__ Maps maps, const __grid_constant__ Arguments args) {
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t queries = (ptx::shared_address(raw) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  const std::uint32_t keys = queries + boxes_of(kDim) * kQueryBox;
  const std::uint32_t values = keys + boxes_of(kDim) * kKeyBox;
  const std::uint32_t keys_barrier = values + boxes_of(kDim) * kKeyBox, values_barrier = keys_barrier + 8;
  const int blocks = (args.seq_q + 63) / 64;
  const int first = static_cast<int>(blockIdx.x) % blocks * 64;
  const int head = static_cast<int>(blockIdx.x) / blocks % args.heads;
  const int batch = static_cast<int>(blockIdx.x) / blocks / args.heads;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(keys_barrier, 1);
    ptx::mbarrier_init(values_barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  if (threadIdx.x / 32 == 0 && ptx::elect_one()) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    ptx::mbarrier_arrive_expect_tx(keys_barrier, boxes_of(kDim) * (kQueryBox + kKeyBox));
#pragma unroll
    for (int box = 0; box < boxes_of(kDim); ++box) {
      ptx::tma_load_4d(queries + box * kQueryBox, &maps.q, keys_barrier, box * kBoxColumns, head, first, batch);
      ptx::tma_load_4d(keys + box * kKeyBox, &maps.k, keys_barrier, box * kBoxColumns, head, 0, batch);
    }
    ptx::mbarrier_arrive_expect_tx(values_barrier, boxes_of(kDim) * kKeyBox);
#pragma unroll
    for (int box = 0; box < boxes_of(kDim); ++box)
      ptx::tma_load_4d(values + box * kKeyBox, &maps.v, values_barrier, box * kBoxColumns, head, 0, batch);
  }
  __syncthreads();
  ptx::griddepcontrol_wait();  // the stores below

  float s[kKeys / 2], o[kDim / 2];
  std::uint32_t p[kKeys / 16][4];
  RowState state;
  ptx::mbarrier_wait(keys_barrier, 0);
  ptx::wgmma_fence();
  issue_logits<T, kDim, kKeys>(s, queries, kQueryBox, keys);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  pin(s);
  first_softmax(s, args.seq_kv, args.scale_log2, state);
  pack_weights<T>(s, p);
  ptx::mbarrier_wait(values_barrier, 0);
  ptx::wgmma_fence();
  issue_values<T, kDim, kKeys>(o, p, values, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  pin(o);
  finish<T, kDim>(o, state, args, &maps.out, queries, kQueryBox, first, head, batch, 1);
}

// out[b, i, h, :] = v[b, 0, h, :]: a thread keeps 16 bytes of an image's values and writes them for kQueries queries.
constexpr int kBroadcastThreads = 256, kBroadcastQueries = 16;

struct Broadcast {
  const uint4* values;
  std::int64_t value_batch, value_head;  // strides, in 16-byte chunks; values of heads are that far apart
  uint4* out;
  int head_chunks, token_chunks, seq_q, blocks;
};

__global__ void __launch_bounds__(kBroadcastThreads) attention_broadcast(const __grid_constant__ Broadcast b) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t batch = blockIdx.x / static_cast<unsigned>(b.blocks);
  const int first = static_cast<int>(blockIdx.x % static_cast<unsigned>(b.blocks)) * kBroadcastQueries;
  const int last = min(first + kBroadcastQueries, b.seq_q);
  for (int chunk = static_cast<int>(threadIdx.x); chunk < b.token_chunks; chunk += kBroadcastThreads) {
    const uint4 value =
        __ldg(b.values + batch * b.value_batch + chunk / b.head_chunks * b.value_head + chunk % b.head_chunks);
    for (int query = first; query < last; ++query)
      store_16_bytes<CacheHint::once>(b.out + (batch * b.seq_q + query) * b.token_chunks + chunk, value);
  }
}

Status launch_broadcast(const Problem& problem, const Tensors& t, const LaunchContext& context) {
  constexpr std::int64_t kChunk = 8;  // elements in 16 bytes
  const View view = problem.shape().v;
  const int blocks = static_cast<int>((problem.seq_q + kBroadcastQueries - 1) / kBroadcastQueries);
  const Broadcast arguments{static_cast<const uint4*>(t.v) + view.offset / kChunk,
                            view.outer / kChunk,
                            view.head / kChunk,
                            static_cast<uint4*>(t.out),
                            static_cast<int>(problem.dim / kChunk),
                            static_cast<int>(problem.heads * problem.dim / kChunk),
                            static_cast<int>(problem.seq_q),
                            blocks};
  const LaunchShape launch{.grid = static_cast<unsigned>(problem.batch * blocks),
                           .block = kBroadcastThreads,
                           .programmatic = context.programmatic_launch};
  return launch_kernel("attention_broadcast", attention_broadcast, launch, context.stream, arguments);
}

template <class T, int kDim>
Status launch_dim(const Problem& problem, DType dtype, const Tensors& t, const LaunchContext& context) {
  const std::int64_t blocks = problem.batch * problem.heads * ((problem.seq_q + 63) / 64);
  return launch_mapped("attention_ptx_short_sm90a", attention_ptx_short_sm90a<T, kDim>, 64, kKeys, kThreads,
                       kSharedBytes<kDim>, problem, dtype, t, context, blocks);
}

}  // namespace

Status launch_ptx_short_sm90a(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                              const LaunchContext& context) {
  if (const Status status = check_pointers(problem, t); !status.ok()) return status;
  if (problem.seq_kv == 1 && !problem.lse) return launch_broadcast(problem, t, context);
  return with_half_type(dtype, [&]<class T>(T) {
    if (problem.dim <= 40) return launch_dim<T, 40>(problem, dtype, t, context);
    if (problem.dim <= 64) return launch_dim<T, 64>(problem, dtype, t, context);
    if (problem.dim <= 80) return launch_dim<T, 80>(problem, dtype, t, context);
    if (problem.dim <= 128) return launch_dim<T, 128>(problem, dtype, t, context);
    if (problem.dim <= 160) return launch_dim<T, 160>(problem, dtype, t, context);
    return launch_dim<T, 256>(problem, dtype, t, context);
  });
}

}  // namespace noisefloor::attention
