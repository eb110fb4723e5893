// What the GPU variants of resample share: places, in vectors of 16 bytes, and what is done there.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/stream.cuh"
#include "kernels/resample/resample.h"

namespace noisefloor::resample {

// Arithmetic in vectors: a pixel is `pixel` of them. Nothing but the mean cares what is in a vector.
struct Shape {
  Divider pixel;  // of x; concat: of y
  Divider width;  // pixels of a row of x; average: of y
  std::uint32_t skip = 0;

  // nearest_up2: where a vector of x goes first; the others are one pixel, one row and both further. average_down2,
  // with x and y exchanged: the first of the vectors that make a vector of y.
  __device__ __forceinline__ std::int64_t up(std::uint32_t vector) const {
    const std::uint32_t at = vector / pixel;  // pixel of all images
    const std::uint32_t row = at / width;
    const std::uint32_t column = at - row * width.divisor();
    return (static_cast<std::int64_t>(row) * 4 * width.divisor() + 2 * column) * pixel.divisor() +
           (vector - at * pixel.divisor());
  }
  __device__ __forceinline__ std::uint32_t next_row() const { return 2 * width.divisor() * pixel.divisor(); }
};

// Maps for kernels/device/stream.cuh.
struct UpMap : FlatInputs<1> {
  static constexpr int kUnroll =
      1;  // with four stores a load, more loads a thread are slower (docs/experiments/resample)
  uint4* y;
  Shape shape;

  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[1]) const {
    uint4* const out = y + shape.up(vector);
    store_16_bytes(out, bits[0]);
    store_16_bytes(out + shape.pixel.divisor(), bits[0]);
    store_16_bytes(out + shape.next_row(), bits[0]);
    store_16_bytes(out + shape.next_row() + shape.pixel.divisor(), bits[0]);
  }
};

template <class T>
struct DownMap {
  static constexpr int kInputs = 4;
  const uint4* x;
  void* y;
  Shape shape;
  std::uint32_t vectors;

  __device__ __forceinline__ const void* at(int input, std::uint32_t vector) const {
    return x + shape.up(vector) + (input % 2) * shape.pixel.divisor() + (input / 2) * shape.next_row();
  }
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[4]) const {
    store_sum(vector, bits, 0.25f);
  }
  __device__ __forceinline__ void store_sum(std::uint32_t vector, const uint4 (&bits)[4], float factor) const {
    float mean[kVectorLanes<T>], other[kVectorLanes<T>];
    unpack_vector<T>(bits[0], mean);
#pragma unroll
    for (int corner = 1; corner < 4; ++corner) {
      unpack_vector<T>(bits[corner], other);
#pragma unroll
      for (int i = 0; i < kVectorLanes<T>; ++i) mean[i] += other[i];
    }
#pragma unroll
    for (float& value : mean) value *= factor;
    store_stream<T>(y, vector, mean);
  }
};

struct ConcatMap {
  static constexpr int kInputs = 1;
  const uint4 *x, *skip;
  uint4* y;
  Shape shape;
  std::uint32_t vectors;

  __device__ __forceinline__ const void* at(int, std::uint32_t vector) const {
    const std::uint32_t pixel = vector / shape.pixel, place = vector - pixel * shape.pixel.divisor();
    const std::uint32_t first = shape.pixel.divisor() - shape.skip;  // vectors of x in a pixel
    return place < first ? x + static_cast<std::int64_t>(pixel) * first + place
                         : skip + static_cast<std::int64_t>(pixel) * shape.skip + place - first;
  }
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[1]) const {
    store_16_bytes(y + vector, bits[0]);
  }
};

template <class T>
Shape shape_of(const Problem& p) {
  Shape shape;
  shape.pixel = Divider(vectors_of<T>(p.out_channels()));
  shape.width = Divider(static_cast<std::uint32_t>(p.op == Operation::average_down2 ? p.out_w() : p.w));
  shape.skip = vectors_of<T>(p.skip_channels);
  return shape;
}

template <class T>
UpMap up_map(const Problem& p, const Tensors& t) {
  return {{{t.x}, vectors_of<T>(p.total() / 4)}, static_cast<uint4*>(t.y), shape_of<T>(p)};
}
template <class T>
DownMap<T> down_map(const Problem& p, const Tensors& t) {
  return {static_cast<const uint4*>(t.x), t.y, shape_of<T>(p), vectors_of<T>(p.total())};
}
template <class T>
ConcatMap concat_map(const Problem& p, const Tensors& t) {
  return {static_cast<const uint4*>(t.x), static_cast<const uint4*>(t.skip), static_cast<uint4*>(t.y), shape_of<T>(p),
          vectors_of<T>(p.total())};
}

// Those of a backward pass, apart from the maps above so that their kernels stay what they are.
template <class T>
struct ScaledUpMap : UpMap {
  float scale;

  ScaledUpMap(const Problem& p, const Tensors& t) : UpMap(up_map<T>(p, t)), scale(static_cast<float>(p.scale)) {}
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[1]) const {
    float x[kVectorLanes<T>];
    unpack_vector<T>(bits[0], x);
#pragma unroll
    for (float& value : x) value *= scale;
    const uint4 scaled[1] = {pack_vector<T>(x)};
    UpMap::apply(vector, scaled);
  }
};

template <class T>
struct ScaledDownMap : DownMap<T> {
  float factor;

  ScaledDownMap(const Problem& p, const Tensors& t)
      : DownMap<T>(down_map<T>(p, t)), factor(0.25f * static_cast<float>(p.scale)) {}
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[4]) const {
    this->store_sum(vector, bits, factor);
  }
};

// concat's places, read as they are written there and written as they are read.
struct SplitMap {
  static constexpr int kInputs = 1;
  const uint4* x;
  uint4 *y, *skip;
  Shape shape;
  std::uint32_t vectors;

  SplitMap(const ConcatMap& concat, const Tensors& t)
      : x(concat.x), y(concat.y), skip(static_cast<uint4*>(t.skip_out)), shape(concat.shape), vectors(concat.vectors) {}
  __device__ __forceinline__ const void* at(int, std::uint32_t vector) const { return x + vector; }
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[1]) const {
    const std::uint32_t pixel = vector / shape.pixel, place = vector - pixel * shape.pixel.divisor();
    const std::uint32_t first = shape.pixel.divisor() - shape.skip;  // vectors of y in a pixel
    store_16_bytes(place < first ? y + static_cast<std::int64_t>(pixel) * first + place
                                 : skip + static_cast<std::int64_t>(pixel) * shape.skip + place - first,
                   bits[0]);
  }
};

}  // namespace noisefloor::resample
