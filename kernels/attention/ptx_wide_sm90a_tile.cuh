// What a consumer of ptx_sm90a_wide does: its half of the logits, its half of the weights, its half of the outputs'
// columns. Device code only.
//
// A block's two consumers (warpgroups) share 64 queries. Of a tile of 128 keys each multiplies the queries with 64
// keys, and takes the exponentials of those logits under the maximum of both; then each multiplies all 128 weights,
// from shared memory, with 256 columns of the values. Threads hold accumulators as ptx_sm90a_tile.cuh says.
//
// Shared memory, in bytes from the aligned start. Boxes have rows of 128 bytes under TMA's 128-byte swizzle:
//
//   queries  8 boxes of 64 rows (box b: columns 64 b to 64 b + 63)                                    65,536
//   pieces   8 stages of 16,384: box p of 128 keys (consumer c: rows 64 c on, 8,192 bytes behind), or
//            16 p to 16 p + 15 of 128 values in 8 boxes of 16 rows (consumer c: boxes 4 c on, likewise)  131,072
//   weights  2 tiles, in turns, of 2 boxes of 64 rows and 64 keys (box c: of consumer c)               32,768
//   rows     of each consumer, 64 floats: the maxima of its logits; at the end sums                       512
//   barriers                                                                                              136
#pragma once

#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/attention/schedule.h"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::attention::wide {

inline constexpr int kRows = static_cast<int>(kWideRows), kKeys = static_cast<int>(kWideKeys);
inline constexpr int kPair = static_cast<int>(kWidePair);
inline constexpr int kDim = 512, kConsumers = 2;
inline constexpr int kColumns = kDim / kConsumers, kOwnKeys = kKeys / kConsumers;  // of a consumer
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
inline constexpr int kThreads = 128 * (kConsumers + 1);
static_assert(128 * (kProducerRegisters + kConsumers * kConsumerRegisters) <= 65536 / kThreads / 8 * 8 * kThreads);
static_assert(kColumns / 2 + kOwnKeys / 2 + 32 < kConsumerRegisters, "sums, logits, and what else there is");

// A step of either product takes one piece; the keys of a tile are as many pieces as there are stages, and so are its
// values, so that piece p is always in stage p.
inline constexpr int kPieces = 8, kPieceBytes = 16384;
inline constexpr int kPieceValues = kKeys / kPieces;
inline constexpr int kHalfPiece = kPieceBytes / 2;  // of a consumer; also what each block of the pair loads for both
inline constexpr int kInFlight = 4;                 // pieces that may still be multiplied when the next is waited for
static_assert(kPieces == boxes_of(kDim) && kPieceBytes == kKeys * kBoxRowBytes);
static_assert(kPieceBytes == kPieceValues * kBoxRowBytes * boxes_of(kDim) && kPieceValues == 16);

inline constexpr int kQueryBox = kRows * kBoxRowBytes, kValueBox = kPieceValues * kBoxRowBytes;
inline constexpr int kQueryBytes = kQueryBox * boxes_of(kDim);
inline constexpr int kWeightBox = kRows * kBoxRowBytes, kWeightBytes = kWeightBox * kConsumers;
inline constexpr int kRowBytes = kConsumers * kRows * 4;
inline constexpr int kBarrierBytes = (1 + 2 * kPieces) * 8;
inline constexpr int kSharedBytes =
    kSwizzleAtom + kQueryBytes + kPieces * kPieceBytes + 2 * kWeightBytes + kRowBytes + kBarrierBytes;
static_assert(kSharedBytes <= 227 * 1024, "an SM's shared memory");

// Order, which makes each reuse safe. Consumers meet at kRowsBarrier with their maxima written, and at kWeightsBarrier
// with their weights written and the other's maxima read. Weights of tile i lie where those of i - 2 did: both
// consumers' products of these ended before kRowsBarrier of tile i. A piece is handed back before the one behind it in
// its stage is waited for, by every consumer of the pair, so that none of them can wait for ever.
//
// Hardware barriers: both consumers', and behind them each one's own.
inline constexpr std::uint32_t kRowsBarrier = 1, kWeightsBarrier = 2, kOwnBarrier = 3;
__device__ __forceinline__ void meet_consumers(std::uint32_t barrier) {
  ptx::named_barrier_sync(barrier, kConsumers * 128);
}

