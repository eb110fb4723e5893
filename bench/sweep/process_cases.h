// Whether the processes of a run will have the same cases, before any of them begins.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "reports/run/case_id.h"

namespace noisefloor {

// The cases that a sweep by `arguments` chooses, as a process of its own lists them: this one would keep a context on
// the GPU. Where that process refuses them, its exit code; it has said why.
std::variant<std::vector<CaseId>, int> chosen_cases(std::vector<std::string> arguments,
                                                    const std::filesystem::path& run);

// Rows that are put together must be there in every process. Throws std::runtime_error naming folder and case where a
// process 1 to `processes` below `run` has one that is not chosen now, and another process has not, or that it was to
// have and has not.
void require_same_cases(const std::filesystem::path& run, int processes, const std::vector<CaseId>& chosen);

}  // namespace noisefloor
