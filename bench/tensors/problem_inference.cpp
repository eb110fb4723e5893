#include "bench/tensors/problem_inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace noisefloor {
namespace {

std::vector<Fit> fits_of(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes) {
  try {
    return Unification(op, given, shapes).fits();
  } catch (const InvalidInput&) {  // no such fields, or too many to try
    return {};
  }
}

// A tensor's shape, with formulas where a fit leaves it open: "[2, hw, 32]"; and the fields that extents follow which
// are not as given: " (channels=32)".
std::string shape_text(const Workload& op, const Fit& fit, std::string_view tensor,
                       const std::vector<std::int64_t>& given) {
  const auto rule = std::ranges::find_if(op.table.rules, [&](const TensorRule& one) {
    return one.name == tensor && fit.symbols.evaluate(one.condition) != 0;
  });
  std::vector<std::string> extents;
  std::set<std::string> fields;
  for (std::size_t i = 0; i < rule->shape.size(); ++i) {
    const std::string_view formula = formula_of(rule->shape[i]);
    const Symbols::Value value = fit.symbols.evaluate(formula);
    extents.push_back(value ? std::to_string(*value) : std::string(formula));
    if (given.size() != rule->shape.size() || value == given[i]) continue;
    for (const std::size_t field : fit.symbols.fields_in(formula))
      if (op.fields[field].type == FieldInfo::Type::integer)
        fields.insert(op.fields[field].name +
                      (fit.values[field] == kOpen ? ": " + op.fields[field].range() : "=" + fit.values[field]));
  }
  return fmt::format("[{}]{}", fmt::join(extents, ", "),
                     fields.empty() ? "" : fmt::format(" ({})", fmt::join(fields, ", ")));
}

// Of tensors that fit no problem: what would, were one of them, or one of the given fields, another; and the reason
// that is known.
std::string refusal(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes,
                    const Wording& wording, const std::string& reason) {
  std::vector<std::string> wrong, inputs;
  std::set<std::string> names;
  for (const auto& [name, shape] : shapes) names.insert(name);
  for (const TensorRule& rule : op.table.rules) {
    if (rule.role == Role::out) continue;
    names.insert(rule.name);
    inputs.push_back(fmt::format("{} [{}]", rule.name, fmt::join(rule.shape, ", ")));
  }
  for (const std::string& name : names) {
    const auto known = shapes.find(name);
    const std::size_t rank = known == shapes.end() || !known->second ? 0 : known->second->size();
    std::optional<Fit> best;
    for (std::size_t i = 0; i < rank || (i == rank && !best); ++i) {  // one extent, else all of them
      KnownShapes others = shapes;
      if (i < rank)
        (*others[name])[i] = kAnyExtent;
      else
        others[name].reset();
      for (Fit& fit : fits_of(op, given, others))
        if ((fit.problem || reason.empty()) && (!best || fit.departures < best->departures)) best = std::move(fit);
    }
    KnownShapes without = shapes;
    if (without.erase(name) > 0 && !fits_of(op, given, without).empty())
      wrong.push_back(fmt::format("'{}' is not one of its inputs", name));
    if (!best) continue;
    if (known == shapes.end())
      wrong.push_back(fmt::format("its '{}' {} is missing{}", name, shape_text(op, *best, name, {}),
                                  wording.random ? fmt::format(" (--random {} makes it)", name) : ""));
    else if (known->second)
      wrong.push_back(fmt::format("'{}' is [{}], there {}", name, fmt::join(*known->second, ", "),
                                  shape_text(op, *best, name, *known->second)));
  }
  for (const KeyValue& field : given) {
    std::vector<KeyValue> others = given;
    std::erase_if(others, [&](const KeyValue& other) { return other.key == field.key; });
    const auto place =
        static_cast<std::size_t>(std::ranges::find(op.fields, field.key, &FieldInfo::name) - op.fields.begin());
    std::set<std::string> fitting;
    for (const Fit& fit : fits_of(op, others, shapes))
      fitting.insert(fit.problem && fit.values[place] != kAnother ? field.key + "=" + fit.values[place] : kAnother);
    if (!fitting.empty())
      wrong.push_back(
          fmt::format("{}={} clashes with them, {} would fit", field.key, field.value, fmt::join(fitting, " or ")));
  }
  if (!reason.empty()) wrong.push_back(reason);
  const auto stranger = std::ranges::find_if(
      shapes, [&](const auto& one) { return std::ranges::count(op.table.rules, one.first, &TensorRule::name) == 0; });
  const std::string first = stranger == shapes.end() ? "" : fmt::format("'{}' is not one of them: ", stranger->first);
  if (wrong.empty()) wrong.push_back(fmt::format("{}its inputs are {}", first, fmt::join(inputs, ", ")));
  const bool of_images =
      std::ranges::any_of(op.fields, [](const auto& f) { return f.name == "h" || f.name == "hw"; }) &&
      std::ranges::any_of(shapes, [](const auto& s) { return s.second && s.second->size() > 3; });
  return fmt::format("the tensors fit no problem of {}{}: {}{}", op.name,
                     given.empty() ? "" : std::string(" ") + wording.given, fmt::join(wrong, "; "),
                     of_images ? "; images are channels-last" : "");
}

// The fields that must be given, for the tensors to be of one problem: "groups", "pad (1, 5)"; choices that have no
// default before all others.
std::vector<std::string> open_fields(const Workload& op, const std::vector<Fit>& fits) {
  constexpr std::int64_t kMostValues = 64;  // of a field whose values are told: of others not all were tried
  std::vector<std::string> required, others;
  for (std::size_t i = 0; i < op.fields.size(); ++i) {
    const FieldInfo& field = op.fields[i];
    std::set<std::string> values;
    for (const Fit& fit : fits) values.insert(fit.values[i]);
    if (values.size() == 1 && *values.begin() != kOpen && *values.begin() != kAnother) continue;
    std::string text = field.name;
    if (values.contains(kAnother))
      text += " (" + field.range() + (values.size() == 1 ? ", but not " + *field.fallback : "") + ")";
    else if (!values.contains(kOpen) && field.high - field.low < kMostValues)
      text += fmt::format(" ({})", fmt::join(values, ", "));
    (field.chosen() && !field.fallback ? required : others).push_back(text);
  }
  return required.empty() ? others : required;
}

}  // namespace

