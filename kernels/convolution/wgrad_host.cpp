// wgrad on the host: gemm's micro-kernel on patches and dy, which are packed block by block of pixels into L2.
//
// A task makes a range of patch elements (tap and input channel) x a range of output channels, of a share of the
// pixels. Both operands are packed as they are stored, since channels lie side by side: patch elements are the rows of
// the micro-kernel. While a task packs dy it sums it for the biases. Partial sums of the shares are added in their
// order; how many shares there are follows from the problem alone, so that results are the same on any number of cores.
//
// Bound: FMA throughput. Requires: nothing. Numerics: fp32 sums per block of pixels, then per share, then of all.
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

// An extent of the product in even ranges, each a whole number of micro-kernels.
struct Ranges {
  std::int64_t extent, length, count;

  Ranges(std::int64_t whole, std::int64_t unit) : extent(whole) {
    const std::int64_t wanted = (whole + kRange - 1) / kRange;
    length = round_up((whole + wanted - 1) / wanted, unit);
    count = (whole + length - 1) / length;
  }
  std::int64_t begin(std::int64_t range) const { return range * length; }
  std::int64_t size(std::int64_t range) const { return std::min(length, extent - begin(range)); }
};

// How a problem falls into tasks.
struct Split {
  Ranges rows, columns;  // patch elements, output channels
  std::int64_t stride, shares;

  Split(const Convolution& c, bool of_images)
      : rows(c.k(), kMicroM), columns(c.cout, kMicroN), stride(round_up(columns.extent, kMicroN)) {
    const std::int64_t tasks = rows.count * columns.count;
    shares = std::clamp<std::int64_t>(c.phase_rows() / kSharePixels, 1, std::max<std::int64_t>(1, kTasks / tasks));
    if (of_images) shares = std::min<std::int64_t>(shares, c.images);
  }

  std::int64_t sums() const { return round_up(rows.extent, kMicroM) * stride; }  // of a share, in floats
  // Whole images where their sums are asked for.
  std::int64_t first_pixel(const Convolution& c, std::int64_t share, bool of_images) const {
    return of_images ? c.images * share / shares * c.phase_pixels() : c.phase_rows() * share / shares;
  }
};

// Sums of dy over pixels, image by image.
class ChannelSums {
 public:
  ChannelSums(DType dtype, void* dshift, float scale) : dtype_(dtype), dshift_(dshift), scale_(scale) {}

  // Of `count` channels from `channel` of all `channels`, at a pixel of `image`.
  void add(std::int64_t image, const float* row, std::int64_t channels, std::int64_t channel, std::int64_t count) {
    if (image * channels + channel != place_) end_image(count);
    place_ = image * channels + channel;
    for (std::int64_t i = 0; i < count; ++i) image_[i] += row[i];
  }
  void end_image(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) total_[i] += image_[i];
    if (dshift_ != nullptr && place_ >= 0) {
      for (std::int64_t i = 0; i < count; ++i) image_[i] *= scale_;
      store_floats(dtype_, dshift_, place_, count, image_);
    }
    std::fill_n(image_, count, 0.0f);
  }
  const float* total() const { return total_; }

 private:
  DType dtype_;
  void* dshift_;
  float scale_;
  std::int64_t place_ = -1;
  float image_[kRange] = {}, total_[kRange] = {};
};

// Panels of kWidth of `count` elements of each pixel, which load(pixel, row) fetches.
template <int kWidth, class Load>
void pack(std::int64_t first, std::int64_t depth, std::int64_t count, const Load& load, float* out) {
  float row[kRange] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    load(first + k, row);
    for (std::int64_t i = 0; i < count; i += kWidth) std::copy_n(row + i, kWidth, out + i * depth + k * kWidth);
  }
}

struct Task {
  const Convolution& c;
  DType dtype;
  const Wgrad& t;
  float scale;
  std::int64_t begin, end;                           // pixels
  std::int64_t patch0, patches, channel0, channels;  // ranges
};

