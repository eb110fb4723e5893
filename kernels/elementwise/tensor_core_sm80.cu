// elementwise, tensor cores: sums, and what activations are applied to, as products with diagonal matrices
// (kernels/device/diagonal_mma.cuh); the products of silu_fma as what they are, diag(c) times rows of b. Warps take 32
// vectors (broadcast: 16 pixels x 32 channels; without: 128 elements) in grid-stride loops.
//
// What differs from tiled: the arithmetic. README.md: why it does not win.
//
// Requires: bf16 or fp16; streams of a multiple of 16 bytes (broadcast, geglu: rows); broadcast: batch of at most
// 65535.
// Bound: memory traffic; silu_fma without broadcast instructions: 1/16 of each product is wanted, and data goes by
// element.
// Numerics: exact products, fp32 sums; the scale of add split into terms of the row's type (24 bits).
// Source: original.
#include "kernels/device/diagonal_mma.cuh"
#include "kernels/elementwise/map.cuh"

namespace noisefloor::elementwise {
namespace {

constexpr int kThreads = kDiagonalThreads;
constexpr unsigned kBlocksPerSm = 8;

template <class T>
__device__ __forceinline__ uint4 load(const void* base, std::int64_t vector) {
  return load_16_bytes(static_cast<const T*>(base) + vector * 8);
}

template <class T, Operation kOperation>
__global__ void __launch_bounds__(kThreads)
    linear_kernel(const Tensors t, float scale, std::uint32_t vectors, const Divider per_row) {
  constexpr int kTerms = kOperation == Operation::add ? 3 : 1;
  const DiagonalCoefficients<T, kTerms> coefficients(scale, kOperation == Operation::add ? scale : 0.0f);
  const uint4 none{};
  for_each_warp_vector(vectors, [&](std::uint32_t vector, bool valid) {
    float out[8] = {};
    if constexpr (kOperation == Operation::geglu) {
      const std::int64_t value_at = vector + static_cast<std::int64_t>(vector / per_row) * per_row.divisor();
      float gate[8] = {};
      diagonal_product(coefficients, load<T>(t.a, value_at), none, out);
      diagonal_product(coefficients, load<T>(t.a, value_at + per_row.divisor()), none, gate);
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] *= gelu<T>(gate[i]);
    } else if constexpr (kOperation == Operation::add) {
      diagonal_product(coefficients, load<T>(t.a, vector), load<T>(t.b, vector), out);
    } else {
      diagonal_product(coefficients, load<T>(t.a, vector), none, out);
#pragma unroll
      for (float& v : out) v = kOperation == Operation::relu ? relu(v) : silu<T>(v);
    }
    if (valid) store_stream<T>(t.y, vector, out);
  });
}

// 16 pixels are the rows of A, and c is the diagonal of B. A lane holds 16 bytes, 8 channels, of pixels g and g + 8;
// word w of it are two neighbours in k, so that B has c of channels 8 t + 2 w and + 1 in the columns of the same number
// and D gives a lane its own channels back. a is what D starts with.
template <class T>
__global__ void __launch_bounds__(kThreads) broadcast_kernel(const Tensors t, int hw, int channels) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, quad = lane % 4;
  const int channel = static_cast<int>(blockIdx.y) * 32 + quad * 8;
  const bool inside = channel < channels;
  const std::int64_t image = blockIdx.z;
  const std::int64_t row = image * channels + (inside ? channel : 0);
  const T* const c = static_cast<const T*>(t.c);
  // Column g of the diagonal of word w belongs to channel 8 (g / 2) + 2 w + g % 2 of the 32.
  std::uint32_t diagonal[4];
  const int column = static_cast<int>(blockIdx.y) * 32 + 8 * (g / 2) + g % 2;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const bool mine = quad == g / 2 && column + 2 * w < channels;
    const float v = mine ? to_float(c[image * channels + column + 2 * w]) : 0.0f;
    diagonal[w] = pack_pair<T>(g % 2 == 0 ? v : 0.0f, g % 2 == 0 ? 0.0f : v);
  }
  float addend[8];
  unpack_vector<T>(load_16_bytes<CacheHint::read_only>(static_cast<const T*>(t.a) + row), addend);
  const int step = static_cast<int>(gridDim.x * (kThreads / 32)) * 16;
  for (int first = (static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32)) * 16; first < hw;
       first += step) {
    const int low = first + g, high = low + 8;
    const auto place = [&](int pixel) { return (image * hw + pixel) * channels + channel; };
    uint4 x{}, y{};
    if (inside && low < hw) x = load_16_bytes(static_cast<const T*>(t.b) + place(low));
    if (inside && high < hw) y = load_16_bytes(static_cast<const T*>(t.b) + place(high));
    const std::uint32_t words[2][4] = {{x.x, x.y, x.z, x.w}, {y.x, y.y, y.z, y.w}};
    float out[2][8];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float d[4] = {addend[2 * w], addend[2 * w + 1], addend[2 * w], addend[2 * w + 1]};
      ptx::mma_m16n8k16<T>(d, {words[0][w], words[1][w], 0, 0}, diagonal[w], 0);
      out[0][2 * w] = silu<T>(d[0]);
      out[0][2 * w + 1] = silu<T>(d[1]);
      out[1][2 * w] = silu<T>(d[2]);
      out[1][2 * w + 1] = silu<T>(d[3]);
    }
    if (inside && low < hw) store_vector<T>(static_cast<T*>(t.y) + place(low), out[0]);
    if (inside && high < hw) store_vector<T>(static_cast<T*>(t.y) + place(high), out[1]);
  }
}

