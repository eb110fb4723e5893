// How an op names its tensors, so that allocation, random inputs, verification and files can be written once for all
// ops.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/core/symbols.h"

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

// A shape in formulas of the op's fields (symbols.h); an extent "m=n" is both. It needs no memory of its own: an op's
// tensors are visited at every launch.
class Extents {
 public:
  constexpr Extents(std::initializer_list<const char*> extents) {
    for (const char* const extent : extents) extents_.at(rank_++) = extent;
  }
  // These extents, and `inner` behind them.
  constexpr Extents with(std::initializer_list<const char*> inner) const {
    Extents both = *this;
    for (const char* const extent : inner) both.extents_.at(both.rank_++) = extent;
    return both;
  }
  std::span<const char* const> all() const { return {extents_.data(), rank_}; }

 private:
  static constexpr std::size_t kMaxRank = 6;
  std::array<const char*, kMaxRank> extents_{};
  std::size_t rank_ = 0;
};

// The tensors of all problems of an op. One whose shape has several forms has a rule for each.
struct TensorRule {
  const char *name, *meaning;
  const char* condition;  // when a problem has it so (symbols.h); "1": always
  std::vector<const char*> shape;
  std::optional<DType> dtype;  // none: the row's
  Role role;
};
struct TensorTable {
  Symbols symbols;
  std::vector<TensorRule> rules;
};
constexpr std::string_view formula_of(std::string_view extent) {  // the first of an extent that is two
  return extent.substr(0, extent.find('='));
}

// What an op shows its tensors to, in their order, each with the member of its `Tensors` that points to it. Members of
// type `float*` are fp32, the others of the row's dtype unless another is given.
class TensorVisitor {
 public:
  // Describes the tensors of the problem whose fields the symbols are.
  TensorVisitor(DType row_dtype, Symbols& symbols, std::vector<TensorSpec>& specs)
      : row_dtype_(row_dtype), symbols_(&symbols), specs_(&specs) {}
  explicit TensorVisitor(TensorTable& table) : mode_(Mode::declare), symbols_(&table.symbols), rules_(&table.rules) {}
  explicit TensorVisitor(std::span<void* const> pointers) : mode_(Mode::bind), pointers_(pointers) {}
  static TensorVisitor checking() { return TensorVisitor(); }

  // Whether the fills of a problem are asked for; else only names and members count.
  bool describes() const { return mode_ == Mode::describe; }
  DType row_dtype() const { return row_dtype_; }
  bool all_aligned() const { return aligned_; }  // after a checking visit

  // Another name for what a formula of fields gives, in the shapes behind it.
  void let(const char* name, const char* formula) {
    if (symbols_ != nullptr) symbols_->let(name, formula);
  }
  // Of the next tensor: whether the problem has it, and the same as a condition on the fields, for all problems.
  TensorVisitor& when(bool holds, const char* condition) {
    holds_ = holds;
    condition_ = condition;
    return *this;
  }

  void in(const TensorName& name, const void*& member, const Extents& shape, const Fill& fill = {}) {
    visit(name, member, shape, row_dtype_, Role::in, fill);
  }
  void in(const TensorName& name, const void*& member, const Extents& shape, const Fill& fill, DType dtype) {
    visit(name, member, shape, dtype, Role::in, fill);
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
  void inout(const TensorName& name, float*& member, const Extents& shape, const Fill& fill = {}) {
    visit(name, member, shape, DType::fp32, Role::inout, fill);
  }
  // Another member that points to the tensor of `member`, where there is that.
  template <class Pointer>
  void same(Pointer& other, Pointer member) {
    if (mode_ == Mode::bind) other = member;
    if (mode_ == Mode::check) check(other);
  }

 private:
  enum class Mode { describe, declare, bind, check };
  TensorVisitor() : mode_(Mode::check) {}

  template <class Pointer>
  void visit(const TensorName& name, Pointer& member, const Extents& shape, DType dtype, Role role, const Fill& fill) {
    if (specs_ != nullptr || rules_ != nullptr) describe(name, shape, dtype, role, fill);
    if (holds_ && mode_ == Mode::bind) member = static_cast<Pointer>(pointers_[position_++]);
    if (holds_ && mode_ == Mode::check) check(member);
    when(true, "1");
  }
  void describe(const TensorName& name, const Extents& shape, DType dtype, Role role, const Fill& fill);
  void check(const void* pointer) {
    constexpr std::uintptr_t kAlignment = 16;  // of the widest loads and stores
    aligned_ = aligned_ && pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0;
  }

  Mode mode_ = Mode::describe;
  static constexpr DType kNoRow = DType::fp64;  // stands for the row's in rules
  DType row_dtype_ = kNoRow;
  Symbols* symbols_ = nullptr;
  std::vector<TensorSpec>* specs_ = nullptr;
  std::vector<TensorRule>* rules_ = nullptr;
  std::span<void* const> pointers_;
  std::size_t position_ = 0;
  bool aligned_ = true, holds_ = true;
  const char* condition_ = "1";
};

// Tensors on the host, as the reference reads them.
struct HostTensor {
  DType dtype;
  const void* data;
  double operator[](std::int64_t index) const { return load_element(dtype, data, index); }
  explicit operator bool() const { return data != nullptr; }
};

inline void TensorVisitor::describe(const TensorName& name, const Extents& shape, DType dtype, Role role,
                                    const Fill& fill) {
  if (rules_ != nullptr) {
    const std::optional<DType> its_own = dtype == kNoRow ? std::nullopt : std::optional(dtype);
    rules_->push_back({name.name, name.meaning, condition_, {shape.all().begin(), shape.all().end()}, its_own, role});
    return;
  }
  if (!holds_) return;
  TensorSpec& spec = specs_->emplace_back(TensorSpec{name.name, {}, dtype, role, fill, name.meaning});
  for (const char* const extent : shape.all()) spec.shape.push_back(symbols_->evaluate(formula_of(extent)).value());
}

}  // namespace noisefloor
