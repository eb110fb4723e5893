// Formulas of a problem's fields, in which an op writes the extents of its tensors and when they are there:
//
//   "m"   "2*n"   "channels - skip_channels"   "(h + 2*pad - kernel)/stride + 1"   "act=geglu & !packed | side>0"
//
// Numbers are whole, and / rounds down. A choice is compared with its names; a flag is 0 or 1; of a real only whether
// it is not 0 counts; what an op computes by itself is a function of fields, "reads_history(solver, step)", whose value
// nobody knows. They are read whenever they are asked, which costs up to a microsecond: no launch does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/core/fields.h"

namespace noisefloor {

class Symbols final : public FieldVisitor {
 public:
  using Value = std::optional<std::int64_t>;  // none: it is not known
  struct Symbol {
    std::string_view name;
    Value value;                     // of a choice its index, of a real whether it is not 0
    std::int64_t low = 0, high = 0;  // range, default and names of a field
    Value fallback = {};
    std::span<const char* const> choices = {};
    const char* formula = nullptr;  // of a name that the op gave it, where the fields are not all known
  };

  // Visits fields, in their order. With `known` those that are known there get their value, which defaults behind them
  // may follow.
  explicit Symbols(const Symbols* known = nullptr) : known_(known) { symbols_.reserve(32); }
  // Another name for what a formula gives.
  void let(const char* name, const char* formula);

  Symbol& operator[](std::size_t field) { return symbols_[field]; }
  const Symbol& operator[](std::size_t field) const { return symbols_[field]; }
  const std::vector<Symbol>& all() const { return symbols_; }
  void forget_values();

  // 1 and 0 of a condition. Sums that are too large are the largest number. Throws std::logic_error where the op has no
  // such symbol.
  Value evaluate(std::string_view formula) const;
  // The fields that a formula follows, each once, by their number.
  std::vector<std::size_t> fields_in(std::string_view formula) const;

 private:
  void visit(Field& field) override;
  const Symbols* known_;
  std::vector<Symbol> symbols_;
};

}  // namespace noisefloor
