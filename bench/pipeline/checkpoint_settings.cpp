#include "bench/pipeline/checkpoint_settings.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>

#include "kernels/core/fields.h"
#include "reports/run/json_file.h"

namespace noisefloor::pipeline {
namespace {

using Json = ConfigFile::Json;
using networks::NetworkInfo;

// What Python writes for numbers that JSON does not have, in quotes.
std::string without_infinities(const std::string& text) {
  std::string quoted;
  for (std::size_t i = 0, end; i < text.size(); i = end) {
    end = i + 1;
    const auto rest = std::string_view(text).substr(i);
    if (text[i] == '"') {  // a text, which stays
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      ++end;
    }
    std::string_view word;
    for (const std::string_view one : {"-Infinity", "Infinity", "NaN"})
      if (rest.starts_with(one) && word.empty()) word = one;
    if (!word.empty()) end = i + word.size();
    quoted += word.empty() ? text.substr(i, end - i) : fmt::format("\"{}\"", word);
  }
  return quoted;
}

bool nothing(const Json& value) {
  return value.is_null() || value == false || (value.is_number() && value.get<double>() == 0);
}

// Of a U-Net or decoder: what changes no number of a call in fp32, or is another part's.
constexpr const char* kHarmless[] = {"dropout",          "upcast_attention", "addition_embed_type_num_heads",
                                     "down_block_types",  // of an encoder
                                     "in_channels",       // as well
                                     "use_quant_conv",   "sample_size",      "num_frames"};

// The scheduler's class that a pipeline names: {"scheduler": ["diffusers", "EulerDiscreteScheduler"], ...}.
std::string scheduler_class(const ConfigFile& index) {
  const Json* entry = index.find("scheduler");
  if (entry == nullptr) return "";
  if (!entry->is_array() || entry->size() != 2 || !(*entry)[1].is_string())
    index.refuse("scheduler", "a list of a library and a class");
  return (*entry)[1].get<std::string>();
}

// Sides of latents as a setting has them: one number, or [height, width].
void take_sample_size(const ConfigFile& config, NetworkInfo& row) {
  const Json* size = config.find("sample_size");
  const auto side = [&](const Json& value) {
    constexpr double kMost = 65536;
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number >= 1 && number <= kMost && number == static_cast<double>(static_cast<std::int64_t>(number))))
      config.refuse("sample_size", "a whole number of 1 to 65536, or two of them");
    return static_cast<std::int64_t>(number);
  };
  const bool two = size->is_array() && size->size() == 2;
  networks::Sizes asked{.height = side(two ? (*size)[0] : *size), .width = side(two ? (*size)[1] : *size)};
  try {
    (void)row.resolved(asked);
  } catch (const InvalidInput& error) {
    config.refuse("sample_size",
                  fmt::format("one that {} takes ({}; --size height=,width= overrides it)", row.name, error.what()));
  }
  row.image.height = asked.height;
  row.image.width = asked.width;
}

// The settings that a network is built with, and the first of them that the file says otherwise.
Json structure_of(const NetworkInfo& row) {
  return row.configuration.empty() ? Json::object() : Json::parse(row.configuration);
}
std::string first_unlike(const ConfigFile& config, const Json& structure) {
  for (const auto& [key, value] : structure.items())
    if (const Json* said = config.said(key); said != nullptr && !same_setting(value, *said)) return key;
  return "";
}

void require_structure(const ConfigFile& config, const NetworkInfo& row, const Json& structure) {
  const std::string wrong = first_unlike(config, structure);
  if (wrong.empty()) return;
  std::string must = fmt::format("{}, as {} is built", structure[wrong].dump(), row.name);
  for (const NetworkInfo& other : networks::all_networks())
    if (const Json others = structure_of(other); others.contains(wrong) && first_unlike(config, others).empty()) {
      must += fmt::format(" (this is {}: ask for that, or give the weights of {})", other.name, row.name);
      break;
    }
  config.refuse(wrong, must);
}

// A checkpoint's place as it is given, and where links lead: of its folder, and its own. Settings lie beside one of
// them.
std::vector<fs::path> places_of(const fs::path& file) {
  std::error_code error;
  std::vector<fs::path> places{fs::absolute(file, error).lexically_normal()};
  if (const fs::path folder = fs::canonical(fs::absolute(file, error).parent_path(), error); !error)
    places.push_back(folder / file.filename());
  if (const fs::path target = fs::canonical(file, error); !error) places.push_back(target);
  return places;
}

