// Small problems of an op, from nothing but its fields.
#include <algorithm>
#include <random>

#include "bench/tensors/problem_inference.h"
#include "python/call.h"

namespace noisefloor::python {
namespace {

constexpr std::size_t kDraws = 12;  // for each problem, as not every draw is one

// Numbers of std::mt19937_64 are the same everywhere; those of the standard's distributions are not.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t count) { return random_() % count; }

  // Integers are small, and often a multiple of another: groups divide channels, keys are as many as queries.
  std::string value(const FieldInfo& field) {
    if (field.chosen()) return field.choices[below(field.choices.size())];
    if (field.type == FieldInfo::Type::real)
      return number(std::clamp(0.5 * static_cast<double>(below(5)), field.real_low, field.real_high));
    std::int64_t value = static_cast<std::int64_t>(1 + below(13));
    if (!last_.empty() && below(3) == 0) value = last_[below(last_.size())] * static_cast<std::int64_t>(1 + below(2));
    value = std::clamp(value, field.low, field.high);
    last_.push_back(value);
    return std::to_string(value);
  }
  void begin() { last_.clear(); }

 private:
  static std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
  }
  std::mt19937_64 random_;
  std::vector<std::int64_t> last_;
};

}  // namespace

std::vector<Sample> samples(const Op& op, std::uint64_t seed, std::size_t count) {
  Draw draw(seed);
  std::vector<Sample> found;
  for (std::size_t i = 0; i < kDraws * count && found.size() < count; ++i) {
    const bool defaults = i < kDraws * count / 4 && found.size() < count / 4;
    std::vector<KeyValue> pairs;
    draw.begin();
    for (const FieldInfo& field : op.fields)
      if (!field.fallback || (!defaults && draw.below(2) == 0)) pairs.push_back({field.name, draw.value(field)});
    try {
      const AnyProblem problem = op.parse_pairs(std::move(pairs));
      Sample sample{op.values(problem), op.tensors(problem, DType::fp32), {}};
      const std::vector<TensorSpec> other = op.tensors(problem, DType::fp16);
      for (std::size_t k = 0; k < other.size(); ++k)
        sample.row_dtype.push_back(other[k].dtype != sample.specs[k].dtype);
      found.push_back(std::move(sample));
    } catch (const InvalidInput&) {  // not every draw is a problem
    }
  }
  return found;
}

bool moves_inputs(const Op& op, const FieldInfo& field, const std::vector<Sample>& samples) {
  const auto inputs = [](std::vector<TensorSpec> specs) {
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> named;
    for (TensorSpec& spec : specs)
      if (spec.role != Role::out) named.emplace_back(spec.name, std::move(spec.shape));
    return named;
  };
  Draw draw(1);
  for (const Sample& sample : samples)
    for (int again = 0; again < 2; ++again) {
      std::vector<KeyValue> pairs = sample.values;
      for (KeyValue& pair : pairs)
        if (pair.key == field.name) pair.value = draw.value(field);
      try {
        if (inputs(op.tensors(op.parse_pairs(std::move(pairs)), DType::fp32)) != inputs(sample.specs)) return true;
      } catch (const InvalidInput&) {
      }
    }
  return false;
}

bool left_open(const Op& op, const FieldInfo& field, const std::vector<Sample>& samples) {
  constexpr std::size_t kEvery = 20;  // a search each
  if (field.fallback) return false;
  for (std::size_t i = 0; i < samples.size(); i += kEvery) {
    KnownShapes shapes;
    for (const TensorSpec& spec : samples[i].specs)
      if (spec.role != Role::out) shapes[spec.name] = spec.shape;
    std::vector<KeyValue> others = samples[i].values;
    std::erase_if(others, [&](const KeyValue& pair) { return pair.key == field.name; });
    try {
      infer_problem(op, others, shapes);
    } catch (const InvalidInput&) {
      return true;
    }
  }
  return false;
}

}  // namespace noisefloor::python
