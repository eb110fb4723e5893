// wgrad on the host: gemm's micro-kernel on patches and dy, which are packed block by block of pixels into L2.
//
// A task makes a range of patch elements (tap and input channel) x a range of output channels, of a share of the
// pixels. Both operands are packed as they are stored, since channels lie side by side: patch elements are the rows of
// the micro-kernel. Partial sums of the shares are added in their order; how many shares there are follows from the
// problem alone, so that results are the same on any number of cores. dy is summed for the biases beforehand.
//
// Bound: FMA throughput. Requires: nothing. Numerics: fp32 sums per block of pixels, then per share, then of all; of
// the biases per image, then of all.
#include <algorithm>
#include <vector>

#include "kernels/convolution/gradient.h"
#include "kernels/convolution/host_gather.h"
#include "kernels/core/parallel.h"
#include "kernels/core/vector_math.h"
#include "kernels/product/host_product.h"

namespace noisefloor::convolution {
namespace {

using namespace host_product;

constexpr std::int64_t kDepth = std::min<std::int64_t>(kBlockK, 128);  // pixels of a block
constexpr std::int64_t kRange = 384;
static_assert(kRange % kMicroM == 0 && kRange % kMicroN == 0, "a range is a whole number of micro-kernels");
constexpr std::int64_t kTasks = 32;          // about, where there are pixels enough
constexpr std::int64_t kSharePixels = 1024;  // at least, of a share

struct Range {
  std::int64_t begin, size;
};

// An extent of the product in even ranges, each a whole number of micro-kernels.
struct Ranges {
  std::int64_t extent, length, count;

  Ranges(std::int64_t whole, std::int64_t unit) : extent(whole) {
    const std::int64_t wanted = (whole + kRange - 1) / kRange;
    length = round_up((whole + wanted - 1) / wanted, unit);
    count = (whole + length - 1) / length;
  }
  Range range(std::int64_t number) const { return {number * length, std::min(length, extent - number * length)}; }
};

// How a problem falls into tasks.
struct Split {
  Ranges rows, columns;  // patch elements, output channels
  std::int64_t stride, shares;

  explicit Split(const Convolution& c)
      : rows(c.k(), kMicroM), columns(c.cout, kMicroN), stride(round_up(columns.extent, kMicroN)) {
    const std::int64_t tasks = rows.count * columns.count;
    shares = std::clamp<std::int64_t>(c.phase_rows() / kSharePixels, 1, std::max<std::int64_t>(1, kTasks / tasks));
  }

  std::int64_t sums() const { return round_up(rows.extent, kMicroM) * stride; }  // of a share, in floats
};

// dshift, and dbias of the images' sums in their order. `sums`: [images][cout].
void sum_gradients(const Convolution& c, DType dtype, const Wgrad& t, float scale, float* sums) {
  if (t.dbias == nullptr && t.dshift == nullptr) return;
  parallel_for(c.images, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(c.cout));
    for (std::int64_t image = begin; image < end; ++image) {
      float* const sum = sums + image * c.cout;
      std::fill_n(sum, c.cout, 0.0f);
      for (std::int64_t pixel = image * c.phase_pixels(); pixel < (image + 1) * c.phase_pixels(); ++pixel) {
        load_floats(dtype, t.dy, pixel * c.cout, c.cout, row.data());
        for (std::int64_t i = 0; i < c.cout; ++i) sum[i] += row[static_cast<std::size_t>(i)];
      }
      for (std::int64_t i = 0; i < c.cout; ++i) sum[i] *= scale;
      if (t.dshift != nullptr) store_floats(dtype, t.dshift, image * c.cout, c.cout, sum);
    }
  });
  for (std::int64_t channel = 0; t.dbias != nullptr && channel < c.cout; ++channel) {
    t.dbias[channel] = 0;
    for (std::int64_t image = 0; image < c.images; ++image) t.dbias[channel] += sums[image * c.cout + channel];
  }
}

