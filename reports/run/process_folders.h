// The folders of several processes within a run's folder, which is the run of all of them together
// (bench/sweep/several_processes.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace noisefloor {

std::string process_folder_name(int process);  // "process-1": they count from 1

// All that are there, sorted. Empty where `run` is not a folder.
std::vector<std::filesystem::path> process_folders(const std::filesystem::path& run);

// Throws std::runtime_error naming them where there are any: another run in the place of `run` would have beside it the
// processes of the one before. They are not removed with it, because they hold what was measured.
void require_no_processes(const std::filesystem::path& run);

}  // namespace noisefloor
