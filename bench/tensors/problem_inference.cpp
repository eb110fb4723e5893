#include "bench/tensors/problem_inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace noisefloor {
namespace {

using Values = std::map<std::string, std::string>;  // field -> text

// An extent that differs counts one; a tensor too few or too many, or of another rank, more than all its extents.
constexpr int kOtherRank = 100;
constexpr int kOtherTensors = 10'000;
constexpr int kNoProblem = 1'000'000;
constexpr std::int64_t kLargestExtent = std::int64_t{1} << 48;  // far above any op's, so that no sum overflows
constexpr std::size_t kMostDeviations = 2;                      // choices that may differ from their defaults at once

std::int64_t number(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

class Search {
 public:
  Search(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes) : op_(op), shapes_(shapes) {
    for (const KeyValue& pair : given) given_[pair.key] = pair.value;
    require_tractable();
    for (const auto& [name, shape] : shapes)
      if (shape) extents_.insert(shape->begin(), shape->end());
    std::erase_if(extents_, [](std::int64_t extent) { return extent > kLargestExtent; });
    for (const FieldInfo& field : op.fields) {
      if (given_.count(field.name) != 0 || field.type == FieldInfo::Type::real) continue;
      (field.chosen() ? choices_ : integers_).push_back(&field);
    }
  }

  AnyProblem run() {
    std::vector<Values> fits;
    for (std::size_t deviations = 0; deviations <= kMostDeviations && fits.empty(); ++deviations)
      try_choices(0, deviations, given_, fits);
    if (fits.empty()) refuse_nearest();
    require_one_choice(fits);
    require_one_integer(fits.front());
    return parse(fits.front());
  }

 private:
  // The search tries every extent for every field: a whole checkpoint would keep it busy for hours, and is not an op's
  // input.
  void require_tractable() const {
    constexpr std::size_t kMostTensors = 16, kHighestRank = 8;  // no op has more than half of either
    if (shapes_.size() > kMostTensors)
      throw InvalidInput(fmt::format("{} tensors are more than any problem of {} has ('{}' is the first of them)",
                                     shapes_.size(), op_.name, shapes_.begin()->first));
    for (const auto& [name, shape] : shapes_)
      if (shape && shape->size() > kHighestRank)
        throw InvalidInput(
            fmt::format("tensor '{}' has {} dimensions; no op's has more than {}", name, shape->size(), kHighestRank));
  }

  AnyProblem parse(const Values& values) const {
    std::vector<KeyValue> pairs;
    for (const auto& [key, value] : values) pairs.push_back({key, value});
    return op_.parse_pairs(pairs);
  }

  std::vector<TensorSpec> inputs(const Values& values) const {
    std::vector<TensorSpec> specs = op_.tensors(parse(values), op_.dtypes.front());
    std::erase_if(specs, [](const TensorSpec& spec) { return spec.role == Role::out; });
    return specs;
  }

  // 0 where the problem's inputs are the tensors.
  int distance(const Values& values) {
    std::vector<TensorSpec> specs;
    try {
      specs = inputs(values);
    } catch (const InvalidInput& error) {
      if (why_no_problem_.empty()) why_no_problem_ = error.what();
      return kNoProblem;
    }
    int sum = 0;
    std::size_t met = 0;
    for (const TensorSpec& spec : specs) {
      const auto found = shapes_.find(spec.name);
      if (found == shapes_.end()) {
        sum += kOtherTensors;
        continue;
      }
      ++met;
      if (!found->second) continue;
      if (found->second->size() != spec.shape.size()) {
        sum += kOtherRank;
        continue;
      }
      for (std::size_t i = 0; i < spec.shape.size(); ++i) sum += spec.shape[i] != (*found->second)[i];
    }
    sum += kOtherTensors * static_cast<int>(shapes_.size() - met);
    if (sum < nearest_distance_) {
      nearest_distance_ = sum;
      nearest_ = values;
    }
    return sum;
  }

  // Values that would make one extent right, were it proportional to the field, or the field plus something.
  std::set<std::int64_t> candidates(const FieldInfo& field, const Values& values) const {
    const auto set = values.find(field.name);
    const std::int64_t now = number(set != values.end() ? set->second : field.fallback.value_or("1"));
    std::set<std::int64_t> found;
    for (const TensorSpec& spec : inputs(values)) {
      const auto known = shapes_.find(spec.name);
      if (known == shapes_.end() || !known->second || known->second->size() != spec.shape.size()) continue;
      for (std::size_t i = 0; i < spec.shape.size(); ++i) {
        const std::int64_t wanted = (*known->second)[i], is = spec.shape[i];
        if (wanted == is || wanted > kLargestExtent) continue;
        found.insert({wanted, now + wanted - is});
        std::int64_t product = 0;
        if (is > 0 && !__builtin_mul_overflow(now, wanted, &product) && product % is == 0) found.insert(product / is);
      }
    }
    std::erase_if(found, [&](std::int64_t value) { return value < field.low || value > field.high || value == now; });
    return found;
  }

  // Moves one field at a time to where most extents are right, or two of them to the same value, which an op may demand
  // (as many keys as queries). A field that is not in `values` has its default.
  int descend(Values& values, const std::vector<const FieldInfo*>& fields) {
    int best = distance(values);
    for (bool moved = true; moved && best > 0 && best < kNoProblem;) {
      moved = false;
      for (const FieldInfo* field : fields) {
        Values best_values = values;
        for (const std::int64_t candidate : candidates(*field, values)) {
          Values trial = values;
          trial[field->name] = std::to_string(candidate);
          if (const int after = distance(trial); after < best) {
            best = after;
            best_values = std::move(trial);
            moved = true;
          }
        }
        values = std::move(best_values);
      }
      for (std::size_t i = 0; i < fields.size() && !moved; ++i)
        for (std::size_t j = i + 1; j < fields.size() && !moved; ++j) {
          if (fields[i]->fallback || fields[j]->fallback) continue;
          for (const std::int64_t extent : extents_) {
            Values trial = values;
            trial[fields[i]->name] = trial[fields[j]->name] = std::to_string(extent);
            const int after = distance(trial);
            if (after >= best) continue;
            best = after;
            values = std::move(trial);
            moved = true;
            break;
          }
        }
    }
    return best;
  }

  // Gives every integer without a default a value, and one with a default where the tensors demand another.
  int solve(Values& values) {
    std::vector<const FieldInfo*> open;
    std::set<std::int64_t> starts = {1, 64};
    starts.insert(extents_.begin(), extents_.end());
    for (const FieldInfo* field : integers_)
      if (!field->fallback) open.push_back(field);
    int best = kNoProblem;
    Values best_values;
    for (const std::int64_t start : starts) {  // not every value makes a problem of all fields
      Values trial = values;
      for (const FieldInfo* field : open)
        trial[field->name] = std::to_string(std::clamp(start, field->low, field->high));
      if (distance(trial) == kNoProblem) continue;
      for (const auto* fields : {&open, &integers_}) {
        if (const int after = descend(trial, *fields); after < best) {
          best = after;
          best_values = trial;
        }
        if (best == 0) break;
      }
      if (best == 0 || open.empty()) break;
    }
    if (best < kNoProblem) values = std::move(best_values);
    return best;
  }

  // Every value of the choices without a default, and of those with one, all ways in which `deviations` of them differ
  // from it.
  void try_choices(std::size_t index, std::size_t deviations, Values values, std::vector<Values>& fits) {
    if (index == choices_.size()) {
      if (deviations == 0 && solve(values) == 0) fits.push_back(std::move(values));
      return;
    }
    const FieldInfo& field = *choices_[index];
    for (const std::string& choice : field.choices) {
      const std::size_t deviates = field.fallback && *field.fallback != choice ? 1 : 0;
      if (deviates > deviations) continue;
      values[field.name] = choice;
      try_choices(index + 1, deviations - deviates, values, fits);
    }
  }

  void require_one_choice(const std::vector<Values>& fits) const {
    std::string open;
    for (const FieldInfo* field : choices_) {
      std::set<std::string> seen;
      for (const Values& values : fits) seen.insert(values.at(field->name));
      if (seen.size() > 1)
        open += fmt::format("{}{} ({})", open.empty() ? "" : ", ", field->name, fmt::join(seen, ", "));
    }
    if (!open.empty()) refuse_open(open);
  }

  // A field that has another value with which the tensors fit as well, when the others follow, is open; but one that
  // keeps its default.
  void require_one_integer(const Values& solution) {
    std::string open;
    for (const FieldInfo* field : integers_) {
      const auto set = solution.find(field->name);
      if (set == solution.end() || field->fallback == set->second) continue;
      const std::string& text = set->second;
      std::vector<const FieldInfo*> others;
      std::copy_if(integers_.begin(), integers_.end(), std::back_inserter(others),
                   [&](const FieldInfo* other) { return other != field; });
      const std::int64_t value = number(text);
      // Not every value makes a problem (groups divide channels), so more than a neighbour is tried.
      std::set<std::int64_t> alternatives = extents_;
      alternatives.insert({1, 2, 3, 2 * value, 3 * value, value / 2, value + 1, value - 1});
      for (const std::int64_t other : alternatives) {
        if (other == value || other < field->low || other > field->high) continue;
        Values trial = solution;
        trial[field->name] = std::to_string(other);
        if (descend(trial, others) != 0) continue;
        open += fmt::format("{}{}", open.empty() ? "" : ", ", field->name);
        break;
      }
    }
    if (!open.empty()) refuse_open(open);
  }

  [[noreturn]] void refuse_open(const std::string& fields) const {
    throw InvalidInput(
        fmt::format("the tensors fit more than one problem of {}; give --problem its {}", op_.name, fields));
  }

  [[noreturn]] void refuse_nearest() const {
    if (nearest_.empty())
      throw InvalidInput(why_no_problem_.empty() ? fmt::format("op '{}' has no problem with such tensors", op_.name)
                                                 : why_no_problem_);
    std::vector<std::string> differences;
    const auto specs = inputs(nearest_);
    for (const auto& [name, shape] : shapes_) {
      const auto found = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& s) { return s.name == name; });
      if (found == specs.end())
        differences.push_back(fmt::format("'{}' is not one of its inputs", name));
      else if (shape && found->shape != *shape)
        differences.push_back(
            fmt::format("'{}' is [{}], there [{}]", name, fmt::join(*shape, ", "), fmt::join(found->shape, ", ")));
    }
    for (const TensorSpec& spec : specs)
      if (shapes_.find(spec.name) == shapes_.end())
        differences.push_back(fmt::format("its '{}' [{}] is missing (--random {} makes it)", spec.name,
                                          fmt::join(spec.shape, ", "), spec.name));
    throw InvalidInput(fmt::format("the tensors fit no problem of {}{}; nearest is {}: {}", op_.name,
                                   given_.empty() ? "" : " with the fields of --problem", op_.print(parse(nearest_)),
                                   fmt::join(differences, "; ")));
  }

  const Workload& op_;
  const KnownShapes& shapes_;
  Values given_;
  std::vector<const FieldInfo*> integers_, choices_;  // those that are not given
  std::set<std::int64_t> extents_;                    // of all tensors
  int nearest_distance_ = kNoProblem;
  Values nearest_;
  std::string why_no_problem_;
};

}  // namespace

AnyProblem infer_problem(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes) {
  return Search(op, given, shapes).run();
}

}  // namespace noisefloor
