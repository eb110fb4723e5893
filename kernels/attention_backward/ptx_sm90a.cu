// attention_backward with Hopper's own instructions, in the passes of tensor_core_sm80: a block owns queries (for
// dQ) or keys (for dK and dV) of a head and walks the other sequence. A producer keeps blocks of it in flight (TMA,
// mbarriers). One or two consumer warpgroups own 64 rows each; their logits, and the weights' gradients, are in
// registers in the shape of the A operand of the last products, whose B operand is the same block read along its other
// dimension. Products of a step run while the exponentials of the next are computed: a step issues the next logits
// first.
//
// Better than tensor_core_sm80: wgmma has twice the rate of mma.sync and reads both operands from shared memory, no
// thread computes an address or waits for a copy, and exponentials overlap with products.
// Requires: bf16 or fp16, head size a multiple of 8 up to 256, contiguous heads.
// Bound: tensor pipe at 1024 keys of 64, where 7 products stand for 5; expected limiter: exponentials, which
// overlap with products in part; at heads of 128 the clock under load.
// Numerics: as tensor_core_sm80; deterministic. The pass of the queries starts while that of the keys ends
// (programmatic dependent launch), and waits for it before it ends itself. Source: original, after Dao,
// "FlashAttention-2" (arXiv:2307.08691) and Shah et al., "FlashAttention-3" (arXiv:2407.08608); PTX ISA.
#include "kernels/attention/ptx_sm90a_maps.cuh"
#include "kernels/attention_backward/ptx_sm90a_consumer.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/setmaxnreg.cuh"

namespace noisefloor::attention_backward {
namespace {

using attention::View;

struct PassMaps {
  CUtensorMap own[2], other[2];  // queries and dout, or keys and values
  CUtensorMap out[2];            // of what belongs to the own rows
};

// What a block owns.
struct Owned {
  int first, head, batch;
};

template <class Tile>
__device__ __forceinline__ void produce(const Places<Tile>& at, const PassMaps& maps, const PassArguments& args,
                                        const Owned& owned) {
  constexpr int kOwns = Tile::kGradients ? 2 : 1;
  ptx::mbarrier_arrive_expect_tx(at.own_barrier, kOwns * Tile::kOwnBytes);
#pragma unroll
  for (int i = 0; i < kOwns * boxes_of(Tile::kDim); ++i)
    ptx::tma_load_4d(at.own + i * Tile::kOwnBox, &maps.own[i / boxes_of(Tile::kDim)], at.own_barrier,
                     i % boxes_of(Tile::kDim) * kBoxColumns, owned.head, owned.first, owned.batch);
  const float4* const terms = args.terms + (std::int64_t{owned.batch} * args.heads + owned.head) * args.head_terms;
  int stage = 0;
  std::uint32_t parity = 1;
  const int last = (args.other_length - 1) / Tile::kBlock;
  for (int step = 0; step <= last; ++step) {
    const int row = (step == 0 ? last : step - 1) * Tile::kBlock;  // the last block first: it alone may be ragged
    const std::uint32_t full = at.full + stage * 8;
    ptx::mbarrier_wait(at.empty + stage * 8, parity);
    ptx::mbarrier_arrive_expect_tx(full, Tile::kStageBytes);
#pragma unroll
    for (int i = 0; i < 2 * boxes_of(Tile::kDim); ++i)
      ptx::tma_load_4d(at.block(stage, 0) + i * (Tile::kBlock * kBoxRowBytes), &maps.other[i / boxes_of(Tile::kDim)],
                       full, i % boxes_of(Tile::kDim) * kBoxColumns, owned.head, row, owned.batch);
    if constexpr (Tile::kByKeys)
      ptx::bulk_load(at.terms + stage * Tile::kTermBytes, terms + row / 2, Tile::kTermBytes, full);
    if (++stage == Tile::kStages) stage = 0, parity ^= 1;
  }
}

template <class T, class Tile>
__device__ __forceinline__ void consume(const std::uint8_t* raw, const Places<Tile>& at, const PassMaps& maps,
                                        const PassArguments& args, const Owned& owned, int consumer) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int first_row = owned.first + consumer * 64;
  Consumer<T, Tile> state{at, args, at.own + static_cast<std::uint32_t>(consumer * 64 * kBoxRowBytes)};
  if constexpr (Tile::kByKeys) {
    state.terms = reinterpret_cast<const float2*>(raw + (at.terms - ptx::shared_address(raw))) + lane % 4 * 2;
  } else {
    const float4* const terms = args.terms + (std::int64_t{owned.batch} * args.heads + owned.head) * args.head_terms;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 16 * warp + 8 * i + lane / 4;
      const float* const pair = reinterpret_cast<const float*>(terms + row / 2) + row % 2;
      state.rows[0][i] = __ldcg(pair);
      state.rows[1][i] = __ldcg(pair + 2);
    }
  }
  const int steps = (args.other_length + Tile::kBlock - 1) / Tile::kBlock;
  state.begin(args.other_length - (steps - 1) * Tile::kBlock, steps == 1);
  for (int step = 1; step < steps; ++step) state.advance(step, step + 1 == steps);
  state.end(steps > 1);

