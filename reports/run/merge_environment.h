// env.json of a merged run: what its parts have in common, and what each has of its own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/run/merge_parts.h"

namespace noisefloor {

// In what the parts' GPUs and machines differ, in words, one note each.
std::vector<std::string> differences_of(const std::vector<MergePart>& parts);

// The first part's facts, and those that only later parts know. What belongs to one machine and differs stands in
// `of_parts`, a list in the order of `merged_from`.
nlohmann::ordered_json merged_environment(const std::vector<MergePart>& parts);

}  // namespace noisefloor
