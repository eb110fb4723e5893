// How an op names its tensors, so that allocation, random inputs, verification and files can be written once for all
// ops.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/status.h"

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
inline constexpr Fill kFilledByOp{Fill::Kind::op, 0, 0};
constexpr Fill normal_fill(double mean, double stddev) {
  return {Fill::Kind::normal, mean, stddev};
}

// A tensor's name, and half a line on what it is where name and shape do not say it.
struct TensorName {
  const char *name, *meaning;
  constexpr TensorName(const char* its_name, const char* its_meaning = "") : name(its_name), meaning(its_meaning) {}
};

struct TensorSpec {
  const char* name;
  std::vector<std::int64_t> shape;  // row-major, outermost first
  DType dtype;
  Role role = Role::in;
  Fill fill = {};
  const char* meaning = "";

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
};

// A shape that needs no memory of its own: an op's tensors are visited at every launch.
class Extents {
 public:
  constexpr Extents(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t extent : extents) extents_.at(rank_++) = extent;
  }
  // These extents, and `inner` behind them.
  constexpr Extents with(std::initializer_list<std::int64_t> inner) const {
    Extents both = *this;
    for (const std::int64_t extent : inner) both.extents_.at(both.rank_++) = extent;
    return both;
  }
  std::vector<std::int64_t> vector() const { return {extents_.begin(), extents_.begin() + rank_}; }

 private:
  static constexpr std::size_t kMaxRank = 6;
  std::array<std::int64_t, kMaxRank> extents_{};
  std::ptrdiff_t rank_ = 0;
};

// What an op shows its tensors to, those that the problem has, in their order, each with the member of its `Tensors`
// that points to it. Members of type `float*` are fp32, the others of the row's dtype unless another is given.
class TensorVisitor {
 public:
  TensorVisitor(DType row_dtype, std::vector<TensorSpec>& specs)
      : row_dtype_(row_dtype), specs_(&specs) {}  // describes
  explicit TensorVisitor(std::span<void* const> pointers) : mode_(Mode::bind), pointers_(pointers) {}
  static TensorVisitor checking() { return TensorVisitor(); }

  // Whether shapes and fills are asked for; else only names and members count.
  bool describes() const { return mode_ == Mode::describe; }
  DType row_dtype() const { return row_dtype_; }
  bool all_aligned() const { return aligned_; }  // after a checking visit

  void in(const TensorName& name, const void*& member, const Extents& shape, const Fill& fill = {}) {
    visit(name, member, shape, row_dtype_, Role::in, fill);
  }
  void in(const TensorName& name, const float*& member, const Extents& shape, const Fill& fill = {}) {
    visit(name, member, shape, DType::fp32, Role::in, fill);
  }
  void out(const TensorName& name, void*& member, const Extents& shape) { out(name, member, shape, row_dtype_); }
  void out(const TensorName& name, void*& member, const Extents& shape, DType dtype) {
    visit(name, member, shape, dtype, Role::out, {});
  }
  void out(const TensorName& name, float*& member, const Extents& shape) {
    visit(name, member, shape, DType::fp32, Role::out, {});
  }
  void inout(const TensorName& name, void*& member, const Extents& shape, const Fill& fill = {}) {
    visit(name, member, shape, row_dtype_, Role::inout, fill);
  }
  // Another member that points to the tensor of `member`.
  void same(const void*& other, const void* member) {
    if (mode_ == Mode::bind) other = member;
    if (mode_ == Mode::check) check(other);
  }

 private:
  enum class Mode { describe, bind, check };
  TensorVisitor() : mode_(Mode::check) {}

  template <class Pointer>
  void visit(const TensorName& name, Pointer& member, const Extents& shape, DType dtype, Role role, const Fill& fill) {
    if (mode_ == Mode::describe) specs_->push_back({name.name, shape.vector(), dtype, role, fill, name.meaning});
    if (mode_ == Mode::bind) member = static_cast<Pointer>(pointers_[position_++]);
    if (mode_ == Mode::check) check(member);
  }
  void check(const void* pointer) {
    constexpr std::uintptr_t kAlignment = 16;  // of the widest loads and stores
    aligned_ = aligned_ && pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0;
  }

  Mode mode_ = Mode::describe;
  DType row_dtype_ = DType::fp32;
  std::vector<TensorSpec>* specs_ = nullptr;
  std::span<void* const> pointers_;
  std::size_t position_ = 0;
  bool aligned_ = true;
};

// Tensors on the host, as the reference reads them.
struct HostTensor {
  DType dtype;
  const void* data;
  double operator[](std::int64_t index) const { return load_element(dtype, data, index); }
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace noisefloor
