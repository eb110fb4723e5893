#include "kernels/groupnorm/groupnorm.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::groupnorm {
namespace {

constexpr const char* kFusions[] = {"none", "silu", "silu+ss"};
constexpr const char* kSlabStats[] = {"none", "given", "quarters"};

// A mean three standard deviations off zero: E[x^2] - E[x]^2 then loses bits that a shifted sum keeps.
constexpr double kFillMean = 3;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 30;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("fusion((x - mean) rstd gamma + beta), mean and variance of each image and group of channels");
  visit.integer("n", "images", p.n, 1, 32767);
  visit.integer("hw", "pixels of an image, height * width (* frames)", p.hw, 1, kMaxPixels);
  visit.integer("channels", "channels of x and skip together", p.channels, 1, 65536);
  visit.integer("groups", "groups of channels, each normalised separately; divides channels", p.groups, 1, 65536);
  visit.enumeration("fusion", "what y is: norm; silu(norm); or silu(norm (1 + scale) + shift)", p.fusion, kFusions,
                    Fusion::none);
  visit.real("eps", "added to the variance", p.eps, 1e-12, 1.0, 1e-5);
  visit.flag("stats", "also write mean and rstd, which a backward pass needs", p.stats, false);
  visit.enumeration("slab_stats", "given: conv2d's stats wrote x's statistics; quarters: it did so with upsample",
                    p.slab_stats, kSlabStats, SlabStats::none);
  visit.flag("packed", "for silu+ss: scale and shift are the halves of one tensor, scale_shift", p.packed, false);
  visit.flag("coefficients", "write a and b of fusion(x a + b) instead of y, for conv2d's norm", p.coefficients, false);
  visit.flag("fp32_affine", "gamma and beta are fp32, as a training keeps them", p.fp32_affine, false);
  visit.integer("skip_channels", "channels of skip, which is concatenated after x; 0: none", p.skip_channels, 0, 65535,
                0);
  visit.integer("down_w", "width of x, of whose 2x2 blocks y and x_down are means; 0: none", p.down_w, 0, kMaxPixels,
                0);
}

void check(const Problem& p) {
  if (p.channels % p.groups != 0)
    refuse("groups=" + std::to_string(p.groups) + " does not divide channels=" + std::to_string(p.channels));
  if (p.packed && !p.scale_shift())
    refuse("packed=1 needs fusion=silu+ss: no other fusion has a scale and a shift to pack");
  if (p.skip_channels >= p.channels)
    refuse("skip_channels=" + std::to_string(p.skip_channels) + " leaves x nothing; its range with channels=" +
           std::to_string(p.channels) + " is 0 to " + std::to_string(p.channels - 1));
  if (p.skip_channels > 0 && (p.given() || p.coefficients))
    refuse("skip_channels needs slab_stats=none and coefficients=0: those are of one tensor");
  if (p.fp32_affine && (p.given() || p.skip_channels > 0 || p.down()))
    refuse("fp32_affine needs slab_stats=none, skip_channels=0 and down_w=0: a training's norms have none of those");
  if (p.down() && (p.down_w % 2 != 0 || p.hw % (2 * p.down_w) != 0))
    refuse("down_w=" + std::to_string(p.down_w) + " must be even, 2 to hw / 2, and divide hw=" + std::to_string(p.hw) +
           " into an even number of rows");
  if (p.down() && (p.skip_channels > 0 || p.coefficients))
    refuse("down_w needs skip_channels=0 and coefficients=0: it halves y and one tensor x");
  if (p.given() && p.given_slabs() * p.channels_per_group() > INT32_MAX)
    refuse("hw and channels make more than 2^31 given statistics per image and group");
  if (p.hw % p.quarters() != 0)
    refuse("hw=" + std::to_string(p.hw) + " is not a multiple of 4, which slab_stats=quarters needs");
  if (p.hw > kMaxElements / (p.n * p.channels))
    refuse("n*hw*channels is more than 2^40 elements; lower n, hw or channels");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  visit.let("quarters", "1 + 3*(slab_stats=quarters)");
  visit.let("slabs", "quarters*((hw/quarters + 63)/64)");
  visit.let("y_hw", "hw/(1 + 3*(down_w>0))");
  static_assert(kGivenSlabRows == 64);
  const Extents y{"n", "y_hw", "channels"}, slabs{"n", "slabs", "channels"};
  const Fill affine = normal_fill(0, 0.25);
  visit.when(p.reads_x(), "!coefficients | slab_stats=none")
      .in("x", t.x, {"n", "hw", "channels - skip_channels"}, normal_fill(kFillMean, 1));
  const DType affine_dtype = p.affine_dtype(visit.row_dtype());
  visit.in({"gamma", "fp32 with fp32_affine, as beta"}, t.gamma, {"channels"}, normal_fill(1, 0.25), affine_dtype);
  visit.in("beta", t.beta, {"channels"}, affine, affine_dtype);
  visit.when(p.scale_shift() && p.packed, "fusion=silu+ss & packed")
      .in("scale_shift", t.scale, {"n", "2*channels"}, affine);
  const bool scale_shift = p.scale_shift() && !p.packed;
  constexpr const char* kScaleShift = "fusion=silu+ss & !packed";
  visit.when(scale_shift, kScaleShift).in("scale", t.scale, {"n", "channels"}, affine);
  visit.when(scale_shift, kScaleShift).in("shift", t.shift, {"n", "channels"}, affine);
  constexpr const char* kGiven = "slab_stats!=none";
  visit.when(p.given(), kGiven).in({"slab_mean", "conv2d's mean"}, t.slab_mean, slabs, normal_fill(kFillMean, 0.125));
  visit
      .when(p.given(), kGiven)  // positive M2: eight standard deviations off zero
      .in({"slab_m2", "conv2d's m2"}, t.slab_m2, slabs, normal_fill(kGivenSlabRows, 8));
  visit.when(p.skip_channels > 0, "skip_channels>0")
      .in("skip", t.skip, {"n", "hw", "skip_channels"}, normal_fill(kFillMean, 1));
  visit.when(p.coefficients, "coefficients")
      .out({"coefficients", "multiplier and addend of each image and channel"}, t.y, {"n", "2", "channels"},
           DType::fp32);
  visit.when(!p.coefficients, "!coefficients").out("y", t.y, y);
  visit.when(p.down(), "down_w>0").out({"x_down", "means of 2x2 blocks of x"}, t.x_down, y);
  visit.when(p.stats, "stats").out("mean", t.mean, {"n", "groups"});
  visit.when(p.stats, "stats").out({"rstd", "1 / sqrt(variance + eps)"}, t.rstd, {"n", "groups"});
}

