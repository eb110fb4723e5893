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

constexpr std::string_view kKernels = "kernels", kClock = "_mhz";
constexpr std::pair<std::string_view, std::vector<double> RowSamples::*> kNumbers[] = {
    {"cold_us", &RowSamples::cold_us},
    {"cold_mhz", &RowSamples::cold_mhz},
    {"warm_us", &RowSamples::warm_us},
    {"warm_mhz", &RowSamples::warm_mhz},
    {"warm_edge_us", &RowSamples::warm_edge_us},
    {"warm_serial_us", &RowSamples::warm_serial_us},
    {"warm_serial_mhz", &RowSamples::warm_serial_mhz},
    {"warm_serial_edge_us", &RowSamples::warm_serial_edge_us},
};
constexpr std::pair<std::string_view, std::vector<std::size_t> RowSamples::*> kCounts[] = {
    {"cold_batches", &RowSamples::cold_batches},
    {"warm_batches", &RowSamples::warm_batches},
    {"warm_serial_batches", &RowSamples::warm_serial_batches},
    {"kernel_counts", &RowSamples::kernel_counts},
};

std::vector<double> rounded(const std::vector<double>& values) {
  std::vector<double> out;
  for (const double value : values)
    out.push_back(std::round(value * 1e3) / 1e3);  // events resolve half a microsecond at best
  return out;
}

template <class Table>
const auto* member_of(const Table& table, std::string_view field) {
  const auto found = std::ranges::find(table, field, [](const auto& entry) { return entry.first; });
  return found == std::end(table) ? nullptr : &found->second;
}

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
    if (known()) refuse(depth_ == 1 ? "is an object" : "holds an object");
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
    if (depth_ == 2 && field_ == kKernels) samples.kernels.clear();
    return true;
  }
  bool end_array() override {
    if (--depth_ != 1) return true;
    if (const auto* member = member_of(kNumbers, field_)) samples.** member = values_;
    if (const auto* member = member_of(kCounts, field_)) (samples.**member).assign(values_.begin(), values_.end());
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 0) throw std::runtime_error("is not a JSON object");
    if (depth_ == 2 && field_ == kKernels) {
      samples.kernels.push_back(std::move(text));
      return true;
    }
    std::string* const member = depth_ == 1 ? text_field() : nullptr;
    if (member == nullptr) return known() ? refuse("holds a text") : true;
    *member = std::move(text);
    return true;
  }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool null() override {
    if (depth_ == 2 && field_.ends_with(kClock) && known()) return keep(std::numeric_limits<double>::quiet_NaN());
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
    return text_field() != nullptr || field_ == kKernels || member_of(kNumbers, field_) != nullptr ||
           member_of(kCounts, field_) != nullptr;
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
    if (field_ == kKernels) refuse(fmt::format("holds {}, not a name", value));
    if (member_of(kCounts, field_) != nullptr) {
      constexpr double kMost = 1e9;
      if (!(value >= 1 && value <= kMost) || value != std::floor(value))
        refuse(fmt::format("holds {}, not a whole number from 1 to 1e9", value));
    } else if (!std::isfinite(value) || !(value > 0)) {
      refuse(fmt::format("holds {}, not a {} above 0", value, field_.ends_with(kClock) ? "clock" : "time"));
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

void require_batches(const char* phase, const std::vector<double>& us, const std::vector<std::size_t>& batches,
                     const std::vector<double>& mhz) {
  const std::size_t sum = std::accumulate(batches.begin(), batches.end(), std::size_t{0});
  if (!batches.empty() && sum != us.size())
    throw std::runtime_error(
        fmt::format("field '{0}_batches' adds up to {1}, but '{0}_us' has {2}", phase, sum, us.size()));
  if (!mhz.empty() && mhz.size() != batches.size())
    throw std::runtime_error(
        fmt::format("field '{}_mhz' has {} clocks for {} batches", phase, mhz.size(), batches.size()));
}

}  // namespace

std::string samples_line(const CaseId& id, const RowSamples& samples) {
  nlohmann::ordered_json line = {{"op", id.op},
                                 {"dtype", id.dtype},
                                 {"problem", id.problem},
                                 {"variant", id.variant},
                                 {"cold_us", rounded(samples.cold_us)},
                                 {"warm_us", rounded(samples.warm_us)},
                                 {"cold_batches", samples.cold_batches}};
  const auto add = [&](const char* name, const auto& values) {
    if (values.empty()) return;
    if constexpr (requires { rounded(values); })
      line[name] = rounded(values);  // NaN is written as null
    else
      line[name] = values;
  };
  add("cold_mhz", samples.cold_mhz);
  add("warm_batches", samples.warm_batches);
  add("warm_mhz", samples.warm_mhz);
  add("warm_edge_us", samples.warm_edge_us);
  add("warm_serial_us", samples.warm_serial_us);
  add("warm_serial_batches", samples.warm_serial_batches);
  add("warm_serial_mhz", samples.warm_serial_mhz);
  add("warm_serial_edge_us", samples.warm_serial_edge_us);
  add("kernels", samples.kernels);
  add("kernel_counts", samples.kernel_counts);
  return line.dump();
}

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
  require_batches("cold", samples.cold_us, samples.cold_batches, samples.cold_mhz);
  require_batches("warm", samples.warm_us, samples.warm_batches, samples.warm_mhz);
  require_batches("warm_serial", samples.warm_serial_us, samples.warm_serial_batches, samples.warm_serial_mhz);
  if (samples.kernels.size() != samples.kernel_counts.size())
    throw std::runtime_error(fmt::format("field 'kernel_counts' has {} numbers for {} kernels",
                                         samples.kernel_counts.size(), samples.kernels.size()));
  return {std::move(reader.id), std::move(samples)};
}

}  // namespace noisefloor
