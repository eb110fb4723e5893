#include "kernels/core/symbols.h"

#include <algorithm>
#include <limits>
#include <string>

namespace noisefloor {
namespace {

using Value = Symbols::Value;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

// What is not known may not matter: 0 & x is 0.
Value combined(char operation, Value a, Value b) {
  if (operation == '&' || operation == '|') {
    const bool decisive = operation == '|';
    const auto decides = [&](Value one) { return one && (*one != 0) == decisive; };
    if (decides(a) || decides(b)) return decisive;
    return a && b ? Value(!decisive) : std::nullopt;
  }
  if (!a || !b) return std::nullopt;
  std::int64_t result = 0;
  if (operation == '-') return *a - *b;
  if (operation == '/') return *b == 0 ? std::nullopt : Value(*a / *b);
  const bool over =
      operation == '+' ? __builtin_add_overflow(*a, *b, &result) : __builtin_mul_overflow(*a, *b, &result);
  return over ? kLargest : result;
}

// A recursive descent. Operators of one strength stand together, the weakest first; a comparison has one at most.
constexpr std::string_view kOperators[] = {"|", "&", "=", "+-", "*/"};

class FormulaReader {
 public:
  FormulaReader(const std::vector<Symbols::Symbol>& symbols, std::string_view formula, std::vector<std::size_t>* fields)
      : symbols_(symbols), text_(formula), rest_(formula), fields_(fields) {}

  Value read() {
    const Value value = formula();
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
  char take_one(std::string_view operators) {
    for (const char one : operators)
      if (take({&one, 1})) return one;
    return '\0';
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
    throw std::logic_error("formula '" + std::string(text_) + "' makes no sense at '" + std::string(rest_) + "'");
  }

  Value formula(std::size_t strength = 0) {
    if (strength == std::size(kOperators)) return operand();
    if (kOperators[strength] == "=") return comparison(strength + 1);
    Value value = formula(strength + 1);
    while (const char operation = take_one(kOperators[strength]))
      value = combined(operation, value, formula(strength + 1));
    return value;
  }
  Value comparison(std::size_t strength) {
    choices_ = {};
    const Value left = formula(strength);
    const char operation = take("!=") ? '!' : take("=") ? '=' : take(">") ? '>' : '\0';
    if (operation == '\0') return left;
    const Value right = choices_.empty() ? formula(strength) : choice();
    if (!left || !right) return std::nullopt;
    return operation == '>' ? *left > *right : (*left == *right) == (operation == '=');
  }
  Value choice() {
    const auto found = std::ranges::find(choices_, word("+"), [](const char* name) { return std::string_view(name); });
    if (found == choices_.end()) fail();
    return found - choices_.begin();
  }
  Value operand() {
    if (take("!")) {
      const Value value = operand();
      return value ? Value(*value == 0) : value;
    }
    if (take("(")) {
      const Value value = formula();
      if (!take(")")) fail();
      return value;
    }
    const std::string_view name = word("");
    if (name.front() >= '0' && name.front() <= '9') return std::stoll(std::string(name));
    if (take("(")) {  // a function of the op's own
      do formula();
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
  const std::string_view text_;
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
