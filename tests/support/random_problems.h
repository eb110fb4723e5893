// Random problems of any op, made of nothing but its fields.
#pragma once

#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor {

inline constexpr int kDraws = 4000;

// A value of a field: an end of its range, or one near the lower end, as problems that fit together mostly are.
inline std::string random_value(const FieldInfo& field, std::mt19937_64& random) {
  const auto below = [&](std::size_t count) { return random() % count; };
  if (field.chosen()) return field.choices[below(field.choices.size())];
  if (field.type == FieldInfo::Type::real) {
    const double part = std::uniform_real_distribution<double>(0, 1)(random);
    const double ends[] = {field.real_low, field.real_high, field.real_low + part * (field.real_high - field.real_low)};
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", ends[below(3)]);
    return text;
  }
  const std::uint64_t span = static_cast<std::uint64_t>(field.high) - static_cast<std::uint64_t>(field.low);
  const std::uint64_t steps[] = {0, span, below(4), 8 * below(5), std::uint64_t{1} << below(12), random()};
  const std::uint64_t step = steps[below(10) < 8 ? 2 + below(3) : below(6)];
  return std::to_string(field.low + static_cast<std::int64_t>(span == UINT64_MAX ? step : step % (span + 1)));
}

inline std::vector<KeyValue> random_fields(const Op& op, std::mt19937_64& random) {
  std::vector<KeyValue> pairs;
  for (const FieldInfo& field : op.fields)
    if (!field.fallback || random() % 3 == 0) pairs.push_back({field.name, random_value(field, random)});
  return pairs;
}

// Those of `kDraws` random sets of fields that are problems.
inline std::vector<AnyProblem> random_problems(const Op& op) {
  std::mt19937_64 random(std::hash<std::string>()(op.name));
  std::vector<AnyProblem> problems;
  for (int draw = 0; draw < kDraws; ++draw) {
    try {
      problems.push_back(op.parse_pairs(random_fields(op, random)));
    } catch (const InvalidInput&) {
    }
  }
  return problems;
}

}  // namespace noisefloor