// Per element: the mean 1 (add), the variance 3 (subtract, multiply-add), the affine map 2 (multiply-add, mean, rstd,
// gamma, beta, scale and shift folded into one pair of coefficients per image and channel), SiLU 4 (exponential, add,
// divide, multiply). Per image and channel: 3 for the pair, 3 more for scale and shift. Given statistics leave out mean
// and variance; merging them is not counted (1/64 of that), unless there is nothing else: with coefficients, which
// leave out the affine map and SiLU, 6 per channel of a slab (subtract, multiply, add; multiply-add, add). With down_w,
// 4 per element of y and of x_down, as an average costs, which is 2 per element of x.
Cost cost(const Problem& p, DType, double bytes) {
  const double applied = p.coefficients ? 0 : p.fusion == Fusion::none ? 2 : 6;
  const double per_element = (p.given() ? 0 : 4) + applied + (p.down() ? 2 : 0);
  const double per_channel =
      3 + (p.scale_shift() ? 3 : 0) + (p.reads_x() ? 0.0 : 6 * static_cast<double>(p.given_slabs()));
  return {per_element * static_cast<double>(p.elements()) + per_channel * static_cast<double>(p.n * p.channels), bytes,
          Pipe::fma};
}

// The output's rounding, u; and fp32 arithmetic, whose error the normalisation multiplies by |mean| / stddev: a sum of
// L terms is off by about sqrt(L) roundings, the affine map and SiLU by some 16. From 32 elements on, the stddev of a
// group of normal numbers is near 1 (above 1/2); in smaller groups it may come out as small as eps lets it, sqrt(eps).
// Coefficients are fp32, and not rounded to u; but a variant may round the deviations that it squares (tensor_core_sm80
// where a slab's first rows are near each other), which leaves up to 1.2 u / sqrt(L) in rstd as a rule, and four times
// that at worst.
// With down_w the four values of a mean are rounded too, and may cancel: to half their size as a rule, but in a group
// of few blocks to beta, which may be small. x_down, which is only averaged, has the same bound.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double u32 = unit_roundoff(DType::fp32);
  const double size = static_cast<double>(p.group_size());
  const double condition = size >= 32 ? kFillMean / 0.5 : kFillMean / std::sqrt(p.eps);
  const double arithmetic = u32 * (16 + std::sqrt(size)) * condition;
  const double rounded = !p.coefficients ? 1 : p.given() ? 0 : 5 / std::sqrt(size);
  const double u = rounded * unit_roundoff(dtype);
  const double lost = size >= 32 ? 2 : 8;
  if (p.down()) return {(1 + 2 * lost) * u + 2 * lost * arithmetic, (1 + lost) * u + 2 * lost * arithmetic};
  return {u + arithmetic, u + arithmetic};
}

struct Stats {
  double mean = 0;
  double rstd = 0;
};

// each(body) calls body(mean, M2, rows) for the parts of a group, which are its elements or given moments (Chan, Golub
// and LeVeque 1979): those of the union are the sums of the parts' own and of what their means differ by.
template <class Each>
Stats stats_of(const Problem& p, const Each& each) {
  const auto size = static_cast<double>(p.group_size());
  double mean = 0, squares = 0;
  each([&](double of_part, double, double rows) { mean += rows * of_part; });
  mean /= size;
  each([&](double of_part, double m2, double rows) { squares += m2 + rows * (of_part - mean) * (of_part - mean); });
  return {mean, 1 / std::sqrt(squares / size + p.eps)};
}

