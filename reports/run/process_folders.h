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

}  // namespace noisefloor
