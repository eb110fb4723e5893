// elementwise, tiled: 16 bytes per thread and tensor, several of them in flight (kernels/device/stream.cuh). Layouts
// change through tiles in shared memory; those of 16-bit elements whose extents are multiples of 8 by blocks that are
// turned in registers (layout_blocks.cuh). A cast from 16 bits to fp32 reads 8 bytes for the 16 that it writes.
//
// Better than naive: an eighth (fp32: a quarter) of the memory instructions, no 64-bit division, and of a change of
// layout both sides are read and written in whole lines.
//
// Requires: streams of a multiple of 16 bytes (broadcast, geglu: rows); layouts anything.
// Bound: memory traffic; limited by loads in flight and by blocks that load, compute and end; a layout of fp32 by
// shared-memory instructions too, 8 per 16 bytes.
// Numerics: fp32, one rounding at the end; layouts move bits.
// Source: original.
#include "kernels/device/launch.cuh"
#include "kernels/elementwise/layout_blocks.cuh"
#include "kernels/elementwise/map.cuh"

namespace noisefloor::elementwise {
namespace {

constexpr int kThreads = 256;
constexpr int kRowBytes = 128;
constexpr int kWidened = 2;  // loads of 8 bytes that a thread has in flight

// From 16-bit T to fp32; `quads` of four elements. With 8 bytes in, the store of a warp is 512 contiguous bytes; with
// 16 in and two stores of 16 out, each store would write half of every sector.
template <class T>
__global__ void __launch_bounds__(kThreads) widen_kernel(const uint2* from, uint4* to, std::uint32_t quads) {
  const std::uint32_t first = blockIdx.x * (kThreads * kWidened) + threadIdx.x;
  uint2 bits[kWidened];
#pragma unroll
  for (int u = 0; u < kWidened; ++u)
    if (first + u * kThreads < quads) bits[u] = from[first + u * kThreads];
#pragma unroll
  for (int u = 0; u < kWidened; ++u) {
    if (first + u * kThreads >= quads) return;
    float v[4];
    unpack_pair<T>(bits[u].x, v[0], v[1]);
    unpack_pair<T>(bits[u].y, v[2], v[3]);
    store_16_bytes(to + first + u * kThreads, pack_vector<float>(v));
  }
}

Status widen(const Problem& p, DType dtype, const Tensors& t, const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    constexpr std::uint32_t kBlock = kThreads * kWidened;
    const auto quads = static_cast<std::uint32_t>(p.total() / 4);  // below 2^32 - 2^17: can_run
    return launch_kernel("elementwise widen_kernel", widen_kernel<T>,
                         {.grid = (quads + kBlock - 1) / kBlock, .block = kThreads}, context.stream,
                         static_cast<const uint2*>(t.a), static_cast<uint4*>(t.y), quads);
  });
}