// Panels of kWidth of `count` elements of each pixel, which load(pixel, row) fetches.
template <int kWidth, class Load>
void pack(std::int64_t first, std::int64_t depth, std::int64_t count, const Load& load, float* out) {
  float row[kRange] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    load(first + k, row);
    for (std::int64_t i = 0; i < count; i += kWidth) std::copy_n(row + i, kWidth, out + i * depth + k * kWidth);
  }
}

// Adds the products of patch elements and output channels onto sums [.][stride].
void add_products(const Convolution& c, DType dtype, const Wgrad& t, const Range& pixels, const Range& patches,
                  const Range& channels, float* sums, std::int64_t stride) {
  alignas(kVectorBytes) float a[kRange * kDepth], b[kRange * kDepth];
  Operands operands;
  operands.x = t.x;
  const auto load_patch = [&](std::int64_t pixel, float* row) {
    const Pixel at = row_pixel(c, pixel);
    const host_gather::Row place{at.image, at.y, at.x, true};
    host_gather::each_piece(c, patches.begin, patches.size, [&](const host_gather::Piece& piece) {
      host_gather::load_inputs(c, dtype, operands, 0, place, piece, row + piece.offset);
    });
  };
  const auto load_gradient = [&](std::int64_t pixel, float* row) {
    load_floats(dtype, t.dy, pixel * c.cout + channels.begin, channels.size, row);
  };
  for (std::int64_t done = 0; done < pixels.size; done += kDepth) {
    const std::int64_t depth = std::min(kDepth, pixels.size - done);
    pack<kMicroM>(pixels.begin + done, depth, patches.size, load_patch, a);
    pack<kMicroN>(pixels.begin + done, depth, channels.size, load_gradient, b);
    for (std::int64_t j = 0; j < channels.size; j += kMicroN)
      for (std::int64_t i = 0; i < patches.size; i += kMicroM)
        micro_kernel(depth, a + i * depth, b + j * depth, sums + i * stride + j, stride);
  }
}

// dw of the shares' sums, added in their order.
void add_shares(const Convolution& c, const Split& split, const float* partials, float scale, float* dw) {
  parallel_for(split.rows.extent, kMicroM, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sums(static_cast<std::size_t>((end - begin) * split.stride));
    for (std::int64_t share = 0; share < split.shares; ++share) {
      const float* const from = partials + share * split.sums() + begin * split.stride;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += from[i];
    }
    for (float& sum : sums) sum *= scale;
    for (std::int64_t channel = 0; channel < c.cout; ++channel)
      for (std::int64_t row = begin; row < end; ++row)
        dw[channel * c.k() + row] = sums[static_cast<std::size_t>((row - begin) * split.stride + channel)];
  });
}

}  // namespace

std::size_t wgrad_host_workspace_bytes(const Convolution& c, DType, const DeviceInfo&) {
  const Split split(c);
  return static_cast<std::size_t>(split.shares * split.sums() + std::int64_t{c.images} * c.cout) * sizeof(float);
}

Status launch_wgrad_host(const Convolution& c, DType dtype, const Wgrad& t, float scale, void* workspace,
                         const LaunchContext&) {
  const Split split(c);
  auto* const partials = static_cast<float*>(workspace);
  sum_gradients(c, dtype, t, scale, partials + split.shares * split.sums());
  const std::int64_t ranges = split.rows.count * split.columns.count;
  parallel_for(split.shares * ranges, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t share = i / ranges, first_pixel = c.phase_rows() * share / split.shares;
      const Range pixels{first_pixel, c.phase_rows() * (share + 1) / split.shares - first_pixel};
      const Range patches = split.rows.range(i % ranges / split.columns.count);
      const Range channels = split.columns.range(i % split.columns.count);
      float* const sums = partials + share * split.sums() + patches.begin * split.stride + channels.begin;
      for (std::int64_t r = 0; r < round_up(patches.size, kMicroM); ++r)
        std::fill_n(sums + r * split.stride, round_up(channels.size, kMicroN), 0.0f);
      add_products(c, dtype, t, pixels, patches, channels, sums, split.stride);
    }
  });
  add_shares(c, split, partials, scale, t.dw);
  return success();
}

}  // namespace noisefloor::convolution
