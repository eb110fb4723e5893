// Tables of what was fastest when it was timed (tools/tune), which variants ask before any estimate.
#pragma once

#include <algorithm>
#include <span>

namespace noisefloor {

// The row of that shape; null where it was not timed, or the estimate's choice won. Rows ascend by shape_of(row).
template <class Row, class Shape, class ShapeOf>
const Row* find_measured(std::span<const Row> rows, const Shape& shape, const ShapeOf& shape_of) {
  const auto row = std::lower_bound(rows.begin(), rows.end(), shape,
                                    [&](const Row& one, const Shape& wanted) { return shape_of(one) < wanted; });
  return row == rows.end() || shape_of(*row) != shape ? nullptr : &*row;
}

}  // namespace noisefloor