// Every product has a factor of its own, and a diagonal serves one column only: diag(b) of 16 elements times 8 columns
// of c, of which one is theirs, 8 times for 128 elements a warp. Chunk n of 16 is column n of B, and the diagonal of A
// for the n-th product.
template <class T>
__global__ void __launch_bounds__(kThreads) products_kernel(const Tensors t, std::int64_t total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, quad = lane % 4;
  const bool mine = quad == g / 2;  // this lane holds row g's diagonal, in the half g % 2 of its words
  const T* const b = static_cast<const T*>(t.b);
  const auto word_of_c = [&](std::int64_t i) {  // total is a multiple of 8: words do not straddle the end
    return i < total ? *reinterpret_cast<const std::uint32_t*>(static_cast<const T*>(t.c) + i) : 0u;
  };
  const auto diagonal_of_b = [&](std::int64_t i) {
    const float v = mine && i < total ? to_float(b[i]) : 0.0f;
    return pack_pair<T>(g % 2 == 0 ? v : 0.0f, g % 2 == 0 ? 0.0f : v);
  };
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kThreads / 32) * 128;
  for (std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32) * 128;
       first < total; first += step) {
    const std::uint32_t low = word_of_c(first + 16 * g + 2 * quad), high = word_of_c(first + 16 * g + 2 * quad + 8);
    float product[2][2];  // of chunks 2 quad and 2 quad + 1, elements g and g + 8
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float d[4] = {};
      const std::uint32_t upper = diagonal_of_b(first + 16 * n + g), lower = diagonal_of_b(first + 16 * n + g + 8);
      ptx::mma_m16n8k16<T>(d, {upper, 0, 0, lower}, low, high);
      if (quad != n / 2) continue;
      product[n % 2][0] = d[n % 2];
      product[n % 2][1] = d[2 + n % 2];
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t i = first + 16 * (2 * quad + n) + g + 8 * half;
        if (i < total)
          static_cast<T*>(t.y)[i] = from_float<T>(silu<T>(to_float(static_cast<const T*>(t.a)[i]) + product[n][half]));
      }
  }
}

template <class T>
Status launch(const Problem& p, const Tensors& t, const LaunchContext& context) {
  const unsigned resident = kBlocksPerSm * static_cast<unsigned>(context.device->sm_count);
  const auto vectors = vectors_of<T>(p.total());
  const unsigned blocks = std::min((vectors + kThreads - 1) / kThreads, resident);
  const Divider per_row(vectors_of<T>(p.op == Operation::geglu ? p.channels : 8));
  switch (p.op) {
    case Operation::silu_fma:
      if (p.broadcast) {
        const auto columns = static_cast<unsigned>((p.channels + 31) / 32), images = static_cast<unsigned>(p.n);
        const auto wanted = static_cast<unsigned>((p.hw + 127) / 128);  // 8 warps of 16 pixels
        const dim3 grid(std::min(wanted, (resident + columns * images - 1) / (columns * images)), columns, images);
        broadcast_kernel<T>
            <<<grid, kThreads, 0, context.stream>>>(t, static_cast<int>(p.hw), static_cast<int>(p.channels));
      } else {
        products_kernel<T><<<blocks, kThreads, 0, context.stream>>>(t, p.total());
      }
      break;
    case Operation::add:
      linear_kernel<T, Operation::add>
          <<<blocks, kThreads, 0, context.stream>>>(t, static_cast<float>(p.scale), vectors, per_row);
      break;
    case Operation::geglu:
      linear_kernel<T, Operation::geglu><<<blocks, kThreads, 0, context.stream>>>(t, 1.0f, vectors, per_row);
      break;
    case Operation::relu:
      linear_kernel<T, Operation::relu><<<blocks, kThreads, 0, context.stream>>>(t, 1.0f, vectors, per_row);
      break;
    default:
      linear_kernel<T, Operation::silu><<<blocks, kThreads, 0, context.stream>>>(t, 1.0f, vectors, per_row);
  }
  return launch_status("elementwise tensor_core_sm80");
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) { return launch<T>(p, t, context); });
}

}  // namespace noisefloor::elementwise
