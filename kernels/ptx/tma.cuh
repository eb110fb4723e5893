// TMA: bulk tensor copies between global and shared memory, driven by a descriptor (kernels/device/tensor_map.h). PTX
// ISA, "Data Movement and Conversion Instructions: Tensor copy". Issued by one thread. sm_90.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace noisefloor::ptx {

// prefetch.tensormap: the descriptor, a __grid_constant__ kernel parameter, into the descriptor cache.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// cp.async.bulk.tensor.2d, global to the block's shared memory; x is the contiguous coordinate. Elements outside the
// tensor arrive as zero. Its bytes complete on `barrier` of this block.
__device__ __forceinline__ void tma_load_2d(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                            std::int32_t x, std::int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

// The same to the same offset in every block of the cluster whose bit in `blocks` is set; completes on the barrier at
// the same offset in each of them.
__device__ __forceinline__ void tma_load_2d_multicast(std::uint32_t destination, const CUtensorMap* map,
                                                      std::uint32_t barrier, std::int32_t x, std::int32_t y,
                                                      std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, "
      "%4}], [%2], %5;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}

// cp.async.bulk.tensor.4d, global to the block's shared memory; coordinates from the contiguous one outwards.
__device__ __forceinline__ void tma_load_4d(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                            std::int32_t x, std::int32_t y, std::int32_t z, std::int32_t w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// The same to the same offset in every block of the cluster whose bit in `blocks` is set, as tma_load_2d_multicast.
__device__ __forceinline__ void tma_load_4d_multicast(std::uint32_t destination, const CUtensorMap* map,
                                                      std::uint32_t barrier, std::int32_t x, std::int32_t y,
                                                      std::int32_t z, std::int32_t w, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"(blocks)
      : "memory");
}

// cp.async.bulk.tensor.5d, likewise.
__device__ __forceinline__ void tma_load_5d(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                            std::int32_t x, std::int32_t y, std::int32_t z, std::int32_t w,
                                            std::int32_t v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}

// cp.async.bulk.tensor.5d, shared memory to global; elements outside the tensor are not written.
__device__ __forceinline__ void tma_store_5d(const CUtensorMap* map, std::uint32_t source, std::int32_t x,
                                             std::int32_t y, std::int32_t z, std::int32_t w, std::int32_t v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}

// cp.async.bulk.tensor.3d, shared memory to global; elements outside the tensor are not written.
__device__ __forceinline__ void tma_store_3d(const CUtensorMap* map, std::uint32_t source, std::int32_t x,
                                             std::int32_t y, std::int32_t z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(source), "r"(x), "r"(y), "r"(z)
               : "memory");
}

// cp.async.bulk.tensor.4d, shared memory to global; elements outside the tensor are not written.
__device__ __forceinline__ void tma_store_4d(const CUtensorMap* map, std::uint32_t source, std::int32_t x,
                                             std::int32_t y, std::int32_t z, std::int32_t w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(source), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

// cp.async.bulk.tensor.4d in im2col mode: `pixels` of the map's box, channels from `c` on, starting at the base
// position (w, h, n) and going on along w, h and n within the map's bounding box; each is read `offset_w`, `offset_h`
// elements further on (the tap of a kernel). Elements outside the tensor arrive as zero. Completes on `barrier` of this
// block.
__device__ __forceinline__ void tma_load_im2col(std::uint32_t destination, const CUtensorMap* map,
                                                std::uint32_t barrier, std::int32_t c, std::int32_t w, std::int32_t h,
                                                std::int32_t n, std::uint16_t offset_w, std::uint16_t offset_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], "
      "[%2], {%7, %8};" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(offset_w), "h"(offset_h)
      : "memory");
}

// cp.async.bulk.tensor.2d, shared memory to global; elements outside the tensor are not written.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, std::uint32_t source, std::int32_t x,
                                             std::int32_t y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(source), "r"(x), "r"(y)
               : "memory");
}

// cp.async.bulk.commit_group: this thread's stores so far form a group.
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// cp.async.bulk.wait_group.read: all but the newest `kPending` groups have read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace noisefloor::ptx
