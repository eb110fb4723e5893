// Comparing a tensor with numbers, element by element.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/dtype.h"

namespace noisefloor {

// How far an array is from another of the same length.
struct Difference {
  double max_error = 0;    // max |a - b| / (|b| + rms), 0 of equals
  double l2_error = 0;     // ||a - b|| / ||b||
  std::int64_t worst = 0;  // where max_error is, or an element of a is not finite: a place in b
  bool all_finite = true;  // of a
};

namespace harness {

// Of a part of the array.
struct ComparePart {
  double max_error, squared_error, squared;
  std::int64_t worst;
  int not_finite;
};
Difference merged(std::span<const ComparePart> parts);

}  // namespace harness

// What a tensor is compared with, in the platform's memory: numbers for its elements at `elements`, or for its first
// ones.
struct Expected {
  DType dtype;
  const void* values;
  const std::int64_t* elements = nullptr;
};

}  // namespace noisefloor
