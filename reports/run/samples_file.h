// The file of a run folder's raw samples: samples.jsonl, as a sweep writes it, or samples.jsonl.gz (one member of gzip,
// RFC 1952), as tools/publish packs it in folders that are kept.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "reports/run/files.h"

namespace noisefloor {

inline constexpr const char* kSamplesFile = "samples.jsonl";
inline constexpr const char* kPackedSamplesFile = "samples.jsonl.gz";

// Which of the two `folder` has; the first where it has neither. Throws std::runtime_error where it has both.
std::filesystem::path samples_file(const std::filesystem::path& folder);

// The text of either. Throws std::runtime_error with the file's name, as read_whole_file() does, and where what is
// packed is damaged, cut off, or more than `most_bytes`.
std::string read_samples_text(const std::filesystem::path& file, std::size_t most_bytes = kMostFileBytes);

}  // namespace noisefloor
