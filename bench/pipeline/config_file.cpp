#include "bench/pipeline/config_file.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include "kernels/core/fields.h"
#include "reports/run/json_file.h"

namespace noisefloor::pipeline {
namespace {

using Json = ConfigFile::Json;

// What Python writes for numbers that JSON does not have, in quotes.
std::string without_infinities(const std::string& text) {
  std::string quoted;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_text = !in_text;
    if (in_text && text[i] == '\\' && i + 1 < text.size()) quoted += text[i++];
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (!in_text && !replaced && text.compare(i, word.size(), word) == 0) {
        quoted += fmt::format("\"{}\"", word);
        i += word.size() - 1;
        replaced = true;
      }
    if (!replaced) quoted += text[i];
  }
  return quoted;
}

bool nothing(const Json& value) {
  return value.is_null() || value == false || (value.is_number() && value.get<double>() == 0);
}

}  // namespace

std::optional<ConfigFile> ConfigFile::read(const std::filesystem::path& file, std::string name) {
  if (!is_there(file)) return {};
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // 1000 betas are 20 KB
  try {
    return ConfigFile(file.string(), std::move(name),
                      parse_json_object(without_infinities(read_whole_file(file, kMostBytes)), file));
  } catch (const std::runtime_error& problem) {
    throw InvalidInput(problem.what());
  }
}

const Json* ConfigFile::said(std::string_view key) const {
  const auto found = json_.find(std::string(key));
  return found == json_.end() ? nullptr : &*found;
}

const Json* ConfigFile::find(std::string_view key) const {
  const Json* value = said(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void ConfigFile::refuse(std::string_view key, const std::string& must) const {
  const Json* value = said(key);
  throw InvalidInput(fmt::format("{}: {} must be {}, is {}; --settings own takes nothing of the folder", path_, key,
                                 must, value == nullptr ? "not there" : shown(*value)));
}

bool ConfigFile::flag(std::string_view key, bool otherwise) const {
  const Json* value = said(key);
  if (value == nullptr) return otherwise;
  if (value->is_null()) return false;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::string ConfigFile::word(std::string_view key, const std::string& otherwise) const {
  const Json* value = said(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(key, "a text");
  return value->get<std::string>();
}

double ConfigFile::number(std::string_view key, double otherwise, double above, double below) const {
  const Json* value = said(key);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number > above && number < below))
    refuse(key, std::isinf(below) ? fmt::format("a number above {}", above)
                                  : fmt::format("a number above {} and below {}", above, below));
  return number;
}

int ConfigFile::whole(std::string_view key, int otherwise, int least, int most) const {
  const Json* value = said(key);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= least && number <= most && number == std::floor(number)))
    refuse(key, fmt::format("a whole number, {} to {}", least, most));
  return static_cast<int>(number);
}

bool same_setting(const Json& expected, const Json& found) {
  if (nothing(expected) && nothing(found)) return true;
  if (expected.is_number() && found.is_number())
    return std::fabs(expected.get<double>() - found.get<double>()) <= 1e-9 * std::fabs(expected.get<double>());
  if (expected.is_array() || found.is_array()) {
    const std::size_t length = expected.is_array() ? expected.size() : found.size();
    if (expected.is_array() && found.is_array() && found.size() != length) return false;
    for (std::size_t i = 0; i < length; ++i) {
      const Json& wanted = expected.is_array() ? expected[i] : expected;
      const Json& there = found.is_array() ? found[i] : found;
      if (there.is_array() || (!(expected.is_array() && wanted.is_null()) && !same_setting(wanted, there)))
        return false;
    }
    return length > 0;
  }
  return expected == found;
}

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 80;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string shown_name(const std::string& name) {
  const std::string text = shown(name);
  return text.substr(1, text.size() - (text.ends_with('"') ? 2 : 1));
}

}  // namespace noisefloor::pipeline
