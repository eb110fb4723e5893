#include "kernels/resample/resample.h"

#include <string>

namespace noisefloor::resample {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr const char* kOperations[] = {"nearest_up2", "average_down2", "concat"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;
constexpr std::int64_t kMaxChannels = 65536;                // where pixels have neighbours
constexpr std::int64_t kMaxConcatChannels = kMaxTotal / 2;  // a pixel may be a whole tensor: two of them in a row

[[noreturn]] void refuse(const std::string& message) {
  throw InvalidInput("problem: " + message);
}

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  visit.enumeration("op", p.op, kOperations);
  visit.integer("n", p.n, 1, 65535, 1);
  visit.integer("h", p.h, 1, 16384);
  visit.integer("w", p.w, 1, 16384);
  visit.integer("channels", p.channels, 1, kMaxConcatChannels);
  visit.integer("skip_channels", p.skip_channels, 0, kMaxConcatChannels, 0);
}

void Definition::check(const Problem& p) {
  if (p.op == Operation::concat && p.skip_channels == 0)
    refuse("field skip_channels is 0, its range with op=concat is 1 to " + std::to_string(kMaxConcatChannels));
  if (p.op != Operation::concat && p.skip_channels != 0)
    refuse("field skip_channels is for op=concat, not " + std::string(kOperations[static_cast<int>(p.op)]));
  if (p.op != Operation::concat && p.channels > kMaxChannels)
    refuse("field channels is " + std::to_string(p.channels) + ", its range without op=concat is 1 to " +
           std::to_string(kMaxChannels));
  if (p.op == Operation::average_down2 && (p.h % 2 != 0 || p.w % 2 != 0))
    refuse("fields h and w are " + std::to_string(p.h) + " and " + std::to_string(p.w) +
           "; op=average_down2 takes even ones");
  // By division: n * out_h * out_w is at most 2^46, and times 2^33 channels would not fit 63 bits.
  if (p.out_channels() > kMaxTotal / (p.n * p.out_h() * p.out_w()) || p.channels > kMaxTotal / (p.n * p.h * p.w))
    refuse("fields n, h, w and channels make more than 2^33 elements");
}

std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const Fill unit{Fill::Kind::normal, 0, 1};
  std::vector<TensorSpec> specs{{"x", {p.n, p.h, p.w, p.channels}, dtype, Role::in, unit}};
  if (p.op == Operation::concat) specs.push_back({"skip", {p.n, p.h, p.w, p.skip_channels}, dtype, Role::in, unit});
  specs.push_back({"y", {p.n, p.out_h(), p.out_w(), p.out_channels()}, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x = pointers.next();
  t.skip = pointers.next_if(p.op == Operation::concat);
  t.y = pointers.next();
  return t;
}

// Three additions and a product; what only moves counts one per element, so that its rate can be drawn on a roofline.
Cost Definition::cost(const Problem& p, DType dtype) {
  double bytes = 0;
  for (const TensorSpec& spec : tensors(p, dtype)) bytes += static_cast<double>(spec.bytes());
  return {(p.moves_data() ? 1 : 4) * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// Means are rounded once, after three fp32 additions of terms whose sum may cancel. Where values only move, a quarter
// of a unit allows nothing but the same bits.
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(dtype);
  if (p.moves_data()) return {u / 4, u / 4};
  const double arithmetic = 16 * unit_roundoff(DType::fp32);
  return {u + arithmetic, u + arithmetic};
}

}  // namespace noisefloor::resample
