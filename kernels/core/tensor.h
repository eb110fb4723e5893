// How an op names its tensors, so that allocation, random inputs, verification and files can be written once for all
// ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"

namespace noisefloor {

// Launchers must leave `in` tensors unchanged and write every element of `out`. `inout` is read and written.
enum class Role { in, out, inout };

// How the harness fills an input: independent normal numbers, rounded into the tensor's dtype. `op` leaves it to the
// op's own fill function (schedules, labels).
struct Fill {
  enum class Kind { normal, op } kind = Kind::normal;
  double mean = 0;
  double stddev = 1;
};

struct TensorSpec {
  const char* name;
  std::vector<std::int64_t> shape;  // row-major, outermost first
  DType dtype;
  Role role = Role::in;
  Fill fill = {};

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
};

// Hands out the pointers of `tensors(problem)` in their order; an op's `bind` takes them one by one.
class PointerCursor {
 public:
  explicit PointerCursor(std::span<void* const> pointers) : pointers_(pointers) {}
  void* next() { return pointers_[position_++]; }
  void* next_if(bool present) { return present ? next() : nullptr; }

 private:
  std::span<void* const> pointers_;
  std::size_t position_ = 0;
};

// Tensors on the host, as the reference reads them.
struct HostTensor {
  DType dtype;
  const void* data;
  double operator[](std::int64_t index) const { return load_element(dtype, data, index); }
};

}  // namespace noisefloor