  const std::uint32_t barrier = 1 + static_cast<std::uint32_t>(consumer);
  if constexpr (Tile::kGradients)
#pragma unroll
    for (float& sum : state.sums) sum *= args.scale;
  attention::store_rows<T, Tile::kDim>(state.sums, &maps.out[0], state.own, Tile::kOwnBox, 0, first_row, owned.head,
                                       owned.batch, barrier);
  if constexpr (Tile::kTwo)
    attention::store_rows<T, Tile::kDim>(state.value_sums, &maps.out[1], state.own + Tile::kOwnBytes, Tile::kOwnBox, 0,
                                         first_row, owned.head, owned.batch, barrier);
}

template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    attention_backward_ptx_sm90a(const __grid_constant__ PassMaps maps, const __grid_constant__ PassArguments args) {
  constexpr int kStages = Tile::kStages, kConsumers = Tile::kConsumers, kOwnRows = Tile::kOwnRows;
  extern __shared__ std::uint8_t raw[];
  const Places<Tile> at(raw);
  const int blocks = (args.own_length + kOwnRows - 1) / kOwnRows, block = static_cast<int>(blockIdx.x);
  const Owned owned{block % blocks * kOwnRows, block / blocks % args.heads, block / blocks / args.heads};
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), consumer = warp / 4;

  const int active = min(kConsumers, (args.own_length - owned.first + 63) / 64);  // consumers with rows
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(at.own_barrier, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(at.full + stage * 8, 1);
      ptx::mbarrier_init(at.empty + stage * 8, static_cast<std::uint32_t>(active * 4));  // one arrival per warp
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if constexpr (Tile::kByKeys) {  // the queries' pass begins behind a launch that has waited already
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }

  if (consumer == kConsumers) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp == kConsumers * 4 && ptx::elect_one()) produce(at, maps, args, owned);
  } else if (consumer < active) {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    consume<T, Tile>(raw, at, maps, args, owned, consumer);
  }
  if constexpr (!Tile::kByKeys) ptx::griddepcontrol_wait();  // for the keys' pass: who waits for this one has both
}

template <class T, class Tile>
Status launch_pass_sm90a(const Shape& shape, DType dtype, const Tensors& t, const float4* terms,
                         const LaunchContext& context) {
  constexpr bool kByKeys = Tile::kByKeys, kValues = Tile::kPass == Pass::values;
  const auto encode = [&](CUtensorMap& map, bool keys, const void* data, const View& view, int rows) {
    return attention::encode_view(map, dtype, data, shape, view, keys ? shape.seq_kv : shape.seq_q, rows);
  };
  const auto encode_side = [&](CUtensorMap(&side)[2], bool keys, int rows) {
    const Status status = encode(side[0], keys, keys ? t.k : t.q, keys ? shape.k : shape.q, rows);
    return status.ok() ? encode(side[1], keys, keys ? t.v : t.dout, keys ? shape.v : shape.out, rows) : status;
  };
  PassMaps maps;
  Status status = encode_side(maps.own, kByKeys, Tile::kOwnRows);
  if (status.ok()) status = encode_side(maps.other, !kByKeys, Tile::kBlock);
  if (status.ok())
    status = kValues ? encode(maps.out[0], true, t.dv, shape.v, 64)
                     : encode(maps.out[0], kByKeys, kByKeys ? t.dk : t.dq, kByKeys ? shape.k : shape.q, 64);
  if (status.ok()) status = encode(maps.out[1], true, t.dv, shape.v, 64);
  if (!status.ok()) return status;

  const auto own_length = static_cast<int>(kByKeys ? shape.seq_kv : shape.seq_q);
  const std::int64_t blocks = shape.outer * shape.heads * ((own_length + Tile::kOwnRows - 1) / Tile::kOwnRows);
  const PassArguments arguments{.heads = static_cast<int>(shape.heads),
                                .own_length = own_length,
                                .other_length = static_cast<int>(kByKeys ? shape.seq_q : shape.seq_kv),
                                .head_terms = term_rows(shape.seq_q) / 2,
                                .scale = shape.scale,
                                .scale_log2 = shape.scale * attention::kLog2E,
                                .terms = terms};
  return launch_kernel("attention_backward_ptx_sm90a", attention_backward_ptx_sm90a<T, Tile>,
                       {.grid = static_cast<unsigned>(blocks),
                        .block = Tile::kThreads,
                        .shared_bytes = Tile::kBytes,
                        .shared_limit = Tile::kBytes,
                        .programmatic = true},
                       context.stream, maps, arguments);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& t, const Scratch& scratch,
                        const LaunchContext& context) {
  return launch_passes<32, 64, 128, 256>(
      problem, dtype, t, scratch, context, [&]<class T, int kDim, Pass kPass>(const Shape& shape, const float4* terms) {
        return launch_pass_sm90a<T, Sm90aTile<kDim, kPass>>(shape, dtype, t, terms, context);
      });
}

}  // namespace noisefloor::attention_backward
