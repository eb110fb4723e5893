// elementwise on the host: chunks widened to float in cache, loops that vectorise, all cores. Layouts change in blocks
// of 32 x 32 elements, so that every cache line that is touched is used up while it is there.
#include <algorithm>

#include "kernels/core/host_chunks.h"
#include "kernels/core/vector_math.h"
#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {
namespace {

// What v becomes, with what `other` has in its place: b of add, dy.
void apply(Operation op, float scale, std::int64_t count, const float* other, float* v) {
  const auto each = [&](auto value_of) {
    for (std::int64_t i = 0; i < count; ++i) v[i] = value_of(v[i], other[i]);
  };
  switch (op) {
    case Operation::add:
      return each([&](float x, float b) { return (x + b) * scale; });
    case Operation::scale:
      return each([&](float x, float) { return x * scale; });
    case Operation::relu:
      return each([](float x, float) { return x < 0 ? 0 : x; });  // a NaN stays
    case Operation::silu:
      return each([](float x, float) { return vector_silu(x); });
    case Operation::relu_backward:
      return each([](float x, float dy) { return x <= 0 ? 0 : dy; });
    case Operation::silu_backward:
      return each([](float x, float dy) { return dy * vector_silu_slope(x); });
    case Operation::gelu_backward:
      return each([](float x, float dy) { return dy * vector_gelu_slope(x); });
    default:  // a cast
      return;
  }
}

void pointwise(const Problem& p, DType dtype, const Tensors& t) {
  const DType to = p.output_dtype(dtype);
  for_host_chunks<2>(1, p.total(), [&](std::int64_t, std::int64_t begin, std::int64_t count, auto& buffers) {
    auto& [v, other] = buffers.at;
    load_floats(dtype, t.a, begin, count, v);
    if (t.b != nullptr) load_floats(dtype, t.b, begin, count, other);
    apply(p.op, static_cast<float>(p.scale), count, other, v);
    store_floats(to, t.y, begin, count, v);
  });
}

// Rows of channels: what broadcast and geglu have in common is that an input's place is that of the row.
void silu_fma(const Problem& p, DType dtype, const Tensors& t) {
  for_host_chunks<3>(p.n * p.hw, p.channels,
                     [&](std::int64_t row, std::int64_t begin, std::int64_t count, auto& buffers) {
                       auto& [a, b, c] = buffers.at;
                       const std::int64_t at = (p.broadcast ? row / p.hw : row) * p.channels + begin;
                       load_floats(dtype, t.a, at, count, a);
                       load_floats(dtype, t.b, row * p.channels + begin, count, b);
                       load_floats(dtype, t.c, at, count, c);
                       for (std::int64_t i = 0; i < count; ++i) b[i] = vector_silu(a[i] + b[i] * c[i]);
                       store_floats(dtype, t.y, row * p.channels + begin, count, b);
                     });
}

void geglu(const Problem& p, DType dtype, const Tensors& t) {
  for_host_chunks<3>(p.n * p.hw, p.channels,
                     [&](std::int64_t row, std::int64_t begin, std::int64_t count, auto& buffers) {
                       auto& [value, gate, dy] = buffers.at;
                       const std::int64_t at = row * p.channels + begin, in_x = at + row * p.channels;
                       load_floats(dtype, t.a, in_x, count, value);
                       load_floats(dtype, t.a, in_x + p.channels, count, gate);
                       if (p.op == Operation::geglu) {
                         for (std::int64_t i = 0; i < count; ++i) value[i] *= vector_gelu(gate[i]);
                         return store_floats(dtype, t.y, at, count, value);
                       }
                       load_floats(dtype, t.b, at, count, dy);
                       for (std::int64_t i = 0; i < count; ++i) {
                         const float of_gate = dy[i] * value[i] * vector_gelu_slope(gate[i]);
                         value[i] = dy[i] * vector_gelu(gate[i]);
                         gate[i] = of_gate;
                       }
                       store_floats(dtype, t.y, in_x, count, value);
                       store_floats(dtype, t.y, in_x + p.channels, count, gate);
                     });
}

// Each image's [rows, columns] becomes [columns, rows].
template <class Bits>
void transpose(std::int64_t images, std::int64_t rows, std::int64_t columns, const void* from, void* to) {
  constexpr std::int64_t kBlock = 32;
  const std::int64_t strips = (rows + kBlock - 1) / kBlock;
  parallel_for(images * strips, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t strip = first; strip < last; ++strip) {
      const auto* in = static_cast<const Bits*>(from) + strip / strips * rows * columns;
      auto* out = static_cast<Bits*>(to) + strip / strips * rows * columns;
      const std::int64_t row_begin = strip % strips * kBlock, row_end = std::min(rows, row_begin + kBlock);
      for (std::int64_t c0 = 0; c0 < columns; c0 += kBlock)
        for (std::int64_t r = row_begin; r < row_end; ++r)
          for (std::int64_t c = c0; c < std::min(columns, c0 + kBlock); ++c) out[c * rows + r] = in[r * columns + c];
    }
  });
}

}  // namespace

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  if (p.op == Operation::silu_fma) {
    silu_fma(p, dtype, t);
  } else if (p.gated()) {
    geglu(p, dtype, t);
  } else if (p.transposes()) {
    const bool to_nhwc = p.op == Operation::nchw_to_nhwc;
    const std::int64_t rows = to_nhwc ? p.channels : p.hw, columns = to_nhwc ? p.hw : p.channels;
    size_of(dtype) == 2 ? transpose<std::uint16_t>(p.n, rows, columns, t.a, t.y)
                        : transpose<std::uint32_t>(p.n, rows, columns, t.a, t.y);
  } else {
    pointwise(p, dtype, t);
  }
  return success();
}

}  // namespace noisefloor::elementwise
