// env.json of a run folder.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <regex>

#include "reports/run/json_file.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

constexpr std::pair<const char*, std::string RunEnvironment::*> kEnvironmentTexts[] = {
    {"device", &RunEnvironment::device},
    {"commit", &RunEnvironment::commit},
    {"driver", &RunEnvironment::driver},
    {"time_utc", &RunEnvironment::time_utc}};
constexpr std::pair<const char*, std::optional<double> RunEnvironment::*> kEnvironmentNumbers[] = {
    {"power_limit_w", &RunEnvironment::power_limit_w}, {"l2_bytes", &RunEnvironment::l2_bytes}};

}  // namespace

bool same_code(const std::string& commit, const std::string& other) {
  return commit == other && commit != "unknown";
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::optional<double> parse_time(const std::string& text) {
  static const std::regex form(
      R"((\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?:[Zz]|([+-])(\d\d):?(\d\d)))");
  std::smatch parts;
  constexpr std::size_t kLongest = 64;
  if (text.size() > kLongest || !std::regex_match(text, parts, form)) return std::nullopt;
  const auto number = [&](std::size_t part) { return parts[part].matched ? std::stoi(parts[part]) : 0; };
  const std::chrono::year_month_day day(std::chrono::year(number(1)), std::chrono::month(unsigned(number(2))),
                                        std::chrono::day(unsigned(number(3))));
  const double seconds = std::stod(parts[6]);
  constexpr int kHours = 24, kMinutes = 60;
  if (!day.ok() || number(4) >= kHours || number(5) >= kMinutes || seconds >= kMinutes + 1 || number(8) >= kHours ||
      number(9) >= kMinutes)
    return std::nullopt;
  const int ahead = (parts[7] == "-" ? -1 : 1) * (kMinutes * number(8) + number(9));
  const double minutes =
      kMinutes * (kHours * double(std::chrono::sys_days(day).time_since_epoch().count()) + number(4));
  return 60 * (minutes + number(5) - ahead) + seconds;
}

RunEnvironment read_environment(const fs::path& file) {
  const auto refuse = [&](const std::string& what) { throw failure("{}: {}", file.string(), what); };
  const nlohmann::ordered_json json = read_json_object(file);
  RunEnvironment environment;
  for (const char* name : {"device", "commit"})
    if (!json.contains(name)) refuse(fmt::format("field '{}' is missing", name));
  for (const auto& [name, member] : kEnvironmentTexts) {
    if (!json.contains(name)) continue;
    if (!json[name].is_string()) refuse(fmt::format("field '{}' is not a text", name));
    environment.*member = json[name];
  }
  for (const auto& [name, value] : json.items())
    if (value.is_string()) environment.texts[name] = value;
  for (const auto& [name, member] : kEnvironmentNumbers) {
    if (!json.contains(name)) continue;
    if (!json[name].is_number() || json[name] < 0) refuse(fmt::format("field '{}' is not a number from 0", name));
    environment.*member = json[name].get<double>();
  }
  if (const auto schema = json.find("schema"); schema != json.end()) {
    if (!schema->is_number_unsigned() || *schema == 0) refuse("field 'schema' is not a whole number from 1");
    if (*schema > kRunSchema)
      refuse(fmt::format("schema {} is newer than this program, which knows 1 to {}", schema->dump(), kRunSchema));
    environment.schema = *schema;
  }
  try {
    environment.command_lines = json.value("command_lines", environment.command_lines);
  } catch (const nlohmann::json::exception&) {
    refuse("field 'command_lines' is not a list of lists of texts");
  }
  return environment;
}

}  // namespace noisefloor
