// The fields of a problem, declared once per op by a function that shows each of them to a visitor. Parsing, printing,
// range checks, "did you mean" and CSV loading are visitors, so that no op writes any of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace noisefloor {

// A problem, field or name that makes no sense. The message names the field and its valid range.
class InvalidInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// Of a problem: throws InvalidInput("problem: " + message).
[[noreturn]] void refuse(const std::string& message);
std::string format_real(double value);  // the shortest text that reads back the same

// A field as an op shows it to a visitor, with its value. Without a default it must be given. `meaning` is for whoever
// reads a list of fields: half a line that says what the field is, its unit, and what 0 stands for where that is no
// number.
struct Field {
  enum class Type { integer, real, choice, flag } type;
  const char *name, *meaning;
  std::int64_t low = 0, high = 0;           // of integers; of a flag 0 and 1, of a choice its first and last index
  double real_low = 0, real_high = 0;       // of reals
  std::span<const char* const> names = {};  // of choices

  std::int64_t integer = 0;  // the value of all but reals; of a choice its index
  double real = 0;
  std::optional<std::int64_t> fallback = {};
  std::optional<double> real_fallback = {};

  bool has_fallback() const { return fallback || real_fallback; }
  bool at_fallback() const { return type == Type::real ? real_fallback == real : fallback == integer; }
  void take_fallback();
  std::string text() const;             // the value in a problem's text
  void parse(const std::string& text);  // throws InvalidInput
  std::string range() const;            // "1 to 64", or the choices: "none, silu"
};

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void computes(const char* /*what*/) {}  // half a line on the op itself

  void integer(const char* name, const char* meaning, std::int64_t& value, std::int64_t low, std::int64_t high,
               std::optional<std::int64_t> fallback = std::nullopt) {
    value = seen({Field::Type::integer, name, meaning, low, high, 0, 0, {}, value, 0, fallback}).integer;
  }
  void real(const char* name, const char* meaning, double& value, double low, double high,
            std::optional<double> fallback = std::nullopt) {
    value = seen({Field::Type::real, name, meaning, 0, 0, low, high, {}, 0, value, {}, fallback}).real;
  }
  // Printed and parsed as 0 or 1.
  void flag(const char* name, const char* meaning, bool& value, bool fallback) {
    value = seen({Field::Type::flag, name, meaning, 0, 1, 0, 0, {}, value, 0, fallback}).integer != 0;
  }
  // An enum whose enumerators count up from 0 in the order of `names`, or an index of them.
  template <class Enum>
  void enumeration(const char* name, const char* meaning, Enum& value, std::span<const char* const> names,
                   std::optional<std::type_identity_t<Enum>> fallback = std::nullopt) {
    std::optional<std::int64_t> index;
    if (fallback) index = static_cast<std::int64_t>(*fallback);
    const auto now = static_cast<std::int64_t>(value), last = static_cast<std::int64_t>(names.size()) - 1;
    value = static_cast<Enum>(seen({Field::Type::choice, name, meaning, 0, last, 0, 0, names, now, 0, index}).integer);
  }

 protected:
  virtual void visit(Field& field) = 0;

 private:
  Field seen(Field field) {
    visit(field);
    return field;
  }
};

struct KeyValue {
  std::string key;
  std::string value;
};

// "m=4096,n=320,act=silu" -> its pairs, in order. Throws InvalidInput on an empty key, a missing '=' or a key given
// twice.
std::vector<KeyValue> split_problem_text(std::string_view text);
std::string join_problem_text(std::span<const KeyValue> pairs);

// Fills the fields from pairs. Throws InvalidInput on an unknown key (with the nearest known one), a missing field
// without a default, a value that is not a number, and a value out of range.
class FieldReader final : public FieldVisitor {
 public:
  explicit FieldReader(std::vector<KeyValue> pairs) : pairs_(std::move(pairs)), used_(pairs_.size(), false) {}
  void require_all_used() const;  // call after the visit

 private:
  void visit(Field& field) override;
  std::vector<KeyValue> pairs_;
  std::vector<bool> used_;
  std::vector<std::string> known_;
};

// The fields' values as text, in declaration order; those equal to their default are left out unless `defaults`.
class FieldWriter final : public FieldVisitor {
 public:
  explicit FieldWriter(bool defaults) : defaults_(defaults) {}
  const std::vector<KeyValue>& values() const { return values_; }

 private:
  void visit(Field& field) override {
    if (defaults_ || !field.at_fallback()) values_.push_back({field.name, field.text()});
  }
  bool defaults_;
  std::vector<KeyValue> values_;
};

// A field as data, for programs that look for values, list ops or make problems.
struct FieldInfo {
  using Type = Field::Type;
  explicit FieldInfo(Field field);

  Type type;
  std::string name, meaning;
  std::int64_t low, high;               // integers; 0 and 1 of flags
  double real_low, real_high;           // reals
  std::vector<std::string> choices;     // choices; "0" and "1" of flags
  std::optional<std::string> fallback;  // its default as problem text, where it has one

  bool chosen() const { return type == Type::choice || type == Type::flag; }
  const std::string& range() const { return range_; }  // of Field
  std::string description() const;                     // "images (1 to 64; default 1)"

 private:
  std::string range_;
};
const char* to_string(FieldInfo::Type type);

// What a default is made of is that of a blank problem (conv2d's pad follows its kernel, a network's sizes its name).
class FieldCollector final : public FieldVisitor {
 public:
  void computes(const char* what) override { what_ = what; }
  const std::vector<FieldInfo>& fields() const { return fields_; }
  const std::string& what() const { return what_; }

 private:
  void visit(Field& field) override { fields_.emplace_back(field); }
  std::vector<FieldInfo> fields_;
  std::string what_;
};

// The candidate nearest to `name` by edit distance, when near enough to be a slip (at most a third of its length, at
// least 1).
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);
// "; did you mean 'x'?" or "": the nearest, else the first that begins with `name`.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace noisefloor
