// The fields of a problem from the shapes of its inputs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "bench/tensors/problem_inference.h"

namespace noisefloor {
namespace {

constexpr int kMostVisited = 20'000;     // a fraction of a second
constexpr std::int64_t kFewValues = 64;  // all of a field's are tried

}  // namespace

Unification::Unification(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes)
    : op_(op), given_(given), shapes_(shapes), start_(op.table.symbols), texts_(op.fields.size()) {
  std::vector<KeyValue> all = given;
  for (std::size_t i = 0; i < op.fields.size(); ++i) {
    const FieldInfo& field = op.fields[i];
    const auto found = std::ranges::find(given, field.name, &KeyValue::key);
    if (found != given.end())
      texts_[i] = found->value;
    else if (!field.fallback)  // so that what is given is read
      all.push_back({field.name, field.chosen() ? field.choices.front() : std::to_string(field.low)});
  }
  FieldReader reader(std::move(all));
  op.visit_fields(reader);
  reader.require_all_used();
  for (std::size_t i = 0; i < op.fields.size(); ++i) {
    if (texts_[i].empty()) continue;
    const auto choice = std::ranges::find(start_[i].choices, texts_[i]);
    start_[i].value = choice != start_[i].choices.end()            ? choice - start_[i].choices.begin()
                      : op.fields[i].type == FieldInfo::Type::real ? std::strtod(texts_[i].c_str(), nullptr) != 0
                                                                   : std::stoll(texts_[i]);
  }
}

std::vector<Fit> Unification::fits() {
  if (op_.table.rules.empty())
    finish(start_, {}, 0);
  else
    search(start_);
  std::vector<Fit> all;
  for (auto& [choices, fits] : fits_) all.insert(all.end(), fits.begin(), fits.end());
  return all;
}

void Unification::search(Symbols symbols) {
  if (++visited_ > kMostVisited)
    throw InvalidInput(
        fmt::format("the tensors leave too many problems of {} to try: give more of its fields", op_.name));
  for (bool changed = true; changed;) {
    changed = false;
    if (!narrow(symbols, changed)) return;
  }
  Symbols defaults(&symbols);
  op_.visit_fields(defaults);
  std::vector<std::int64_t> choices;
  std::size_t departures = 0;
  for (std::size_t i = 0; i < op_.fields.size(); ++i) {
    const Symbols::Value& value = symbols[i].value;
    symbols[i].fallback = defaults[i].fallback;
    if (required(i)) choices.push_back(value.value_or(-1));
    departures += symbols[i].fallback && texts_[i].empty() && value && value != symbols[i].fallback;
  }
  const auto found = fits_.find(choices);
  if (found != fits_.end() && departures > found->second.front().departures) return;
  const auto field = next_field(symbols);
  if (!field) return finish(symbols, choices, departures);
  for (const std::int64_t value : candidates(symbols, *field)) {
    Symbols next = symbols;
    next[*field].value = value;
    search(std::move(next));
  }
}

// What follows from the shapes; false where nothing fits.
bool Unification::narrow(Symbols& symbols, bool& changed) const {
  std::map<std::string_view, std::vector<const TensorRule*>> possible;
  for (const TensorRule& rule : op_.table.rules) {
    if (rule.role == Role::out) continue;
    const Symbols::Value condition = symbols.evaluate(rule.condition);
    const auto known = shapes_.find(rule.name);
    if (known == shapes_.end()) {
      if (condition && *condition != 0) return false;
      continue;
    }
    auto& rules = possible[known->first];
    if (condition != 0 && (!known->second || known->second->size() == rule.shape.size())) rules.push_back(&rule);
  }
  if (possible.size() != shapes_.size()) return false;
  for (const auto& [name, rules] : possible) {
    if (rules.empty()) return false;
    const auto& shape = shapes_.find(std::string(name))->second;
    if (rules.size() > 1 || !shape) continue;
    for (std::size_t i = 0; i < shape->size(); ++i)
      for (std::string_view rest = rules.front()->shape[i]; !rest.empty();) {  // "m=n" is both
        const std::string_view formula = formula_of(rest);
        if ((*shape)[i] != kAnyExtent && !unify(symbols, formula, (*shape)[i], changed)) return false;
        rest.remove_prefix(std::min(formula.size() + 1, rest.size()));
      }
  }
  return true;
}

// Formulas rise or fall with each integer: those with one unknown leave a range of its values, mostly a single one.
bool Unification::unify(Symbols& symbols, std::string_view formula, std::int64_t extent, bool& changed) const {
  if (const Symbols::Value value = symbols.evaluate(formula)) return value == extent;
  std::vector<std::size_t> open = symbols.fields_in(formula);
  std::erase_if(open, [&](std::size_t field) { return symbols[field].value.has_value(); });
  if (open.size() != 1 || op_.fields[open.front()].type != FieldInfo::Type::integer) return true;
  Symbols::Symbol& field = symbols[open.front()];
  const auto at = [&](std::int64_t value) {
    field.value = value;
    return symbols.evaluate(formula).value_or(-1);
  };
  const bool rises = at(field.low) <= at(field.high);
  // The first value whose extent is the wanted one or behind it; with `beyond`, behind it.
  const auto first = [&](bool beyond) {
    std::int64_t low = field.low, high = field.high + 1;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2, is = at(middle);
      const bool behind = rises ? is > extent : is < extent;
      if (behind || (!beyond && is == extent))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  const std::int64_t low = first(false), high = first(true) - 1;
  field.value = low == high ? Symbols::Value(low) : std::nullopt;
  changed = changed || low != field.low || high != field.high;
  field.low = low;
  field.high = high;
  return low <= high;
}

// Of those that decide which inputs there are, and which shapes they have: choices without a default first, then those
// with the fewest values. None where all are known, or can only be asked for.
std::optional<std::size_t> Unification::next_field(const Symbols& symbols) const {
  std::vector<bool> decides(op_.fields.size(), false);
  const auto add = [&](std::string_view formula) {
    for (const std::size_t field : symbols.fields_in(formula)) decides[field] = true;
  };
  for (const TensorRule& rule : op_.table.rules) {
    if (rule.role == Role::out) continue;
    const Symbols::Value condition = symbols.evaluate(rule.condition);
    if (!condition) add(rule.condition);
    const auto known = shapes_.find(rule.name);
    if (condition == 0 || known == shapes_.end()) continue;
    for (const char* const extent : rule.shape) add(formula_of(extent));
  }
  std::optional<std::size_t> best;
  std::int64_t fewest = 0;
  for (std::size_t i = 0; i < op_.fields.size(); ++i) {
    const std::int64_t values = required(i) ? 0 : symbols[i].high - symbols[i].low;
    if (symbols[i].value || !(decides[i] || required(i)) || (!symbols[i].fallback && values > kFewValues)) continue;
    if (best && values >= fewest) continue;
    best = i;
    fewest = values;
  }
  return best;
}

// The default first. Of many values those that known numbers suggest.
std::vector<std::int64_t> Unification::candidates(const Symbols& symbols, std::size_t field) const {
  const Symbols::Symbol& symbol = symbols[field];
  std::vector<std::int64_t> all;
  const auto add = [&](std::int64_t value) {
    if (value >= symbol.low && value <= symbol.high && std::ranges::count(all, value) == 0) all.push_back(value);
  };
  if (symbol.fallback) add(*symbol.fallback);
  for (std::int64_t value = symbol.low; value <= std::min(symbol.high, symbol.low + kFewValues); ++value) add(value);
  for (const Symbols::Symbol& other : symbols.all()) {
    add(other.value.value_or(symbol.low) - 1);
    add(other.value.value_or(symbol.low));
  }
  return all;
}

bool Unification::has_inputs(const AnyProblem& problem) const {
  std::size_t met = 0;
  for (const TensorSpec& spec : op_.tensors(problem, op_.dtypes.front())) {
    if (spec.role == Role::out) continue;
    const auto known = shapes_.find(spec.name);
    const auto same = [](std::int64_t is, std::int64_t wanted) { return is == wanted || is == kAnyExtent; };
    if (known == shapes_.end() || (known->second && !std::ranges::equal(*known->second, spec.shape, same)))
      return false;
    ++met;
  }
  return met == shapes_.size();
}

void Unification::finish(const Symbols& symbols, const std::vector<std::int64_t>& choices, std::size_t departures) {
  Fit fit{symbols, texts_, {}, departures};
  std::vector<KeyValue> pairs = given_;
  for (std::size_t i = 0; i < op_.fields.size(); ++i) {
    const FieldInfo& info = op_.fields[i];
    const Symbols::Symbol& symbol = symbols[i];
    const Symbols::Value value = symbol.value ? symbol.value : symbol.fallback;
    std::string& text = fit.values[i];
    if (!text.empty() || !value) continue;
    const bool real = info.type == FieldInfo::Type::real, departs = value != symbol.fallback;
    text = real                     ? (departs ? kAnother : *info.fallback)
           : symbol.choices.empty() ? std::to_string(*value)
                                    : symbol.choices[static_cast<std::size_t>(*value)];
    if (departs) pairs.push_back({info.name, real ? fmt::format("{}", info.real_high) : text});
  }
  if (std::ranges::count(fit.values, kOpen) == 0) {
    try {
      fit.problem = op_.parse_pairs(pairs);
    } catch (const InvalidInput& error) {
      if (reason_.empty() && !met_problem_) reason_ = error.what();
      return;
    }
    met_problem_ = true;
    if (!has_inputs(*fit.problem)) return;
  }
  std::vector<Fit>& fits = fits_[choices];
  if (!fits.empty() && departures < fits.front().departures) fits.clear();
  fits.push_back(std::move(fit));
}

}  // namespace noisefloor
