#include "kernels/resample/resample.h"

#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::resample {
namespace {

constexpr const char* kOperations[] = {"nearest_up2", "average_down2", "concat", "split"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;
constexpr std::int64_t kMaxChannels = 65536;                // where pixels have neighbours
constexpr std::int64_t kMaxConcatChannels = kMaxTotal / 2;  // a pixel may be a whole tensor: two of them in a row

bool of_two(Operation op) {
  return op == Operation::concat || op == Operation::split;
}

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("nearest-neighbour upsampling, average pooling, or the concatenation of channels");
  visit.enumeration(
      "op",
      "nearest_up2 doubles height and width, average_down2 halves them (2x2 means), concat puts skip after x, "
      "split undoes it",
      p.op, kOperations);
  visit.integer("n", "images", p.n, 1, 65535, 1);
  visit.integer("h", "height of x in pixels", p.h, 1, 16384);
  visit.integer("w", "width of x in pixels", p.w, 1, 16384);
  visit.integer("channels", "channels of x; split: of y", p.channels, 1, kMaxConcatChannels);
  visit.integer("skip_channels", "concat, split: channels of skip", p.skip_channels, 0, kMaxConcatChannels, 0);
  visit.real("scale", "factor of y; a backward pass of average_down2 has 0.25, of nearest_up2 4", p.scale, -1e6, 1e6,
             1.0);
}

void check(const Problem& p) {
  const std::string op = kOperations[static_cast<int>(p.op)];
  if (of_two(p.op) && p.skip_channels == 0)
    refuse("field skip_channels is 0, its range with op=" + op + " is 1 to " + std::to_string(kMaxConcatChannels));
  if (!of_two(p.op) && p.skip_channels != 0) refuse("field skip_channels is for op=concat and op=split, not " + op);
  if (of_two(p.op) && p.scale != 1) refuse("field scale is for op=nearest_up2 and op=average_down2, not " + op);
  if (!of_two(p.op) && p.channels > kMaxChannels)
    refuse("field channels is " + std::to_string(p.channels) + ", its range with op=" + op + " is 1 to " +
           std::to_string(kMaxChannels));
  if (p.op == Operation::average_down2 && (p.h % 2 != 0 || p.w % 2 != 0))
    refuse("fields h and w are " + std::to_string(p.h) + " and " + std::to_string(p.w) +
           "; op=average_down2 takes even ones");
  // By division: n * out_h * out_w is at most 2^46, and times 2^33 channels would not fit 63 bits.
  if (p.out_channels() > kMaxTotal / (p.n * p.out_h() * p.out_w()) || p.channels > kMaxTotal / (p.n * p.h * p.w))
    refuse("fields n, h, w and channels make more than 2^33 elements");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents image{"n", "h", "w", "channels"}, skip{"n", "h", "w", "skip_channels"},
      both{"n", "h", "w", "channels + skip_channels"};
  const bool split = p.op == Operation::split;
  visit.when(!split, "op!=split").in("x", t.x, image);
  visit.when(split, "op=split").in("x", t.x, both);
  visit.when(p.op == Operation::concat, "op=concat").in("skip", t.skip, skip);
  visit.when(p.op == Operation::nearest_up2, "op=nearest_up2").out("y", t.y, {"n", "2*h", "2*w", "channels"});
  visit.when(p.op == Operation::average_down2, "op=average_down2").out("y", t.y, {"n", "h/2", "w/2", "channels"});
  visit.when(p.op == Operation::concat, "op=concat").out("y", t.y, both);
  visit.when(split, "op=split").out("y", t.y, image);
  visit.when(split, "op=split").out("skip", t.skip_out, skip);
}

// Three additions and a product; what only moves counts one per element, so that its rate can be drawn on a roofline,
// as does nearest_up2's product.
Cost cost(const Problem& p, DType, double bytes) {
  return {(p.op != Operation::average_down2 ? 1 : 4) * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// Means are rounded once, after three fp32 additions of terms whose sum may cancel. Where values only move, a quarter
// of a unit allows nothing but the same bits.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(dtype);
  if (p.moves_data()) return {u / 4, u / 4};
  const double arithmetic = 16 * unit_roundoff(DType::fp32);
  return {u + arithmetic, u + arithmetic};
}

// The oracle: each element from its place, in double.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, skip{dtype, t.skip};
  if (p.op == Operation::split) {
    const bool of_y = output == "y";
    const std::int64_t own = of_y ? p.channels : p.skip_channels, first = of_y ? 0 : p.channels;
    for (std::size_t e = 0; e < elements.size(); ++e)
      values[e] = x[elements[e] / own * p.out_channels() + first + elements[e] % own];
    return;
  }
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t channel = elements[e] % p.out_channels(), pixel = elements[e] / p.out_channels();
    const std::int64_t column = pixel % p.out_w(), row = pixel / p.out_w();  // row: of all images
    const auto at = [&](std::int64_t r, std::int64_t c) { return x[(r * p.w + c) * p.channels + channel]; };
    if (p.op == Operation::nearest_up2) {
      values[e] = p.scale * at(row / 2, column / 2);  // 2h is even: rows of different images never meet
    } else if (p.op == Operation::average_down2) {
      const double sum = at(2 * row, 2 * column) + at(2 * row, 2 * column + 1) + at(2 * row + 1, 2 * column) +
                         at(2 * row + 1, 2 * column + 1);
      values[e] = p.scale * sum / 4;
    } else {
      values[e] = channel < p.channels ? at(row, column) : skip[pixel * p.skip_channels + channel - p.channels];
    }
  }
}

}  // namespace

constinit const Definition definition{"resample", fields, check, visit_tensors, cost, tolerance, reference, variants};

}  // namespace noisefloor::resample
