// Files that hold one JSON object: env.json, shard.json, settings beside a checkpoint.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "reports/run/files.h"

namespace noisefloor {

inline constexpr std::size_t kMostJsonBytes = std::size_t{1} << 24;  // a tree takes many times its text
inline constexpr int kDeepestJson = 32;

// Keys in the order of the file. Throws std::runtime_error with the file's name where it cannot be read, is too large
// or nested too deep, or does not hold one object.
nlohmann::ordered_json read_json_object(const fs::path& file, std::size_t most_bytes = kMostJsonBytes);
// The same of its text.
nlohmann::ordered_json parse_json_object(const std::string& text, const fs::path& file);

}  // namespace noisefloor
