#include "bench/tensors/problem_inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/tensors/departures.h"
#include "bench/tensors/misfit.h"

namespace noisefloor {
namespace {

FieldValues values_of(const std::vector<KeyValue>& pairs) {
  FieldValues values;
  for (const KeyValue& pair : pairs) values[pair.key] = pair.value;
  return values;
}

class Search {
 public:
  Search(const Workload& op, const FieldValues& given, const KnownShapes& shapes, const Wording& wording)
      : op_(op), given_(given), shapes_(shapes), fit_(op, shapes, given, wording) {
    for (const FieldInfo& field : op.fields)
      if (!given.contains(field.name) && field.chosen() && !field.fallback) required_.push_back(&field);
  }

  // Those with the fewest departures for each set of choices that have no default; none where nothing fits.
  std::vector<FieldValues> fits() {
    std::vector<FieldValues> all;
    try_choices(0, given_, all);
    return all;
  }

  AnyProblem run() {
    const std::vector<FieldValues> all = fits();
    if (all.empty()) refuse_nearest();
    require_one(all, [&](const FieldInfo& field) { return field.chosen() && !field.fallback; });
    require_one(all, [](const FieldInfo&) { return true; });
    require_known(all.front());
    require_one_integer(all.front());
    return parse(all.front());
  }

 private:
  AnyProblem parse(const FieldValues& values) const {
    std::vector<KeyValue> pairs;
    for (const auto& [key, value] : values) pairs.push_back({key, value});
    return op_.parse_pairs(pairs);
  }

  // Fields with a default that have another value, and that the user did not give.
  std::size_t departures(const FieldValues& fit) const {
    return static_cast<std::size_t>(std::count_if(op_.fields.begin(), op_.fields.end(), [&](const FieldInfo& field) {
      return field.fallback && fit.contains(field.name) && !given_.contains(field.name);
    }));
  }

  void try_choices(std::size_t index, const FieldValues& values, std::vector<FieldValues>& all) {
    if (index == required_.size()) return add_fits(values, all);
    for (const std::string& choice : required_[index]->choices) {
      FieldValues chosen = values;
      chosen[required_[index]->name] = choice;
      try_choices(index + 1, chosen, all);
    }
  }

  void add_fits(const FieldValues& values, std::vector<FieldValues>& all) {
    const auto [base, useful] = departures_from(values, op_, given_, fit_);
    std::set<FieldValues> found;
    std::size_t fewest = op_.fields.size();
    for (std::size_t count = 0; count <= std::min(useful.size(), fewest); ++count)
      combine(useful, 0, count, base, found, fewest);
    for (const FieldValues& fit : found)
      if (departures(fit) == fewest) all.push_back(fit);
  }

  void combine(const std::vector<Departure>& useful, std::size_t index, std::size_t count, const FieldValues& values,
               std::set<FieldValues>& found, std::size_t& fewest) {
    if (count == 0) {
      FieldValues fit = values;
      if (!fit_.same_names(values) || fit_.solve(fit) != 0) return;
      fit_.simplify(fit);
      fewest = std::min(fewest, departures(fit));
      found.insert(std::move(fit));
      return;
    }
    for (; index < useful.size(); ++index) {
      std::size_t next = index + 1;  // at most one of a field
      while (next < useful.size() && useful[next].field == useful[index].field) ++next;
      combine(useful, next, count - 1, with(values, useful[index]), found, fewest);
    }
  }

  template <class Asked>
  void require_one(const std::vector<FieldValues>& all, const Asked& asked) const {
    std::vector<std::string> open;
    for (const FieldInfo& field : op_.fields) {
      if (given_.contains(field.name) || !asked(field)) continue;
      std::set<std::string> seen;
      for (const FieldValues& values : all) {
        const auto set = values.find(field.name);
        seen.insert(set != values.end() ? set->second : *field.fallback);
      }
      if (seen.size() > 1)
        open.push_back(fmt::format(
            "{} ({})", field.name,
            field.type == FieldInfo::Type::real ? field.range() : fmt::format("{}", fmt::join(seen, ", "))));
    }
    if (!open.empty()) refuse_open(open);
  }

  // A real that departs from its default does so by a value that was made up.
  void require_known(const FieldValues& fit) const {
    std::vector<std::string> open;
    for (const FieldInfo& field : op_.fields)
      if (field.type == FieldInfo::Type::real && fit.contains(field.name) && !given_.contains(field.name))
        open.push_back(fmt::format("{} ({}, but not {})", field.name, field.range(), field.fallback.value_or("")));
    if (!open.empty()) refuse_open(open);
  }

