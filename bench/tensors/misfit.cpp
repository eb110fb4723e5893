#include "bench/tensors/misfit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace noisefloor {
namespace {

AnyProblem parse(const Workload& op, const FieldValues& values) {
  std::vector<KeyValue> pairs;
  for (const auto& [key, value] : values) pairs.push_back({key, value});
  return op.parse_pairs(pairs);
}

const TensorSpec* find(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

// The integers that an extent follows: "k=24".
std::string deciding(const Workload& op, ShapeFit& fit, const FieldValues& values, const TensorSpec& spec,
                     std::size_t extent) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 48;  // of those that shapes have
  std::vector<std::string> fields;
  for (const KeyValue& pair : op.values(parse(op, values))) {
    const auto field =
        std::find_if(op.fields.begin(), op.fields.end(), [&](const FieldInfo& info) { return info.name == pair.key; });
    if (field->type != FieldInfo::Type::integer) continue;
    const std::int64_t value = std::stoll(pair.value);
    if (value > kLargest) continue;
    for (const std::int64_t factor : {2, 3}) {
      FieldValues other = values;
      other[pair.key] = std::to_string(factor * value);
      const auto specs = fit.inputs(other).value_or(std::vector<TensorSpec>());
      const TensorSpec* same = find(specs, spec.name);
      if (same == nullptr || same->shape.size() <= extent || same->shape[extent] == spec.shape[extent]) continue;
      fields.push_back(fmt::format("{}={}", pair.key, pair.value));
      break;
    }
  }
  return fmt::format("{}", fmt::join(fields, ", "));
}

std::string difference(const Workload& op, ShapeFit& fit, const FieldValues& values, const TensorSpec& spec,
                       const std::vector<std::int64_t>& shape) {
  std::set<std::string> fields;
  if (shape.size() == spec.shape.size())
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (shape[i] != spec.shape[i]) fields.insert(deciding(op, fit, values, spec, i));
  fields.erase("");
  return fmt::format("'{}' is [{}], there [{}]{}", spec.name, fmt::join(shape, ", "), fmt::join(spec.shape, ", "),
                     fields.empty() ? "" : fmt::format(" ({})", fmt::join(fields, ", ")));
}

}  // namespace

Misfit nearest_misfit(const Workload& op, const KnownShapes& shapes, ShapeFit& fit) {
  FieldValues nearest = fit.nearest();
  fit.descend(nearest, fit.integers());
  nearest = fit.nearest();
  std::vector<std::string> differences;
  const std::vector<TensorSpec> specs = *fit.inputs(nearest);
  for (const auto& [name, shape] : shapes) {
    const TensorSpec* found = find(specs, name);
    if (found == nullptr)
      differences.push_back(fmt::format("'{}' is not one of its inputs", name));
    else if (shape && found->shape != *shape)
      differences.push_back(difference(op, fit, nearest, *found, *shape));
  }
  for (const TensorSpec& spec : specs)
    if (!shapes.contains(spec.name))
      differences.push_back(fmt::format("its '{}' [{}] is missing{}", spec.name, fmt::join(spec.shape, ", "),
                                        fit.wording().random ? fmt::format(" (--random {} makes it)", spec.name) : ""));
  return {op.print(parse(op, nearest)), fmt::format("{}", fmt::join(differences, "; "))};
}

}  // namespace noisefloor