Stats group_stats(const Problem& p, DType dtype, const Tensors& t, std::int64_t image, std::int64_t group) {
  const std::int64_t width = p.channels_per_group();
  if (!p.given()) {
    std::vector<float> row(static_cast<std::size_t>(width));
    return stats_of(p, [&](const auto& body) {
      for (std::int64_t s = image * p.hw; s < (image + 1) * p.hw; ++s) {
        load_channels(p, dtype, t, s, group * width, width, row.data());
        for (const float value : row) body(value, 0, 1);
      }
    });
  }
  return stats_of(p, [&](const auto& body) {
    for (std::int64_t slab = 0; slab < p.given_slabs(); ++slab) {
      const std::int64_t first = (image * p.given_slabs() + slab) * p.channels + group * width;
      for (std::int64_t at = first; at < first + width; ++at)
        body(t.slab_mean[at], t.slab_m2[at], static_cast<double>(p.given_rows(slab)));
    }
  });
}

// The oracle: two passes in double over each group that a wanted element lies in.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, skip{dtype, t.skip}, gamma{p.affine_dtype(dtype), t.gamma},
      beta{p.affine_dtype(dtype), t.beta}, scale{dtype, t.scale}, shift{dtype, t.shift};

  // Image, and image and group (as image * groups + group), of an element of the wanted output.
  const bool by_group = output == "mean" || output == "rstd";
  const auto image_of = [&](std::int64_t element) {
    return element / ((output == "coefficients" ? 2 : p.y_pixels()) * p.channels);
  };
  const auto group_of = [&](std::int64_t element) {
    return by_group ? element : image_of(element) * p.groups + element % p.channels / p.channels_per_group();
  };
  std::vector<std::int64_t> wanted;
  for (const std::int64_t element : elements) wanted.push_back(group_of(element));
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<Stats> stats(wanted.size());
  parallel_for(static_cast<std::int64_t>(wanted.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      stats[i] = group_stats(p, dtype, t, wanted[i] / p.groups, wanted[i] % p.groups);
  });

  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::int64_t element = elements[i];
    const auto place = std::lower_bound(wanted.begin(), wanted.end(), group_of(element)) - wanted.begin();
    const Stats& group = stats[static_cast<std::size_t>(place)];
    if (by_group) {
      values[i] = output == "mean" ? group.mean : group.rstd;
      continue;
    }
    const std::int64_t channel = element % p.channels, row = element / p.channels;
    const auto affine = [&](double value) {
      value = (value - group.mean) * group.rstd * gamma[channel] + beta[channel];
      if (!p.scale_shift()) return value;
      const std::int64_t at = image_of(element) * p.scale_shift_stride() + channel;
      return value * (1 + scale[at]) + (p.packed ? scale[at + p.channels] : shift[at]);
    };
    if (output == "coefficients") {
      values[i] = row % 2 == 0 ? affine(1) - affine(0) : affine(0);
      continue;
    }
    const auto at = [&](std::int64_t pixel) {
      const std::int64_t in_skip = channel - p.x_channels();
      return in_skip < 0 ? x[pixel * p.x_channels() + channel] : skip[pixel * p.skip_channels + in_skip];
    };
    const auto normed = [&](std::int64_t pixel) {
      const double value = affine(at(pixel));
      return p.fusion == Fusion::none ? value : exact::silu(value);
    };
    if (!p.down()) {
      values[i] = normed(row);
      continue;
    }
    const std::int64_t first = p.first_of_four(row);
    values[i] = 0;
    for (const std::int64_t corner : {first, first + 1, first + p.down_w, first + p.down_w + 1})
      values[i] += (output == "x_down" ? at(corner) : normed(corner)) / 4;
  }
}

}  // namespace

constinit const Definition definition{"groupnorm", fields, check, visit_tensors, cost, tolerance, reference, variants};

Tensors unpacked(const Problem& p, DType dtype, Tensors t) {
  if (p.packed)
    t.shift = static_cast<const std::byte*>(t.scale) + p.channels * static_cast<std::int64_t>(size_of(dtype));
  return t;
}

void load_channels(const Problem& p, DType dtype, const Tensors& t, std::int64_t pixel, std::int64_t first,
                   std::int64_t count, float* out) {
  const std::int64_t of_x = std::clamp<std::int64_t>(p.x_channels() - first, 0, count);
  if (of_x > 0) load_floats(dtype, t.x, pixel * p.x_channels() + first, of_x, out);
  if (of_x < count)
    load_floats(dtype, t.skip, pixel * p.skip_channels + first + of_x - p.x_channels(), count - of_x, out + of_x);
}

}  // namespace noisefloor::groupnorm
