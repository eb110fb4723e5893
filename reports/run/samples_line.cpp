#include "reports/run/samples_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

namespace noisefloor {
namespace {

// Takes the values of the line's object as the parser meets them. Whatever is nested deeper belongs to a field that
// nobody here knows.
class SamplesReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit SamplesReader(std::size_t most_values) { values_.reserve(most_values); }

  bool key(string_t& name) override {
    if (depth_ == 1) field_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 1 && known()) refuse("is an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) throw std::runtime_error("is not a JSON object");
    if (depth_ == 1 && text_field() != nullptr) refuse("is a list, not a text");
    if (depth_ == 2 && known()) refuse("holds a list");
    ++depth_;
    values_.clear();
    return true;
  }
  bool end_array() override {
    if (--depth_ != 1) return true;
    if (field_ == "cold_us") samples.cold_us = values_;
    if (field_ == "warm_us") samples.warm_us = values_;
    if (field_ == "cold_batches") samples.cold_batches.assign(values_.begin(), values_.end());
    if (field_ == "cold_mhz") samples.cold_mhz = values_;
    if (field_ == "warm_serial_us") samples.warm_serial_us = values_;
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 0) throw std::runtime_error("is not a JSON object");
    std::string* const member = depth_ == 1 ? text_field() : nullptr;
    if (member == nullptr) return known() ? refuse("holds a text") : true;
    *member = std::move(text);
    return true;
  }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool null() override {
    if (depth_ == 2 && field_ == "cold_mhz") return keep(std::numeric_limits<double>::quiet_NaN());
    return other("null");
  }
  bool boolean(bool) override { return other("a truth value"); }
  bool binary(binary_t&) override { return other("binary data"); }
  bool parse_error(std::size_t place, const std::string& last, const nlohmann::json::exception&) override {
    throw std::runtime_error(
        fmt::format("not JSON at column {}{}: '{}'", place, field_.empty() ? "" : ", field '" + field_ + "'", last));
  }

  CaseId id;
  RowSamples samples;

 private:
  std::string* text_field() {
    if (field_ == "op") return &id.op;
    if (field_ == "problem") return &id.problem;
    if (field_ == "dtype") return &id.dtype;
    return field_ == "variant" ? &id.variant : nullptr;
  }
  bool known() {
    return text_field() != nullptr || field_ == "cold_us" || field_ == "warm_us" || field_ == "cold_batches" ||
           field_ == "cold_mhz" || field_ == "warm_serial_us";
  }
  [[noreturn]] bool refuse(const std::string& what) {
    throw std::runtime_error(fmt::format("field '{}' {}", field_, what));
  }
  bool other(const char* what) {
    if (depth_ == 0) throw std::runtime_error("is not a JSON object");
    return known() ? refuse(fmt::format("holds {}", what)) : true;
  }
  bool number(double value) {
    if (depth_ == 0) throw std::runtime_error("is not a JSON object");
    if (!known()) return true;
    if (depth_ != 2) refuse(fmt::format("is {}", value));
    if (field_ == "cold_batches") {
      constexpr double kMost = 1e9;
      if (!(value >= 1 && value <= kMost) || value != std::floor(value))
        refuse(fmt::format("holds {}, not a whole number from 1 to 1e9", value));
    } else if (!std::isfinite(value) || !(value > 0)) {
      refuse(fmt::format("holds {}, not a {} above 0", value, field_ == "cold_mhz" ? "clock" : "time"));
    }
    return keep(value);
  }
  bool keep(double value) {
    values_.push_back(value);
    return true;
  }

  int depth_ = 0;
  std::string field_;
  std::vector<double> values_;  // of the list that is being read
};

}  // namespace

SamplesLine parse_samples_line(std::string_view line) {
  // Values have a comma between them, so there are no more than half as many as characters.
  const auto commas = static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
  SamplesReader reader(std::min(commas + 1, line.size() / 2));
  nlohmann::json::sax_parse(line, &reader);  // parse_error() throws
  const std::pair<const char*, const std::string*> names[] = {{"op", &reader.id.op},
                                                              {"problem", &reader.id.problem},
                                                              {"dtype", &reader.id.dtype},
                                                              {"variant", &reader.id.variant}};
  for (const auto& [name, value] : names)
    if (value->empty()) throw std::runtime_error(fmt::format("field '{}' is missing or empty", name));
  RowSamples& samples = reader.samples;
  if (!samples.cold_batches.empty()) {
    const std::size_t sum = std::accumulate(samples.cold_batches.begin(), samples.cold_batches.end(), std::size_t{0});
    if (sum != samples.cold_us.size())
      throw std::runtime_error(
          fmt::format("field 'cold_batches' adds up to {}, but 'cold_us' has {}", sum, samples.cold_us.size()));
  }
  if (!samples.cold_mhz.empty() && samples.cold_mhz.size() != samples.cold_batches.size())
    throw std::runtime_error(fmt::format("field 'cold_mhz' has {} clocks for {} batches", samples.cold_mhz.size(),
                                         samples.cold_batches.size()));
  return {std::move(reader.id), std::move(samples)};
}

}  // namespace noisefloor