AnyProblem infer_problem(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes,
                         const Wording& wording) {
  // A whole checkpoint would keep a refusal busy for long, and is not an op's input.
  constexpr std::size_t kMostTensors = 16, kHighestRank = 8;  // no op has as many
  if (shapes.size() > kMostTensors)
    throw InvalidInput(fmt::format("{} tensors are more than any problem of {} has ('{}' is the first of them)",
                                   shapes.size(), op.name, shapes.begin()->first));
  for (const auto& [name, shape] : shapes)
    if (shape && shape->size() > kHighestRank)
      throw InvalidInput(
          fmt::format("tensor '{}' has {} dimensions; no op's has more than {}", name, shape->size(), kHighestRank));
  Unification unification(op, given, shapes);
  const std::vector<Fit> fits = unification.fits();
  if (fits.empty()) throw InvalidInput(refusal(op, given, shapes, wording, unification.reason()));
  if (const std::vector<std::string> open = open_fields(op, fits); !open.empty())
    throw InvalidInput(fmt::format("the tensors fit more than one problem of {}; {} {}", op.name, wording.give,
                                   fmt::join(open, ", ")));
  return *fits.front().problem;
}

DType infer_dtype(const Workload& op, const AnyProblem& problem, std::optional<DType> dtype, const KnownTypes& types,
                  std::string_view (*name)(DType), const Wording& wording) {
  std::vector<std::string> reasons, fits;
  std::optional<DType> found;
  for (const DType candidate : op.dtypes) {
    if (dtype && candidate != *dtype) continue;
    std::vector<std::string> wrong;
    for (const TensorSpec& spec : op.tensors(problem, candidate)) {
      const auto type = types.find(spec.name);
      if (type != types.end() && type->second != name(spec.dtype))
        wrong.push_back(fmt::format("'{}' is {}, not {}", spec.name, type->second, name(spec.dtype)));
    }
    if (!wrong.empty()) {
      reasons.push_back(fmt::format("{} {}: {}", op.name, to_string(candidate), fmt::join(wrong, ", ")));
      continue;
    }
    if (!found) found = candidate;
    fits.emplace_back(to_string(candidate));
  }
  if (fits.size() > 1)
    throw InvalidInput(fmt::format("the tensors fit {}; {}", fmt::join(fits, ", "), wording.give_dtype));
  if (!found) throw InvalidInput(fmt::format("no dtype fits the tensors ({})", fmt::join(reasons, "; ")));
  return *found;
}

}  // namespace noisefloor
