// Run folders that a command was to fill and did not come to the end of: the same command goes on in them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace noisefloor {

// The newest run below `folder`, where that is one of `command`; none where it was finished, or is of another.
std::optional<std::filesystem::path> unfinished_run(const std::filesystem::path& folder, const std::string& command);

// FOLDER/.unfinished holds the command. Throws std::runtime_error where it cannot be written.
void note_unfinished(const std::filesystem::path& run, const std::string& command);
void note_finished(const std::filesystem::path& run);
bool is_unfinished(const std::filesystem::path& run);

}  // namespace noisefloor