// Adds the task's products onto sums [.][stride], and its biases' onto `biases`, if not null.
void run_task(const Task& task, float* sums, std::int64_t stride, float* biases) {
  alignas(kVectorBytes) float a[kRange * kDepth], b[kRange * kDepth];
  const Convolution& c = task.c;
  Operands operands;
  operands.x = task.t.x;
  const auto load_patch = [&](std::int64_t pixel, float* row) {
    const Pixel at = row_pixel(c, pixel);
    const host_gather::Row place{at.image, at.y, at.x, true};
    host_gather::each_piece(c, task.patch0, task.patches, [&](const host_gather::Piece& piece) {
      host_gather::load_inputs(c, task.dtype, operands, 0, place, piece, row + piece.offset);
    });
  };
  ChannelSums channel_sums(task.dtype, task.t.dshift, task.scale);
  const auto load_gradient = [&](std::int64_t pixel, float* row) {
    load_floats(task.dtype, task.t.dy, pixel * c.cout + task.channel0, task.channels, row);
    if (biases != nullptr) channel_sums.add(pixel / c.phase_pixels(), row, c.cout, task.channel0, task.channels);
  };
  for (std::int64_t k0 = task.begin; k0 < task.end; k0 += kDepth) {
    const std::int64_t depth = std::min(kDepth, task.end - k0);
    pack<kMicroM>(k0, depth, task.patches, load_patch, a);
    pack<kMicroN>(k0, depth, task.channels, load_gradient, b);
    for (std::int64_t j = 0; j < task.channels; j += kMicroN)
      for (std::int64_t i = 0; i < task.patches; i += kMicroM)
        micro_kernel(depth, a + i * depth, b + j * depth, sums + i * stride + j, stride);
  }
  if (biases == nullptr) return;
  channel_sums.end_image(task.channels);
  std::copy_n(channel_sums.total(), task.channels, biases);
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

std::size_t wgrad_host_workspace_bytes(const Convolution& c, bool dshift) {
  const Split split(c, dshift);
  return static_cast<std::size_t>(split.shares * (split.sums() + c.cout)) * sizeof(float);
}

Status launch_wgrad_host(const Convolution& c, DType dtype, const Wgrad& t, float scale, void* workspace,
                         const LaunchContext&) {
  const bool of_images = t.dshift != nullptr;
  const Split split(c, of_images);
  auto* const partials = static_cast<float*>(workspace);
  float* const biases = partials + split.shares * split.sums();
  const std::int64_t ranges = split.rows.count * split.columns.count;
  parallel_for(split.shares * ranges, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t share = i / ranges, row = i % ranges / split.columns.count, column = i % split.columns.count;
      const Task task{c,
                      dtype,
                      t,
                      scale,
                      split.first_pixel(c, share, of_images),
                      split.first_pixel(c, share + 1, of_images),
                      split.rows.begin(row),
                      split.rows.size(row),
                      split.columns.begin(column),
                      split.columns.size(column)};
      float* const sums = partials + share * split.sums() + split.rows.begin(row) * split.stride;
      float* const at = sums + split.columns.begin(column);
      const std::int64_t width = round_up(split.columns.size(column), kMicroN);
      for (std::int64_t r = 0; r < round_up(split.rows.size(row), kMicroM); ++r)
        std::fill_n(at + r * split.stride, width, 0.0f);
      float* const its_biases = row == 0 ? biases + share * c.cout + task.channel0 : nullptr;
      run_task(task, at, split.stride, its_biases);
    }
  });
  add_shares(c, split, partials, scale, t.dw);
  for (std::int64_t channel = 0; t.dbias != nullptr && channel < c.cout; ++channel) {
    float sum = 0;
    for (std::int64_t share = 0; share < split.shares; ++share) sum += biases[share * c.cout + channel];
    t.dbias[channel] = scale * sum;
  }
  return success();
}

}  // namespace noisefloor::convolution