void take_network_config(const ConfigFile& config, const GivenOptions& given, CheckpointSettings& settings) {
  NetworkInfo& row = settings.row;
  const Json structure = structure_of(row);
  require_structure(config, row, structure);
  std::set<std::string, std::less<>> known;
  for (const auto& [key, value] : structure.items()) known.insert(key);
  const auto take = [&](const char* key, std::initializer_list<const char*> names) {  // whether it is said
    known.insert(key);
    if (config.find(key) == nullptr) return false;
    for (const char* name : names) settings.from[name] = fmt::format("{} {}", config.name(), key);
    return true;
  };
  if (row.decodes()) {
    if (take("scaling_factor", {"latent scale"})) row.latent_scale = config.number("scaling_factor", 1, 0, 1e6);
    if (take("force_upcast", {"fp32 for fp16"})) settings.upcast = config.flag("force_upcast", false);
  } else if (row.most_frames > 1) {
    if (!given.contains("--size frames=") && take("num_frames", {"frames"}))
      row.image.frames = config.whole("num_frames", 1, 1, static_cast<int>(row.most_frames));
  } else if (!(given.contains("--size height=") && given.contains("--size width=")) &&
             take("sample_size", {"height", "width"})) {
    take_sample_size(config, row);
  }
  sort_unknown(config, known, {std::begin(kHarmless), std::end(kHarmless)}, settings);
}

}  // namespace

std::optional<ConfigFile> ConfigFile::read(const fs::path& file, std::string name) {
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

template <class Value, class Valid>
Value ConfigFile::get(std::string_view key, Value otherwise, const std::string& must, const Valid& valid) const {
  const Json* value = said(key);
  if (value == nullptr) return otherwise;
  if (!valid(*value)) refuse(key, must);
  return value->get<Value>();
}

bool ConfigFile::flag(std::string_view key, bool otherwise) const {
  if (const Json* value = said(key); value != nullptr && value->is_null()) return false;
  return get(key, otherwise, "true or false", [](const Json& value) { return value.is_boolean(); });
}

std::string ConfigFile::word(std::string_view key, const std::string& otherwise) const {
  return get(key, otherwise, "a text", [](const Json& value) { return value.is_string(); });
}

double ConfigFile::number(std::string_view key, double otherwise, double above, double below) const {
  const std::string most = std::isinf(below) ? "" : fmt::format(" and below {}", below);
  return get(key, otherwise, fmt::format("a number above {}{}", above, most), [&](const Json& value) {
    return value.is_number() && value.get<double>() > above && value.get<double>() < below;
  });
}

int ConfigFile::whole(std::string_view key, int otherwise, int least, int most) const {
  return get(key, otherwise, fmt::format("a whole number, {} to {}", least, most), [&](const Json& value) {
    const double number = value.is_number() ? value.get<double>() : NAN;
    return number >= least && number <= most && number == std::floor(number);
  });
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

// Of a stranger's keys.
constexpr std::size_t kMostLines = 100;

void sort_unknown(const ConfigFile& config, const std::set<std::string, std::less<>>& known,
                  const std::set<std::string, std::less<>>& harmless, CheckpointSettings& settings) {
  for (const auto& [key, value] : config.settings().items()) {
    if (known.contains(key) || key == "_class_name") continue;
    const std::string text = fmt::format("{}: {} {}", config.name(), shown_name(key), shown(value));
    const bool says_nothing = same_setting(Json(), value) || (value.is_array() && value.empty());
    const bool ignored = key.starts_with('_') || harmless.contains(key) || says_nothing;
    std::vector<std::string>& lines = ignored ? settings.ignored : settings.warnings;
    if (lines.size() == kMostLines) lines.push_back(config.name() + ": and more");
    if (lines.size() > kMostLines) continue;
    if (ignored)
      lines.push_back(text);
    else
      lines.push_back(text + ": not a setting that is known here; it is ignored, and may change pictures");
  }
}

std::string CheckpointSettings::line(const std::string& name, const std::string& value,
                                     const std::string& given) const {
  const auto said = from.find(name);
  return fmt::format("{:<18} {:<24} {}\n", name, value,
                     !given.empty()       ? given
                     : said != from.end() ? said->second
                                          : fmt::format("{}'s own", row.name));
}

std::optional<fs::path> pipeline_folder(const fs::path& file) {
  for (const fs::path& place : places_of(file))
    if (const fs::path folder = place.parent_path().parent_path();
        is_there(folder / "model_index.json") || is_there(folder / "scheduler/scheduler_config.json"))
      return folder;
  return {};
}

CheckpointSettings checkpoint_settings(const NetworkInfo& info, const fs::path& file, bool sampled,
                                       const GivenOptions& given) {
  CheckpointSettings settings{.row = info};
  if (info.configuration.empty() || file.empty()) return settings;
  const std::string part = info.folder;
  for (const fs::path& place : places_of(file))
    if (const auto config = ConfigFile::read(place.parent_path() / "config.json", part + "/config.json")) {
      take_network_config(*config, given, settings);
      break;
    }
  const auto folder = pipeline_folder(file);
  if (!folder || !sampled) return settings;
  const std::string kScheduler = "scheduler/scheduler_config.json";
  const auto index = ConfigFile::read(*folder / "model_index.json", "model_index.json");
  const auto config = ConfigFile::read(*folder / kScheduler, kScheduler);
  if (config) take_scheduler_config(*config, index ? scheduler_class(*index) : "", given, settings);
  return settings;
}

}  // namespace noisefloor::pipeline