// From each image's [rows, columns] to [columns, rows]. Bits has the elements' size. kWide, of fp32: both extents are
// multiples of 16 bytes. kAlongRows: neighbouring blocks take tiles one below the other.
//
// A row in shared memory is 132 bytes, so that neither rows nor columns collide in a bank (33 words: in fp32 a column's
// rows lie in banks of their own, and so do those of 16-bit elements that go one by one). Vectors of fp32 are taken
// apart into 4-byte stores on the way in and put together from elements on the way out.
template <class Bits, bool kWide, bool kAlongRows>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const Bits* from, Bits* to, int rows, int columns, std::int64_t image_elements) {
  constexpr int kTile = kRowBytes / static_cast<int>(sizeof(Bits));  // rows, and columns
  constexpr int kLanes = 16 / static_cast<int>(sizeof(Bits));
  constexpr int kPitch = kTile + 4 / static_cast<int>(sizeof(Bits));
  constexpr int kVectors = 8;  // of 16 bytes in a row of the tile
  __shared__ Bits tile[kTile * kPitch];
  static_assert(kPitch * sizeof(Bits) == 132);
  const Bits* const in = from + blockIdx.z * image_elements;
  Bits* const out = to + blockIdx.z * image_elements;
  const int row0 = static_cast<int>(kAlongRows ? blockIdx.x : blockIdx.y) * kTile;
  const int column0 = static_cast<int>(kAlongRows ? blockIdx.y : blockIdx.x) * kTile;

  if constexpr (kWide) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kVectors; i += kThreads) {
      const int r = i / kVectors, c = i % kVectors * kLanes;
      if (row0 + r >= rows || column0 + c >= columns) continue;
      const uint4 v = load_16_bytes(in + static_cast<std::int64_t>(row0 + r) * columns + column0 + c);
      auto* const words = reinterpret_cast<std::uint32_t*>(tile + r * kPitch + c);
      words[0] = v.x;
      words[1] = v.y;
      words[2] = v.z;
      words[3] = v.w;
    }
    __syncthreads();
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kVectors; i += kThreads) {
      const int c = i / kVectors, r = i % kVectors * kLanes;
      if (row0 + r >= rows || column0 + c >= columns) continue;
      const auto at = [&](int k) { return tile[(r + k) * kPitch + c]; };
      store_16_bytes(out + static_cast<std::int64_t>(column0 + c) * rows + row0 + r,
                     make_uint4(at(0), at(1), at(2), at(3)));
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
      const int r = i / kTile, c = i % kTile;
      if (row0 + r < rows && column0 + c < columns)
        tile[r * kPitch + c] = in[static_cast<std::int64_t>(row0 + r) * columns + column0 + c];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
      const int c = i / kTile, r = i % kTile;
      if (row0 + r < rows && column0 + c < columns)
        out[static_cast<std::int64_t>(column0 + c) * rows + row0 + r] = tile[r * kPitch + c];
    }
  }
}

template <class Bits, bool kToNhwc>
Status transpose(const Problem& p, const Tensors& t, const LaunchContext& context) {
  constexpr std::int64_t kTile = kRowBytes / sizeof(Bits), kLanes = 16 / sizeof(Bits);
  const std::int64_t rows = kToNhwc ? p.channels : p.hw, columns = kToNhwc ? p.hw : p.channels;
  const auto tiles = [](std::int64_t extent) { return static_cast<unsigned>((extent + kTile - 1) / kTile); };
  const dim3 grid(tiles(p.hw), tiles(p.channels), static_cast<unsigned>(p.n));  // along pixels either way
  const auto* from = static_cast<const Bits*>(t.a);
  auto* to = static_cast<Bits*>(t.y);
  const auto r = static_cast<int>(rows), c = static_cast<int>(columns);
  const bool wide = rows % kLanes == 0 && columns % kLanes == 0;
  if constexpr (sizeof(Bits) == 2) {
    if (wide) return block_transpose(t, p.n, rows, columns, context);
  } else {
    if (wide) {
      return launch_kernel("elementwise transpose_kernel", transpose_kernel<Bits, true, !kToNhwc>,
                           {.grid = grid, .block = kThreads}, context.stream, from, to, r, c, rows * columns);
    }
  }
  return launch_kernel("elementwise transpose_kernel", transpose_kernel<Bits, false, !kToNhwc>,
                       {.grid = grid, .block = kThreads}, context.stream, from, to, r, c, rows * columns);
}

template <class Bits>
Status transpose(const Problem& p, const Tensors& t, const LaunchContext& context) {
  return p.op == Operation::nchw_to_nhwc ? transpose<Bits, true>(p, t, context) : transpose<Bits, false>(p, t, context);
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  if (p.transposes())
    return size_of(dtype) == 2 ? transpose<std::uint16_t>(p, t, context) : transpose<std::uint32_t>(p, t, context);
  if (p.op == Operation::cast && size_of(dtype) == 2 && p.output_dtype(dtype) == DType::fp32)
    return widen(p, dtype, t, context);
  return with_map(p, dtype, t, [&](const auto& map) { return stream(map, context, "elementwise tiled"); });
}

}  // namespace noisefloor::elementwise
