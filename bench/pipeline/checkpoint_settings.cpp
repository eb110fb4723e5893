#include "bench/pipeline/checkpoint_settings.h"

#include <fmt/format.h>

#include "kernels/core/fields.h"

namespace noisefloor::pipeline {
namespace {

namespace fs = std::filesystem;
using Json = ConfigFile::Json;
using networks::ConfiguredAs;
using networks::NetworkInfo;

// Of a U-Net or decoder: what changes no number of a call in fp32, or is another part's.
constexpr const char* kHarmless[] = {"dropout",          "upcast_attention", "addition_embed_type_num_heads",
                                     "down_block_types",  // of an encoder
                                     "in_channels",       // as well
                                     "use_quant_conv",   "sample_size",      "num_frames"};

const char* kSettingsOption = "--settings own takes none of the folder's";

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
  if (size == nullptr) return;
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
    config.refuse("sample_size", fmt::format("one that {} takes ({})", row.name, error.what()));
  }
  row.image.height = asked.height;
  row.image.width = asked.width;
}

}  // namespace

// Of a stranger's keys.
constexpr std::size_t kMostShown = 80, kMostLines = 100;

void sort_unknown(const ConfigFile& config, const std::set<std::string, std::less<>>& known,
                  const std::set<std::string, std::less<>>& harmless, CheckpointSettings& settings) {
  for (const auto& [key, value] : config.settings().items()) {
    if (known.contains(key) || key == "_class_name") continue;
    const std::string text = fmt::format("{}: {} {}", config.name(), key.substr(0, kMostShown), shown(value));
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

void take_network_config(const ConfigFile& config, const GivenOptions& given, CheckpointSettings& settings) {
  NetworkInfo& row = settings.row;
  std::set<std::string, std::less<>> known;
  for (const ConfiguredAs& one : row.configuration) {
    known.insert(one.key);
    const Json* found = config.find(one.key);
    if (found != nullptr && !same_setting(Json::parse(one.value), *found))
      config.refuse(one.key, fmt::format("{}, as {} is built ({})", one.value, row.name, kSettingsOption));
  }
  if (row.decodes()) {
    known.insert({"scaling_factor", "force_upcast"});
    row.latent_scale = config.number("scaling_factor", row.latent_scale, 0, 1e6);
    settings.upcast = config.flag("force_upcast", false);
    if (config.find("scaling_factor") != nullptr) settings.from["latent scale"] = config.name() + " scaling_factor";
    if (config.find("force_upcast") != nullptr) settings.from["fp32 for fp16"] = config.name() + " force_upcast";
  } else if (row.most_frames > 1) {
    known.insert("num_frames");
    const int frames =
        config.whole("num_frames", static_cast<int>(row.image.frames), 1, static_cast<int>(row.most_frames));
    if (!given.contains("--frames")) row.image.frames = frames;
    if (config.find("num_frames") != nullptr) settings.from["frames"] = config.name() + " num_frames";
  } else if (!given.contains("--height") || !given.contains("--width")) {
    known.insert("sample_size");
    take_sample_size(config, row);
    if (config.find("sample_size") != nullptr)
      settings.from["height"] = settings.from["width"] = config.name() + " sample_size";
  }
  sort_unknown(config, known, {std::begin(kHarmless), std::end(kHarmless)}, settings);
}

std::optional<fs::path> pipeline_folder(const fs::path& file) {
  std::error_code error;
  const fs::path folder = fs::absolute(file, error).lexically_normal().parent_path().parent_path();
  if (fs::exists(folder / "model_index.json", error) || fs::exists(folder / "scheduler/scheduler_config.json", error))
    return folder;
  return {};
}

CheckpointSettings checkpoint_settings(const NetworkInfo& info, const fs::path& file, bool sampled,
                                       const GivenOptions& given) {
  CheckpointSettings settings{.row = info};
  if (info.configuration.empty() || file.empty()) return settings;
  const std::string part = info.folder;
  if (const auto config = ConfigFile::read(file.parent_path() / "config.json", part + "/config.json"))
    take_network_config(*config, given, settings);
  const auto folder = pipeline_folder(file);
  if (!folder || !sampled) return settings;
  const std::string kScheduler = "scheduler/scheduler_config.json";
  const auto index = ConfigFile::read(*folder / "model_index.json", "model_index.json");
  const auto config = ConfigFile::read(*folder / kScheduler, kScheduler);
  if (config) take_scheduler_config(*config, index ? scheduler_class(*index) : "", given, settings);
  return settings;
}

}  // namespace noisefloor::pipeline
