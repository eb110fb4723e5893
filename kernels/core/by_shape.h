// What variants look up by a problem's shape: tables of what was fastest when it was timed (tools/tune), which they ask
// before any estimate; and what a launch works out of its shape alone, kept for the next launch of that shape.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace noisefloor {

// The row of that shape; null where it was not timed, or the estimate's choice won. Rows ascend by shape_of(row).
template <class Row, class Shape, class ShapeOf>
const Row* find_measured(std::span<const Row> rows, const Shape& shape, const ShapeOf& shape_of) {
  const auto row = std::lower_bound(rows.begin(), rows.end(), shape,
                                    [&](const Row& one, const Shape& wanted) { return shape_of(one) < wanted; });
  return row == rows.end() || shape_of(*row) != shape ? nullptr : &*row;
}

// `find()`, or what it gave for these numbers before. Each thread keeps the last of kPlaces sets of shapes; each type
// of `find`, which is each call site, has its own.
template <std::size_t kNumbers, class Find>
auto remembered(const std::array<std::int64_t, kNumbers>& shape, const Find& find) {
  constexpr std::size_t kPlaces = 256;  // a U-Net has some 60 shapes of an op
  struct Entry {
    std::array<std::int64_t, kNumbers> shape;
    std::optional<decltype(find())> found;
  };
  thread_local std::array<Entry, kPlaces> entries{};
  std::uint64_t hash = 0;
  for (const std::int64_t number : shape) hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15;
  Entry& entry = entries[hash >> 56];
  if (!entry.found || entry.shape != shape) entry = {shape, find()};
  return *entry.found;
}

}  // namespace noisefloor
