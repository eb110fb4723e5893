#include "bench/measure/search_cache.h"

#include <fmt/format.h>

#include <cstdio>
#include <system_error>
#include <utility>

#include "bench/ceilings/ceilings.h"
#include "bench/platform/fingerprint.h"
#include "reports/run/json_file.h"

namespace noisefloor {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kSchema = 1;  // another where searches became others, so that older findings are not the best
constexpr std::size_t kMostBytes = std::size_t{1} << 16;

OrderedJson json_of(const SearchCache::Key& key) {
  return {{"schema", kSchema},     {"device", key.device},      {"version", key.version},   {"op", key.id.op},
          {"dtype", key.id.dtype}, {"problem", key.id.problem}, {"variant", key.id.variant}};
}

KeptSearch read_search(const fs::path& file, const OrderedJson& key) {
  const OrderedJson json = read_json_object(file, kMostBytes);
  for (const auto& [name, value] : key.items())
    if (!json.contains(name) || json[name] != value)
      throw failure("{}: field '{}' is not {}", file.string(), name, value.dump());
  try {
    if (json.contains("lost")) return {{}, {}, json.at("lost").get<std::string>()};
    KeptSearch found{json.at("algorithms").get<Algorithms>(), json.at("description").get<std::string>()};
    if (found.algorithms.empty()) throw failure("{}: names no algorithm", file.string());
    return found;
  } catch (const OrderedJson::exception& error) {
    throw failure("{}: {}", file.string(), error.what());
  }
}

}  // namespace

SearchCache::SearchCache(fs::path folder, Log log) : folder_(std::move(folder)), log_(std::move(log)) {}

std::shared_ptr<SearchCache> SearchCache::of_user() {
  const fs::path folder = cache_folder();
  return std::make_shared<SearchCache>(folder.empty() ? fs::path() : folder / "searches",
                                       [](const std::string& message) { fmt::print(stderr, "{}\n", message); });
}

fs::path SearchCache::file_of(const Key& key) const {
  return folder_ /
         fmt::format("{}-{}-{}.json", key.id.op, key.id.variant, Fingerprint().add(json_of(key).dump()).text());
}

std::optional<KeptSearch> SearchCache::find(const Key& key) {
  const fs::path file = file_of(key);
  if (const auto own = of_this_process_.find(file.string()); own != of_this_process_.end()) return own->second;
  std::error_code ignored;
  if (again_ || forgotten_.contains(file.string()) || folder_.empty() || !fs::exists(file, ignored))
    return std::nullopt;
  try {
    return read_search(file, json_of(key));
  } catch (const std::exception& error) {
    log_(fmt::format("warning: a cached search is not usable and is made again: {}", error.what()));
    return std::nullopt;
  }
}

void SearchCache::keep(const Key& key, const KeptSearch& found) {
  const fs::path file = file_of(key);
  of_this_process_[file.string()] = found;
  write(file, key, found);
}

void SearchCache::refuse(const Key& key, const std::string& why) {
  keep(key, {{}, {}, why.empty() ? "no reason was given" : why});
}

void SearchCache::write(const fs::path& file, const Key& key, const KeptSearch& found) {
  try {
    if (folder_.empty()) throw std::runtime_error("neither XDG_CACHE_HOME nor HOME is set");
    fs::create_directories(folder_);
    OrderedJson json = json_of(key);
    if (!found.lost.empty()) {
      json["lost"] = found.lost;
    } else {
      json["algorithms"] = found.algorithms;
      json["description"] = found.description;
    }
    write_atomically(file, json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  } catch (const std::exception& error) {
    if (!std::exchange(said_, true)) log_(fmt::format("warning: searches are not cached: {}", error.what()));
  }
}

void SearchCache::forget(const Key& key, const std::string& why) {
  const fs::path file = file_of(key);
  log_(fmt::format("warning: {}: the cached choice no longer holds and is made again: {}", key.id.name(), why));
  of_this_process_.erase(file.string());
  std::error_code ignored;
  fs::remove(file, ignored);
  forgotten_.insert(file.string());
}

}  // namespace noisefloor
