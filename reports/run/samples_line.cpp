#include "reports/run/samples_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "reports/run/json_file.h"

namespace noisefloor {
namespace {

// Every list of a line, in the order in which they are written.
template <class Samples, class Visit>
void visit_lists(Samples& samples, const Visit& visit) {
  visit("cold_us", samples.cold_us);
  visit("warm_us", samples.warm_us);
  visit("cold_batches", samples.cold_batches);
  visit("cold_mhz", samples.cold_mhz);
  visit("warm_batches", samples.warm_batches);
  visit("warm_mhz", samples.warm_mhz);
  visit("warm_edge_us", samples.warm_edge_us);
  visit("warm_serial_us", samples.warm_serial_us);
  visit("warm_serial_batches", samples.warm_serial_batches);
  visit("warm_serial_mhz", samples.warm_serial_mhz);
  visit("warm_serial_edge_us", samples.warm_serial_edge_us);
  visit("kernels", samples.kernels);
  visit("kernel_counts", samples.kernel_counts);
}

// Takes the values of the line's object as the parser meets them, so that no tree of them is made. Whatever is nested
// deeper belongs to a field that nobody here knows.
class SamplesReader {
 public:
  SamplesLine read(std::string_view line) {
    // Values have a comma between them, so there are no more than half as many as characters.
    const auto commas = static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
    values_.reserve(std::min(commas + 1, line.size() / 2));
    try {
      const auto rest =
          Json::parse(line, [&](int depth, Event event, Json& value) { return take(depth, event, value); });
    } catch (const Json::exception& error) {
      const auto* const wrong = dynamic_cast<const Json::parse_error*>(&error);  // else a number out of range
      throw std::runtime_error(fmt::format("not JSON{}{}", wrong ? fmt::format(" at column {}", wrong->byte) : "",
                                           field_.empty() ? "" : ", field '" + field_ + "'"));
    }
    return std::move(read_);
  }

 private:
  using Json = nlohmann::json;
  using Event = Json::parse_event_t;

  // Whether the parser's tree gets it: only the list that is being read, without its values.
  bool take(int depth, Event event, Json& value) {
    if (depth == 0 && event != Event::object_start && event != Event::object_end)
      throw std::runtime_error("is not a JSON object");
    if (depth > kDeepestJson) throw std::runtime_error(fmt::format("is nested deeper than {} levels", kDeepestJson));
    if (depth == 1 && event == Event::key) find_field(value.get_ref<std::string&>());
    if (depth == 0 || !known() || event == Event::key) return depth == 0 || known();
    if (event == Event::object_start) refuse(depth == 1 ? "is an object" : "holds an object");
    if (event == Event::array_start) {
      if (depth > 1 || text_ != nullptr) refuse(depth > 1 ? "holds a list" : "is a list, not a text");
      values_.clear();
      if (names_ != nullptr) names_->clear();
      return true;
    }
    if (event == Event::value) take_value(depth, value);
    if (event == Event::array_end && numbers_ != nullptr) *numbers_ = values_;
    if (event == Event::array_end && counts_ != nullptr) counts_->assign(values_.begin(), values_.end());
    return false;
  }

  void find_field(std::string& name) {
    field_ = std::move(name);
    text_ = nullptr, numbers_ = nullptr, counts_ = nullptr, names_ = nullptr;
    for (const auto& [part, member] : kCaseParts)
      if (part == field_) text_ = &(read_.id.*member);
    visit_lists(read_.samples, [&](const char* list_name, auto& list) {
      if (list_name == field_) point_at(list);
    });
  }
  void point_at(std::vector<double>& list) { numbers_ = &list; }
  void point_at(std::vector<std::size_t>& list) { counts_ = &list; }
  void point_at(std::vector<std::string>& list) { names_ = &list; }
  bool known() const { return text_ != nullptr || numbers_ != nullptr || counts_ != nullptr || names_ != nullptr; }

  void take_value(int depth, Json& value) {
    const bool is_clock = field_.ends_with("_mhz");
    const auto refuse_value = [&](const std::string& wanted) {
      refuse(fmt::format("{} {}{}", depth == 1 ? "is" : "holds", value.is_string() ? "a text" : value.dump(), wanted));
    };
    if (depth == 1 ? text_ != nullptr : names_ != nullptr) {
      if (!value.is_string()) refuse_value(depth == 1 ? "" : ", not a name");
      (depth == 1 ? *text_ : names_->emplace_back()) = std::move(value.get_ref<std::string&>());
      return;
    }
    if (depth == 2 && value.is_null() && is_clock) return values_.push_back(std::numeric_limits<double>::quiet_NaN());
    if (depth == 1 || !value.is_number()) refuse_value("");
    constexpr double kMost = 1e9;
    const auto number = value.get<double>();
    if (counts_ != nullptr && (!(number >= 1 && number <= kMost) || number != std::floor(number)))
      refuse_value(", not a whole number from 1 to 1e9");
    if (!(number > 0)) refuse_value(fmt::format(", not a {} above 0", is_clock ? "clock" : "time"));
    values_.push_back(number);
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error(fmt::format("field '{}' {}", field_, what));
  }

  SamplesLine read_;
  std::string field_;
  // Where its value goes: one of these, or none.
  std::string* text_ = nullptr;
  std::vector<double>* numbers_ = nullptr;
  std::vector<std::size_t>* counts_ = nullptr;
  std::vector<std::string>* names_ = nullptr;
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
  nlohmann::ordered_json line = {{"op", id.op}, {"dtype", id.dtype}, {"problem", id.problem}, {"variant", id.variant}};
  constexpr std::size_t kAlways = 7;  // these, and the first three lists
  visit_lists(samples, [&](const char* name, const auto& list) {
    if (list.empty() && line.size() >= kAlways) return;
    auto& values = line[name] = list;  // NaN is written as null
    for (auto& value : values)
      if (value.is_number_float())
        value = std::round(value.template get<double>() * 1e3) / 1e3;  // finer than any event
  });
  return line.dump();
}

SamplesLine parse_samples_line(std::string_view line) {
  SamplesLine read = SamplesReader().read(line);
  for (const auto& [name, part] : kCaseParts)
    if ((read.id.*part).empty()) throw std::runtime_error(fmt::format("field '{}' is missing or empty", name));
  const RowSamples& samples = read.samples;
  require_batches("cold", samples.cold_us, samples.cold_batches, samples.cold_mhz);
  require_batches("warm", samples.warm_us, samples.warm_batches, samples.warm_mhz);
  require_batches("warm_serial", samples.warm_serial_us, samples.warm_serial_batches, samples.warm_serial_mhz);
  if (samples.kernels.size() != samples.kernel_counts.size())
    throw std::runtime_error(fmt::format("field 'kernel_counts' has {} numbers for {} kernels",
                                         samples.kernel_counts.size(), samples.kernels.size()));
  return read;
}

}  // namespace noisefloor
