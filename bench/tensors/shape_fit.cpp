#include "bench/tensors/shape_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace noisefloor {
namespace {

constexpr int kOtherRank = 100;
constexpr int kOtherTensors = 10'000;
constexpr std::int64_t kLargestExtent = std::int64_t{1} << 48;  // far above any op's, so that no sum overflows
constexpr std::int64_t kMostAsked = 300'000;                    // a second or two
constexpr std::size_t kMostKnown = 10'000;                      // some megabytes
constexpr std::int64_t kFewValues = 64;                         // all of a field's range, or of two fields'

std::int64_t number(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::int64_t span_of(const FieldInfo& field) {
  return field.high - field.low < kFewValues ? field.high - field.low + 1 : kFewValues + 1;
}

}  // namespace

ShapeFit::ShapeFit(const Workload& op, const KnownShapes& shapes, const FieldValues& given, const Wording& wording)
    : op_(op), shapes_(shapes), given_(given), wording_(wording) {
  // A whole checkpoint would keep the search busy for long, and is not an op's input.
  constexpr std::size_t kMostTensors = 16, kHighestRank = 8;  // no op has more than half of either
  if (shapes.size() > kMostTensors)
    throw InvalidInput(fmt::format("{} tensors are more than any problem of {} has ('{}' is the first of them)",
                                   shapes.size(), op.name, shapes.begin()->first));
  for (const auto& [name, shape] : shapes) {
    if (!shape) continue;
    if (shape->size() > kHighestRank)
      throw InvalidInput(
          fmt::format("tensor '{}' has {} dimensions; no op's has more than {}", name, shape->size(), kHighestRank));
    extents_.insert(shape->begin(), shape->end());
  }
  std::erase_if(extents_, [](std::int64_t extent) { return extent > kLargestExtent; });
  for (const FieldInfo& field : op.fields)
    if (field.type == FieldInfo::Type::integer && !given.contains(field.name)) integers_.push_back(&field);
}

std::optional<std::vector<TensorSpec>> ShapeFit::inputs(const FieldValues& values) {
  if (++asked_ > kMostAsked)
    throw InvalidInput(
        fmt::format("the tensors leave too many problems of {} to try; {}", op_.name, wording_.give_more));
  std::string text;
  for (const auto& [key, value] : values) text.append(key).append(1, '=').append(value).append(1, ',');
  if (const auto before = known_inputs_.find(text); before != known_inputs_.end()) return before->second;
  std::vector<KeyValue> pairs;
  for (const auto& [key, value] : values) pairs.push_back({key, value});
  std::optional<std::vector<TensorSpec>> specs;
  try {
    specs = op_.tensors(op_.parse_pairs(std::move(pairs)), op_.dtypes.front());
    std::erase_if(*specs, [](const TensorSpec& spec) { return spec.role == Role::out; });
  } catch (const InvalidInput& error) {
    if (why_no_problem_.empty()) why_no_problem_ = error.what();
  }
  if (known_inputs_.size() == kMostKnown) known_inputs_.clear();
  return known_inputs_.emplace(std::move(text), std::move(specs)).first->second;
}

int ShapeFit::distance(const FieldValues& values) {
  const auto specs = inputs(values);
  if (!specs) return kNoProblem;
  int sum = 0;
  std::size_t met = 0;
  for (const TensorSpec& spec : *specs) {
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
    if (alone_ != nullptr && *alone_ != spec.name) continue;
    for (std::size_t i = 0; i < spec.shape.size(); ++i) sum += spec.shape[i] != (*found->second)[i];
  }
  sum += kOtherTensors * static_cast<int>(shapes_.size() - met);
  if (alone_ == nullptr && sum < nearest_distance_) {
    nearest_distance_ = sum;
    nearest_ = values;
  }
  return sum;
}

bool ShapeFit::same_names(const FieldValues& values) {
  return distance(values) < kOtherRank;
}

// Values that would make one extent right, were it proportional to the field or its inverse, or the field plus
// something; all where there are few. Where the values make no problem, the tensors' extents.
std::set<std::int64_t> ShapeFit::candidates(const FieldInfo& field, const FieldValues& values) {
  const auto set = values.find(field.name);
  const std::int64_t now = number(set != values.end() ? set->second : field.fallback.value_or("1"));
  std::set<std::int64_t> found;
  const auto specs = inputs(values);
  if (!specs) found = extents_;
  for (const TensorSpec& spec : specs.value_or(std::vector<TensorSpec>())) {
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
  if (span_of(field) <= kFewValues)
    for (std::int64_t value = field.low; value <= field.high; ++value) found.insert(value);
  std::erase_if(found, [&](std::int64_t value) { return value < field.low || value > field.high || value == now; });
  return found;
}

// The distance after a field was set in `trial`. Where that makes no problem, another field moves with it: to the same
// value, which an op may demand (as many keys as queries), or to its lowest.
int ShapeFit::move(FieldValues& trial, const FieldInfo& field, const std::vector<const FieldInfo*>& fields) {
  int best = distance(trial);
  if (best < kNoProblem) return best;
  const FieldValues moved = trial;
  const std::int64_t value = number(trial.at(field.name));
  for (const FieldInfo* other : fields) {
    if (other == &field) continue;
    for (const std::int64_t follows : {value, other->low}) {
      if (follows < other->low || follows > other->high) continue;
      FieldValues both = moved;
      both[other->name] = std::to_string(follows);
      if (const int after = distance(both); after < best) {
        best = after;
        trial = std::move(both);
      }
    }
  }
  return best;
}

// Two fields of few values at once: a convolution's stride and padding.
bool ShapeFit::move_two(FieldValues& values, int& best, const std::vector<const FieldInfo*>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i)
    for (std::size_t j = i + 1; j < fields.size(); ++j) {
      const FieldInfo &one = *fields[i], &two = *fields[j];
      if (span_of(one) * span_of(two) > kFewValues) continue;
      for (std::int64_t a = one.low; a <= one.high; ++a)
        for (std::int64_t b = two.low; b <= two.high; ++b) {
          FieldValues trial = values;
          trial[one.name] = std::to_string(a);
          trial[two.name] = std::to_string(b);
          const int after = distance(trial);
          if (after >= best) continue;
          best = after;
          values = std::move(trial);
          return true;
        }
    }
  return false;
}

int ShapeFit::descend(FieldValues& values, const std::vector<const FieldInfo*>& fields) {
  int best = distance(values);
  for (bool moved = true; moved && best > 0;) {
    moved = false;
    for (const FieldInfo* field : fields) {
      if (best == 0) break;
      FieldValues best_values = values;
      for (const std::int64_t candidate : candidates(*field, values)) {
        FieldValues trial = values;
        trial[field->name] = std::to_string(candidate);
        if (const int after = move(trial, *field, fields); after < best) {
          best = after;
          best_values = std::move(trial);
          moved = true;
        }
      }
      values = std::move(best_values);
    }
    if (!moved && best < kOtherRank) moved = move_two(values, best, fields);
  }
  return best;
}

std::set<std::int64_t> ShapeFit::starts() const {
  std::set<std::int64_t> all = extents_;
  all.insert({1, 64});
  return all;
}

void ShapeFit::set_open(FieldValues& values, std::int64_t start) const {
  for (const FieldInfo* field : integers_)
    if (!field->fallback) values[field->name] = std::to_string(std::clamp(start, field->low, field->high));
}

int ShapeFit::solve(FieldValues& values) {
  std::vector<const FieldInfo*> open, others;
  for (const FieldInfo* field : integers_) (field->fallback ? others : open).push_back(field);
  int best = kNoProblem;
  FieldValues best_values = values;
  const auto try_from = [&](FieldValues trial) {
    for (const auto* fields : {&open, &integers_}) {
      if (const int after = descend(trial, *fields); after < best) {
        best = after;
        best_values = trial;
      }
      if (best == 0) break;
    }
  };
  try_from(values);
  if (!open.empty())
    for (const std::int64_t start : starts()) {  // not every value makes a problem of all fields
      if (best == 0) break;
      FieldValues trial = values;
      set_open(trial, start);
      try_from(std::move(trial));
    }
  // Tensors that share extents outvote the one from which these follow (those of an output, an input): then from what
  // fits one of them, by fields with a default (a padding) first.
  for (const auto& [name, shape] : shapes_) {
    if (best == 0 || best >= kOtherRank) break;
    FieldValues trial = best_values;
    alone_ = &name;
    descend(trial, open);
    alone_ = nullptr;
    descend(trial, others);
    try_from(std::move(trial));
  }
  values = std::move(best_values);
  return best;
}

// Of tensors whose shapes are known.
const ShapeFit::Followers& ShapeFit::followers(const FieldInfo& field, const FieldValues& fit) {
  if (followed_ != fit) followers_.clear();
  followed_ = fit;
  const auto [place, made] = followers_.try_emplace(&field);
  Followers& result = place->second;
  const auto specs = inputs(fit);
  if (!made || !specs) return result;
  const auto set = fit.find(field.name);
  const std::int64_t now = number(set != fit.end() ? set->second : field.fallback.value_or("1"));
  bool first = true;
  for (const std::int64_t value : {now + 1, now + 2, 2 * now, field.low, field.low + 1}) {
    if (value == now || value < field.low || value > field.high) continue;
    FieldValues trial = fit;
    trial[field.name] = std::to_string(value);
    if (move(trial, field, integers_) == kNoProblem) continue;
    std::set<ExtentId> changed;
    const auto moved = inputs(trial);
    for (const TensorSpec& after : *moved)
      for (const TensorSpec& before : *specs) {
        if (std::string_view(before.name) != after.name || before.shape.size() != after.shape.size()) continue;
        const auto known = shapes_.find(before.name);
        if (known == shapes_.end() || !known->second) continue;
        for (std::size_t i = 0; i < before.shape.size(); ++i)
          if (before.shape[i] != after.shape[i]) changed.emplace(before.name, i);
      }
    result.sometimes.insert(changed.begin(), changed.end());
    if (first) result.always = changed;
    std::erase_if(result.always, [&](const ExtentId& extent) { return !changed.contains(extent); });
    first = false;
  }
  return result;
}

bool ShapeFit::pinned(const FieldInfo& field, const FieldValues& fit) {
  std::set<ExtentId> own = followers(field, fit).always;
  for (const FieldInfo* other : integers_)
    if (other != &field)
      for (const ExtentId& extent : followers(*other, fit).sometimes) own.erase(extent);
  return !own.empty();
}

void ShapeFit::simplify(FieldValues& fit) {
  for (const FieldInfo& field : op_.fields) {
    if (!field.fallback || given_.contains(field.name) || !fit.contains(field.name)) continue;
    FieldValues without = fit;
    without.erase(field.name);
    if (distance(without) == 0) fit = std::move(without);
  }
}

}  // namespace noisefloor