  // Whether the tensors fit a near value as well: an extent may follow a quotient (slabs of rows) of what may have to
  // be a multiple of up to four.
  bool has_neighbour(const FieldInfo& field, const FieldValues& fit) {
    const std::int64_t value = std::stoll(fit.at(field.name));
    for (const std::int64_t step : {1, -1, 2, -2, 3, -3, 4, -4}) {
      FieldValues trial = fit;
      trial[field.name] = std::to_string(value + step);
      if (value + step >= field.low && value + step <= field.high && fit_.distance(trial) == 0) return true;
    }
    return false;
  }

  // A field that has another value with which the tensors fit as well, when the others follow, is open; but one that
  // keeps its default.
  void require_one_integer(const FieldValues& fit) {
    std::vector<std::string> open;
    for (const FieldInfo* field : fit_.integers()) {
      const auto set = fit.find(field->name);
      if (set == fit.end()) continue;
      if (has_neighbour(*field, fit)) {
        open.push_back(field->name);
        continue;
      }
      if (fit_.pinned(*field, fit)) continue;
      std::vector<const FieldInfo*> others;
      std::copy_if(fit_.integers().begin(), fit_.integers().end(), std::back_inserter(others),
                   [&](const FieldInfo* other) { return other != field; });
      const std::int64_t value = std::stoll(set->second);
      // Not every value makes a problem (groups divide channels), so more than a neighbour is tried.
      std::set<std::int64_t> alternatives = {1, 2, 3, 2 * value, 3 * value, value / 2, value + 1, value - 1};
      for (const std::int64_t extent : fit_.extents()) alternatives.insert({extent, extent - 1});
      for (const std::int64_t other : alternatives) {
        if (other == value || other < field->low || other > field->high) continue;
        FieldValues trial = fit;
        trial[field->name] = std::to_string(other);
        if (fit_.descend(trial, others) != 0) continue;
        open.push_back(field->name);
        break;
      }
    }
    if (!open.empty()) refuse_open(open);
  }

  [[noreturn]] void refuse_open(const std::vector<std::string>& fields) const {
    throw InvalidInput(fmt::format("the tensors fit more than one problem of {}; {} {}", op_.name, fit_.wording().give,
                                   fmt::join(fields, ", ")));
  }

  // The given fields without which the tensors fit, and what they had to be.
  std::string clashes() const {
    std::vector<std::string> found;
    for (const FieldInfo& field : op_.fields) {
      const auto given = given_.find(field.name);
      if (given == given_.end()) continue;
      FieldValues rest = given_;
      rest.erase(field.name);
      std::set<std::string> fitting;
      for (const FieldValues& fit : fits_of(rest))
        for (const KeyValue& pair : op_.values(parse(fit)))
          if (pair.key == field.name)  // a real's value is made up
            fitting.insert(field.type == FieldInfo::Type::real ? "another" : pair.key + "=" + pair.value);
      if (!fitting.empty())
        found.push_back(fmt::format("{}={} clashes with them, {} would fit", field.name, given->second,
                                    fmt::join(fitting, " or ")));
    }
    return fmt::format("{}", fmt::join(found, "; "));
  }

  std::vector<FieldValues> fits_of(const FieldValues& given) const {
    try {
      return Search(op_, given, shapes_, fit_.wording()).fits();
    } catch (const InvalidInput&) {  // too many to try
      return {};
    }
  }

  [[noreturn]] void refuse_nearest() {
    if (fit_.nearest().empty())
      throw InvalidInput(fit_.why_no_problem().empty()
                             ? fmt::format("op '{}' has no problem with such tensors", op_.name)
                             : fit_.why_no_problem());
    const Misfit misfit = nearest_misfit(op_, shapes_, fit_);
    const std::string clash = clashes();
    throw InvalidInput(fmt::format("the tensors fit no problem of {}{}; nearest is {}: {}{}{}", op_.name,
                                   given_.empty() ? "" : fmt::format(" {}", fit_.wording().given), misfit.problem,
                                   misfit.differences, clash.empty() ? "" : "; ", clash));
  }

  const Workload& op_;
  const FieldValues given_;
  const KnownShapes& shapes_;
  ShapeFit fit_;
  std::vector<const FieldInfo*> required_;  // choices without a default
};

}  // namespace

AnyProblem infer_problem(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes,
                         const Wording& wording) {
  return Search(op, values_of(given), shapes, wording).run();
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