// Addresses in shared memory.
struct Places {
  std::uint32_t queries, pieces, weights, rows, query_barrier, full, empty;

  __device__ __forceinline__ explicit Places(std::uint32_t raw)
      : queries((raw + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom),
        pieces(queries + kQueryBytes),
        weights(pieces + kPieces * kPieceBytes),
        rows(weights + 2 * kWeightBytes),
        query_barrier(rows + kRowBytes),
        full(query_barrier + 8),
        empty(full + kPieces * 8) {}
};

// A consumer's hold on the ring: waits for pieces, and hands them back in both blocks of the pair, whose producers each
// write a half of every stage. An arrival is a warp's: its products have read the piece.
struct Pieces {
  std::uint32_t full, empty;  // `empty` in the block of this lane's number
  bool hands_back;

  __device__ __forceinline__ explicit Pieces(const Places& places)
      : full(places.full),
        empty(ptx::map_to_rank(places.empty, threadIdx.x % kPair)),
        hands_back(threadIdx.x % 32 < kPair) {}
  __device__ __forceinline__ void await(int piece, std::uint32_t parity) const {
    ptx::mbarrier_wait(full + static_cast<std::uint32_t>(piece * 8), parity);
  }
  __device__ __forceinline__ void release(int piece) const {
    if (hands_back) ptx::mbarrier_arrive_cluster_relaxed(empty + static_cast<std::uint32_t>(piece * 8));
  }
  // Behind the issue of a piece: the one that is no longer in flight goes back. `before`: whether the product before
  // this one was not drained.
  __device__ __forceinline__ void step(int piece, bool before) const {
    ptx::wgmma_wait<kInFlight>();
    if (piece >= kInFlight)
      release(piece - kInFlight);
    else if (before)
      release(piece - kInFlight + kPieces);
  }
  // Behind the last piece: all but kLeft are no longer in flight, and the one that was waited for goes back.
  template <int kLeft>
  __device__ __forceinline__ void settle() const {
    static_assert(kLeft < kInFlight);
    ptx::wgmma_wait<kLeft>();
    release(kPieces - 1 - kLeft);
  }
  __device__ __forceinline__ void drain() const {
    static_assert(kInFlight == 4);
    settle<3>(), settle<2>(), settle<1>(), settle<0>();
  }
};

// A shared address / 16, as descriptors have it: without what the addresses of a cluster's later blocks have above 18
// bits, which would fall into the leading byte offset. The same in all threads of a warp, and seen to be. Worked out
// anew at each call: else the compiler keeps dozens of descriptors in registers, across the loop over tiles.
__device__ __forceinline__ std::uint32_t sixteenths_of(std::uint32_t address) {
  std::uint32_t sixteenths = address % (1u << 18) / 16;
  asm volatile("" : "+r"(sixteenths));
  return __shfl_sync(0xffffffffu, sixteenths, 0);
}

// s[64, 64] = Q K^T of this consumer's keys: issued piece by piece, behind a product that was drained.
template <class T>
__device__ __forceinline__ void issue_logits(float (&s)[kOwnKeys / 2], const Places& places, int consumer,
                                             const Pieces& pieces, std::uint32_t parity) {
  const std::uint32_t queries = sixteenths_of(places.queries);
  const std::uint32_t keys = sixteenths_of(places.pieces + consumer * kHalfPiece);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    pieces.await(piece, parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBoxColumns / 16; ++step)  // 32 bytes on
      ptx::Wgmma<T, kOwnKeys>::run(s, ptx::wgmma_descriptor_128b_of(queries + piece * (kQueryBox / 16) + 2 * step),
                                   ptx::wgmma_descriptor_128b_of(keys + piece * (kPieceBytes / 16) + 2 * step),
                                   piece > 0 || step > 0);
    ptx::wgmma_commit();
    pieces.step(piece, false);
  }
}

