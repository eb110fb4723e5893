#include "reports/run/merge_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What belongs to one GPU and its machine, and may differ between parts: name in env.json, and in words.
constexpr std::pair<const char*, const char*> kOfOneMachine[] = {
    {"gpu_uuid", "GPUs"},
    {"power_limit_w", "power limits in W"},
    {"power_limit_default_w", "default power limits in W"},
    {"sm_clock_max_mhz", "highest SM clocks in MHz"},
    {"memory_clock_max_mhz", "highest memory clocks in MHz"},
    {"sm_clock_application_mhz", "SM clocks for applications in MHz"},
    {"memory_clock_application_mhz", "memory clocks for applications in MHz"},
    {"ecc", "ECC modes"},
    {"mig", "MIG modes"},
    {"pcie", "PCIe links"},
    {"cupti", "CUPTIs"},
    {"cpu", "CPUs"},
    {"cpu_cores", "numbers of CPU cores"},
    {"cpu_governor", "CPU governors"},
    {"load_average", "load averages"},
};

// Of each part, in their order; null where it does not know.
Json of_parts(const std::vector<MergePart>& parts, const char* name) {
  Json values = Json::array();
  for (const MergePart& part : parts) values.push_back(part.environment.value(name, Json()));
  return values;
}
bool differ(const Json& values) {
  return std::any_of(values.begin(), values.end(), [&](const Json& value) { return value != values.front(); });
}

}  // namespace

std::vector<std::string> differences_of(const std::vector<MergePart>& parts) {
  std::vector<std::string> notes;
  for (const auto& [name, words] : kOfOneMachine)
    if (const Json values = of_parts(parts, name); differ(values) && std::string_view(name) != "load_average")
      notes.push_back(fmt::format("the shards are of different {}: {}", words, values.dump()));
  return notes;
}

nlohmann::ordered_json merged_environment(const std::vector<MergePart>& parts) {
  Json merged = parts.front().environment;
  Json hosts = Json::array(), command_lines = Json::array(), folders = Json::array();
  std::string latest;
  std::optional<double> latest_time;
  for (const MergePart& part : parts) {
    if (const std::string host = part.text("host"); std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(host);
    for (const Json& line : part.environment.value("command_lines", Json::array())) command_lines.push_back(line);
    folders.push_back(fs::absolute(part.folder).lexically_normal().string());
    const std::string text = part.text("time_utc");
    const auto time = parse_time(text);
    if (!time && !text.empty())
      cannot_merge(part.folder / "env.json", fmt::format("'time_utc' is '{}', not a time with its zone", text));
    if (time && (!latest_time || *time > *latest_time)) latest = text, latest_time = time;
  }
  for (const MergePart& part : parts)  // a part without PyTorch's rows knows no version
    for (const auto& [name, value] : part.environment.items())
      if (!merged.contains(name)) merged[name] = value;
  Json parted = Json::object();
  for (const auto& [name, words] : kOfOneMachine)
    if (Json values = of_parts(parts, name); differ(values)) {
      merged.erase(name);
      parted[name] = std::move(values);
    }
  if (!parted.empty()) merged["of_parts"] = parted;  // in the order of merged_from
  merged["host"] = hosts.size() == 1 ? hosts.front() : Json(fmt::format("{} hosts", hosts.size()));
  merged["hosts"] = hosts;
  if (command_lines.size() > kMaxCommandLines)
    command_lines.erase(command_lines.begin(), command_lines.end() - static_cast<std::ptrdiff_t>(kMaxCommandLines));
  merged["command_lines"] = command_lines;
  merged["time_utc"] = latest;
  merged["merged_from"] = folders;
  if (const auto missing = missing_of(parts); !missing.empty()) merged["missing"] = missing;  // by --partial
  return merged;
}

}  // namespace noisefloor
