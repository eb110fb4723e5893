// plan.csv (op,dtype,problem,variant), and whether it belongs to this device and program.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "reports/run/case_id.h"

namespace noisefloor::pipeline {

using PlanEntries = std::map<ProblemId, std::string>;  // the variant of each problem

// Columns are found by name. Throws InvalidInput naming the file where it is not a plan.
PlanEntries read_plan(const std::filesystem::path& file);
// Into a file that is there: its other lines and columns stay.
void write_plan(const std::filesystem::path& file, const PlanEntries& entries);

// A plan is as good as what was measured for it: env.json beside it, as a run folder has it, names device and commit.
// Throws InvalidInput for another device, and for an env.json that cannot be read, naming it. What remains in doubt is
// said: no env.json, or another commit, since when variants may have changed.
std::optional<std::string> check_plan_origin(const std::filesystem::path& plan, const std::string& device,
                                             const std::string& commit);

}  // namespace noisefloor::pipeline
