#include "kernels/core/symbols.h"

#include <algorithm>
#include <limits>
#include <string>

namespace noisefloor {
namespace {

using Value = Symbols::Value;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

Value both(Value a, Value b) {
  if (a == 0 || b == 0) return 0;
  return a && b ? Value(1) : std::nullopt;
}

Value either(Value a, Value b) {
  const auto negated = [](Value one) { return one ? Value(*one == 0) : one; };
  return negated(both(negated(a), negated(b)));
}

Value combined(char operation, Value a, Value b) {
  if (!a || !b) return std::nullopt;
  std::int64_t result = 0;
  if (operation == '-') return *a - *b;
  if (operation == '/') return *b == 0 ? std::nullopt : Value(*a / *b);
  const bool over =
      operation == '+' ? __builtin_add_overflow(*a, *b, &result) : __builtin_mul_overflow(*a, *b, &result);
  return over ? kLargest : result;
}

// A recursive descent, one function for each strength of operator.
class FormulaReader {
 public:
  FormulaReader(const std::vector<Symbols::Symbol>& symbols, std::string_view formula, std::vector<std::size_t>* fields)
      : symbols_(symbols), formula_(formula), rest_(formula), fields_(fields) {}

  Value read() {
    const Value value = any();
    skip_spaces();
    if (!rest_.empty()) fail();
    return value;
  }

 private:
  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  bool take(std::string_view text) {
    skip_spaces();
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  std::string_view word(std::string_view more) {
    skip_spaces();
    const auto is_part = [&](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
             more.find(c) != more.npos;
    };
    const auto end = std::ranges::find_if_not(rest_, is_part);
    const std::string_view found = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    if (found.empty()) fail();
    rest_.remove_prefix(found.size());
    return found;
  }
  [[noreturn]] void fail() const {
    throw std::logic_error("formula '" + std::string(formula_) + "' makes no sense at '" + std::string(rest_) + "'");
  }

  Value any() {
    Value value = all();
    while (take("|")) value = either(value, all());
    return value;
  }
  Value all() {
    Value value = comparison();
    while (take("&")) value = both(value, comparison());
    return value;
  }
  Value comparison() {
    choices_ = {};
    const Value left = sum();
    const char operation = take("!=") ? '!' : take("=") ? '=' : take(">") ? '>' : '\0';
    if (operation == '\0') return left;
    const Value right = choices_.empty() ? sum() : choice();
    if (!left || !right) return std::nullopt;
    return operation == '>' ? *left > *right : (*left == *right) == (operation == '=');
  }
  Value choice() {
    const auto found = std::ranges::find(choices_, word("+"), [](const char* name) { return std::string_view(name); });
    if (found == choices_.end()) fail();
    return found - choices_.begin();
  }
  Value sum() {
    Value value = product();
    while (const char operation = take("+") ? '+' : take("-") ? '-' : '\0')
      value = combined(operation, value, product());
    return value;
  }
  Value product() {
    Value value = operand();
    while (const char operation = take("*") ? '*' : take("/") ? '/' : '\0')
      value = combined(operation, value, operand());
    return value;
  }
  Value operand() {
    if (take("!")) {
      const Value value = operand();
      return value ? Value(*value == 0) : value;
    }
    if (take("(")) {
      const Value value = any();
      if (!take(")")) fail();
      return value;
    }
    const std::string_view name = word("");
    if (name.front() >= '0' && name.front() <= '9') return std::stoll(std::string(name));
    if (take("(")) {  // a function of the op's own
      do any();
      while (take(","));
      if (!take(")")) fail();
      return std::nullopt;
    }
    return symbol(name);
  }
  Value symbol(std::string_view name) {
    const auto found = std::ranges::find(symbols_, name, &Symbols::Symbol::name);
    if (found == symbols_.end()) fail();
    if (found->formula != nullptr) return FormulaReader(symbols_, found->formula, fields_).read();
    const auto field = static_cast<std::size_t>(found - symbols_.begin());
    if (fields_ != nullptr && std::ranges::count(*fields_, field) == 0) fields_->push_back(field);
    choices_ = found->choices;
    return found->value;
  }

  const std::vector<Symbols::Symbol>& symbols_;
  const std::string_view formula_;
  std::string_view rest_;
  std::vector<std::size_t>* const fields_;
  std::span<const char* const> choices_;  // of the field that was read last
};

}  // namespace

void Symbols::visit(Field& field) {
  if (field.type == Field::Type::real) {
    const Value fallback = field.real_fallback ? Value(*field.real_fallback != 0) : std::nullopt;
    symbols_.push_back({field.name, field.real != 0, 0, 1, fallback});
    return;
  }
  if (known_ != nullptr && field.type != Field::Type::choice)
    field.integer = (*known_)[symbols_.size()].value.value_or(field.integer);
  symbols_.push_back({field.name, field.integer, field.low, field.high, field.fallback, field.names});
}

void Symbols::forget_values() {
  for (Symbol& symbol : symbols_) symbol.value.reset();
}

void Symbols::let(const char* name, const char* formula) {
  const Value value = evaluate(formula);
  symbols_.push_back({name, value, 0, 0, {}, {}, value ? nullptr : formula});
}

Symbols::Value Symbols::evaluate(std::string_view formula) const {
  const auto plain = std::ranges::find(symbols_, formula, &Symbol::name);
  if (plain != symbols_.end() && plain->formula == nullptr) return plain->value;
  return FormulaReader(symbols_, formula, nullptr).read();
}

std::vector<std::size_t> Symbols::fields_in(std::string_view formula) const {
  std::vector<std::size_t> fields;
  FormulaReader(symbols_, formula, &fields).read();
  return fields;
}

}  // namespace noisefloor
