// How a consumer reads the stages of a ring. Little may stand between one step's products and the next's: those of 64 x
// 64 sums take 128 cycles, and a block of batch 1 has an SM to itself. So what a step needs of its stage is stepped
// along rather than worked out from a number, and whether the next stage is full is asked while products run. Device
// code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::product {

template <int kStageBytes>
class ConsumerPipeline {
 public:
  // Of the ring at `stages_at` from where `ring` stands.
  template <int kConsumers>
  __device__ __forceinline__ ConsumerPipeline(const WarpRole<kConsumers>& role, const Barriers& barriers,
                                              std::uint32_t stages_at, const ptx::Ring& ring, int stages)
      : first_(barriers.full),
        last_(barriers.full + (stages - 1) * 8),
        first_tile_(stages_at >> 4),
        full_(barriers.full + ring.stage * 8),
        tile_((stages_at >> 4) + ring.stage * (kStageBytes / 16)),
        parity_(ring.parity),
        to_empty_(stages * 8),
        arrives_here_(role.sharing == 1 && role.lane == 0),
        arrives_there_(role.sharing > 1 && role.lane < role.givers()) {
    if (arrives_there_)
      to_empty_ += ptx::map_to_rank(first_, static_cast<std::uint32_t>(role.giver(role.lane))) - first_;
    full_now_ = ptx::mbarrier_test(full_, parity_);
  }

  // The stage's address / 16, as descriptors have it, once it is full.
  __device__ __forceinline__ std::uint32_t await_tile() const {
    if (!full_now_) ptx::mbarrier_wait(full_, parity_);
    return tile_;
  }

  // Behind the commit of the stage's products: goes to the next, and hands back the one before it when its are done.
  template <bool kFirst>
  __device__ __forceinline__ void advance() {
    const std::uint32_t before = held_;
    held_ = full_;
    const bool wraps = full_ == last_;
    full_ = wraps ? first_ : full_ + 8;
    tile_ = wraps ? first_tile_ : tile_ + kStageBytes / 16;
    parity_ ^= wraps ? 1u : 0u;
    full_now_ = ptx::mbarrier_test(full_, parity_);
    ptx::wgmma_wait<1>();
    if constexpr (!kFirst) release(before);
  }

  // The last stage, which is still held. `ring` goes to where this stands.
  __device__ __forceinline__ int leave(ptx::Ring& ring) const {
    ring.stage = static_cast<int>(full_ - first_) / 8;
    ring.parity = parity_;
    return static_cast<int>(held_ - first_) / 8;
  }

 private:
  // As Barriers::release.
  __device__ __forceinline__ void release(std::uint32_t full) const {
    if (arrives_here_) ptx::mbarrier_arrive(full + to_empty_);
    if (arrives_there_) ptx::mbarrier_arrive_cluster_relaxed(full + to_empty_);
  }

  std::uint32_t first_, last_, first_tile_;  // the barriers `full` of the first stage and the last
  std::uint32_t full_, tile_, parity_;
  std::uint32_t to_empty_;  // from a stage's `full` to its `empty` in the block that this lane tells
  std::uint32_t held_ = 0;  // the `full` of the stage before, whose products may still run
  bool arrives_here_, arrives_there_;
  bool full_now_;
};

// run_to(end) runs a consumer's steps up to `end`, the first of them has run; behind `opens` of `steps` the DSMEM
// buffer opens. -1: there is none.
template <class RunTo>
__device__ __forceinline__ void run_steps(int opens, int steps, const RunTo& run_to) {
  for (int end = opens >= 0 && opens < steps ? opens + 1 : steps;; end = steps) {
    run_to(end);
    if (end == opens + 1) open_dsmem();
    if (end == steps) return;
  }
}

