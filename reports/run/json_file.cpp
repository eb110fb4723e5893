#include "reports/run/json_file.h"

#include <fmt/format.h>

#include <algorithm>

namespace noisefloor {

nlohmann::ordered_json read_json_object(const fs::path& file, std::size_t most_bytes) {
  return parse_json_object(read_whole_file(file, most_bytes), file);
}

nlohmann::ordered_json parse_json_object(const std::string& text, const fs::path& file) {
  using Json = nlohmann::ordered_json;
  const auto refuse = [&](const std::string& what) { throw failure("{}: {}", file.string(), what); };
  try {
    Json json = Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepestJson) refuse(fmt::format("is nested deeper than {} levels", kDeepestJson));
      return true;
    });
    if (!json.is_object()) refuse("is not a JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    const auto line = 1 + std::ranges::count(text.substr(0, error.byte), '\n');
    throw failure("{}:{}: is not JSON, or cut off there", file.string(), line);
  } catch (const Json::exception&) {
    throw failure("{}: is not JSON: it has a number out of range", file.string());
  }
}

}  // namespace noisefloor
