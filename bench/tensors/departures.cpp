#include "bench/tensors/departures.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace noisefloor {
namespace {

// Every value but the default that a field may have for its own sake. Of reals and integers a few stand for all: what
// counts is whether they bring a tensor, or make a problem possible. Integers that only change extents follow later.
std::vector<Departure> all_departures(const Workload& op, const FieldValues& given, const ShapeFit& fit) {
  std::vector<Departure> all;
  for (const FieldInfo& field : op.fields) {
    if (!field.fallback || given.contains(field.name)) continue;
    std::vector<std::string> values = field.choices;
    if (field.type == FieldInfo::Type::real)
      values = {fmt::format("{}", field.real_high), fmt::format("{}", field.real_low)};
    if (field.type == FieldInfo::Type::integer) {
      std::set<std::int64_t> numbers = {field.low, field.low + 1};
      for (const std::int64_t extent : fit.extents()) numbers.insert({extent - 1, extent});
      for (const std::int64_t number : numbers)
        if (number >= field.low && number <= field.high) values.push_back(std::to_string(number));
    }
    for (const std::string& value : values)
      if (value != *field.fallback) all.push_back({&field, value});
  }
  return all;
}

// Integers from which to go on, near the tensors' where the defaults of the others allow that.
FieldValues near(ShapeFit& fit, const FieldValues& values, const std::vector<Departure>& all) {
  for (const std::int64_t start : fit.starts()) {
    FieldValues base = values;
    fit.set_open(base, start);
    if (fit.inputs(base)) {
      fit.descend(base, fit.integers());
      return base;
    }
  }
  for (const Departure& departure : all)
    for (const std::int64_t start : fit.starts()) {
      FieldValues base = with(values, departure);
      fit.set_open(base, start);
      if (!fit.inputs(base)) continue;
      fit.descend(base, fit.integers());
      base.erase(departure.field->name);
      return base;
    }
  FieldValues base = values;  // what is given may ask for one of the extents, as groups that divide the channels
  fit.set_open(base, 1);
  fit.descend(base, fit.integers());
  return base;
}

// Names and shapes of the inputs; empty where there is no problem.
using Signature = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
Signature signature(ShapeFit& fit, const FieldValues& values, bool with_shapes) {
  Signature inputs;
  for (const TensorSpec& spec : fit.inputs(values).value_or(std::vector<TensorSpec>()))
    inputs.emplace_back(spec.name, with_shapes ? spec.shape : std::vector<std::int64_t>());
  return inputs;
}

std::vector<Departure> useful_departures(ShapeFit& fit, const FieldValues& base, const std::vector<Departure>& all) {
  std::vector<const Departure*> partners = {nullptr};
  for (const Departure& departure : all)
    if (departure.field->type != FieldInfo::Type::integer) partners.push_back(&departure);
  for (const FieldInfo* field : fit.integers()) {  // one that brings a tensor may be what another's needs
    const auto brings = std::find_if(all.begin(), all.end(), [&](const Departure& departure) {
      return departure.field == field && fit.inputs(with(base, departure));
    });
    if (brings != all.end() && signature(fit, with(base, *brings), false) != signature(fit, base, false))
      partners.push_back(&*brings);
  }
  if (!fit.inputs(base)) {
    const auto way = std::find_if(all.begin(), all.end(), [&](const Departure& departure) {
      return departure.field->type == FieldInfo::Type::integer && fit.inputs(with(base, departure));
    });
    if (way != all.end()) partners.push_back(&*way);
  }
  const auto beside = [&](const Departure* partner) { return partner == nullptr ? base : with(base, *partner); };
  std::vector<Signature> shapes, names;  // without the departure, by partner
  for (const Departure* partner : partners) {
    shapes.push_back(signature(fit, beside(partner), true));
    names.push_back(signature(fit, beside(partner), false));
  }
  std::vector<Departure> useful;
  std::set<std::pair<const FieldInfo*, std::vector<Signature>>> seen;  // integers of the same effect count once
  for (const Departure& departure : all) {
    const bool integer = departure.field->type == FieldInfo::Type::integer;
    const std::vector<Signature>& without = integer ? names : shapes;
    std::vector<Signature> effect;
    bool changes = false;
    for (std::size_t i = 0; i < partners.size(); ++i) {
      if (partners[i] != nullptr && partners[i]->field == departure.field) continue;
      effect.push_back(signature(fit, with(beside(partners[i]), departure), !integer));
      const Signature& now = effect.back();
      // What made a problem again, of the inputs that the defaults have, is a way round the partner.
      changes = changes || (!now.empty() && now != without[i] && (!without[i].empty() || now != without[0]));
    }
    if (changes && (!integer || seen.emplace(departure.field, effect).second)) useful.push_back(departure);
  }
  return useful;
}

}  // namespace

FieldValues with(FieldValues values, const Departure& departure) {
  values[departure.field->name] = departure.value;
  return values;
}

Departures departures_from(const FieldValues& values, const Workload& op, const FieldValues& given, ShapeFit& fit) {
  const std::vector<Departure> all = all_departures(op, given, fit);
  FieldValues base = near(fit, values, all);
  std::vector<Departure> useful = useful_departures(fit, base, all);
  return {std::move(base), std::move(useful)};
}

}  // namespace noisefloor