// The descriptor of products `i` of a step, of 16 k each, of an operand at address / 16. Above bit 14 that has the
// block's rank in its cluster, where descriptors have the leading byte offset, which only column boxes use.
// kColumns: of the boxes of columns; 0: there are none.
template <int kColumns>
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t sixteenths, int i) {
  const std::uint32_t rows = (sixteenths & 0x3fff) + i * (16 * kColumns * 2 / 16);
  if constexpr (kColumns == 64)
    return ptx::wgmma_descriptor_n_major_128b_of(rows, box_bytes(64));
  else if constexpr (kColumns == 32)
    return ptx::wgmma_descriptor_n_major_64b_of(rows, box_bytes(32));
  else
    return ptx::wgmma_descriptor_128b_of(sixteenths + 2 * i);
}

// A step has no other products.
struct NothingBeside {
  __device__ __forceinline__ void operator()(std::uint32_t, bool) const {}
};

// A consumer's sums over `steps` (one or more) stages of kStageBytes, whose rows of A lie first_a bytes into a stage
// and those of B kABytes: acc[i] has 64 rows. Returns the last stage, which is not released yet; its products may still
// run (finish_products). Behind `opens` steps it opens its DSMEM buffer; -1: it has none. beside(a, accumulate) adds
// products of the stage's A (its address / 16) of its own; each step's but the first accumulate.
template <class T, int kBlockN, int kStageBytes, int kABytes, Majors kMajors = Majors{}, int kSubtiles, int kConsumers,
          class Beside = NothingBeside>
__device__ __forceinline__ int multiply(const WarpRole<kConsumers>& role, const Barriers& barriers,
                                        std::uint32_t stages_at, int first_a, ptx::Ring& ring, int stages, int steps,
                                        int opens, float (&acc)[kSubtiles][kBlockN / 2], const Beside& beside = {}) {
  static_assert(!kMajors.a || kSubtiles == 1, "of a consumer's one block of 64 rows");
  ConsumerPipeline<kStageBytes> pipeline(role, barriers, stages_at, ring, stages);
  const std::uint32_t a_in_tile = static_cast<std::uint32_t>(first_a) / 16;
  const auto run = [&](auto is_first) {
    const std::uint32_t tile = pipeline.await_tile();
    ptx::wgmma_fence();
#pragma unroll
    for (int sub = 0; sub < kSubtiles; ++sub) {
#pragma unroll
      for (int i = 0; i < kBlockK / 16; ++i)
        ptx::Wgmma<T, kBlockN, kMajors.b, kMajors.a>::run(
            acc[sub], descriptor<kMajors.a_box()>(tile + a_in_tile + sub * (64 * kRowBytes / 16), i),
            descriptor<kMajors.b_box()>(tile + kABytes / 16, i), !is_first || i > 0);
    }
    beside(tile + a_in_tile, !is_first);
    ptx::wgmma_commit();
    pipeline.template advance<is_first>();
  };
  run(std::true_type());
  int step = 1;
  run_steps(opens, steps, [&](int end) {
#pragma unroll 1
    for (; step < end; ++step) run(std::false_type());
  });
  return pipeline.leave(ring);
}

// The same of a whole tile, all stages released. In ping-pong consumers take turns on tiles, of which a block's first
// waits for none and its last passes none on; else they share each, 64 rows a consumer.
template <class T, int kBlockN, int kStageBytes, int kABytes, bool kPingpong, Majors kMajors = Majors{}, int kSubtiles,
          int kConsumers, class Beside = NothingBeside>
__device__ __forceinline__ void multiply_tile(const WarpRole<kConsumers>& role, const Barriers& barriers,
                                              std::uint32_t stages_at, ptx::Ring& ring, int stages, int steps,
                                              int opens, bool is_first, bool is_last,
                                              float (&acc)[kSubtiles][kBlockN / 2], const Beside& beside = {}) {
  if (kPingpong && !is_first) await_order(role.consumer);
  const int last = multiply<T, kBlockN, kStageBytes, kABytes, kMajors>(role, barriers, stages_at,
                                                                       kPingpong ? 0 : role.consumer * 64 * kRowBytes,
                                                                       ring, stages, steps, opens, acc, beside);
  if (kPingpong && !is_last) pass_order(role.consumer);
  finish_products(acc);
  barriers.release(role, last);
}

}  // namespace noisefloor::product