// o[64, 256] (+)= P V, P the weights at `weights` and V this consumer's columns: issued piece by piece. `before`:
// behind logits that may be in flight.
template <class T>
__device__ __forceinline__ void issue_values(float (&o)[kColumns / 2], const Places& places, std::uint32_t weights,
                                             int consumer, const Pieces& pieces, std::uint32_t parity, bool add,
                                             bool before) {
  const std::uint32_t rows = sixteenths_of(weights);
  const std::uint32_t values = sixteenths_of(places.pieces + consumer * kHalfPiece);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    pieces.await(piece, parity);
    ptx::wgmma_fence();
    const std::uint64_t a =
        ptx::wgmma_descriptor_128b_of(rows + piece / 4 * (kWeightBox / 16) + piece % 4 * 2);  // 64 keys a box
    const std::uint64_t b = ptx::wgmma_descriptor_n_major_128b_of(values + piece * (kPieceBytes / 16), kValueBox);
    ptx::Wgmma<T, kColumns, true>::run(o, a, b, add || piece > 0);
    ptx::wgmma_commit();
    pieces.step(piece, before);
  }
}

// This consumer's weights of a tile, of `s`, go to its box of `weights`: exponentials under the largest logit so far of
// both consumers' keys. Returns in `rescale` what sums under the former largest are to be multiplied with. But for the
// first, the last pieces of values are in flight, and two go back here, about when they end.
template <class T, bool kFirst>
__device__ __forceinline__ void softmax(float (&s)[kOwnKeys / 2], const Places& places, const Pieces& pieces,
                                        std::uint32_t weights, int consumer, float scale_log2, RowState& state,
                                        float (&rescale)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const std::uint32_t first_row = static_cast<std::uint32_t>(16 * warp + lane / 4) * 4;
  const std::uint32_t own = places.rows + static_cast<std::uint32_t>(consumer * kRows * 4) + first_row;
  const std::uint32_t other = places.rows + static_cast<std::uint32_t>((1 - consumer) * kRows * 4) + first_row;
  float highest[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    highest[row] = row_maximum(s, row);
    if (lane % 4 == 0) ptx::store_shared_float(own + row * 32, highest[row]);
  }
  meet_consumers(kRowsBarrier);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const float next = fmaxf(highest[row], ptx::load_shared_float(other + row * 32)) * scale_log2;
    rescale[row] = take_shift<kFirst>(next, row, state);
    take_weights<kFirst>(s, row, scale_log2, rescale[row], state);
  }
  // As in store_rows(): lane l addresses row l % 16 of the warp's, and the first or the second of a pair of 16-byte
  // chunks.
  const int row = 16 * warp + lane % 16;
#pragma unroll
  for (int chunk = 0; chunk < kOwnKeys / 8; chunk += 2) {
    const int mine = chunk + lane / 16;
    const float* v = s + 4 * chunk;
    ptx::stmatrix_x4(
        weights + static_cast<std::uint32_t>(consumer * kWeightBox + row * kBoxRowBytes + (mine ^ (row % 8)) * 16),
        pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]), pack_pair<T>(v[6], v[7]));
    // Between these stores, since the compiler moves exponentials behind any wait that stands before them.
    if (!kFirst && chunk == 0) pieces.settle<3>();
    if (!kFirst && chunk == 4) pieces.settle<2>();
  }
  ptx::fence_proxy_async_shared();
}

// The sums of both consumers' weights, in their order: both get the same. Of `places.rows` nothing is needed any more.
__device__ __forceinline__ void add_sums(const Places& places, int consumer, RowState& state) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const std::uint32_t first_row = places.rows + static_cast<std::uint32_t>(16 * warp + lane / 4) * 4;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float total = state.sum[row];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    if (lane % 4 == 0) ptx::store_shared_float(first_row + consumer * kRows * 4 + row * 32, total);
  }
  meet_consumers(kRowsBarrier);
#pragma unroll
  for (int row = 0; row < 2; ++row)
    state.sum[row] =
        ptx::load_shared_float(first_row + row * 32) + ptx::load_shared_float(first_row + kRows * 4 + row * 32);
}

}  // namespace noisefloor::attention::wide
