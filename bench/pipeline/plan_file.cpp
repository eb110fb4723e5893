#include <fmt/format.h>

#include <algorithm>

#include "bench/pipeline/plan.h"
#include "bench/platform/refusal.h"
#include "kernels/catalogue.h"
#include "kernels/core/fields.h"
#include "reports/run/csv.h"
#include "reports/run/run_files.h"

namespace noisefloor::pipeline {

PlanEntries read_plan(const fs::path& file) {
  PlanEntries entries;
  try {
    const CsvFile csv = read_csv(file);
    const std::size_t op = csv.column("op"), dtype = csv.column("dtype"), problem = csv.column("problem"),
                      variant = csv.column("variant");
    for (const CsvLine& line : csv.lines) {
      const auto refuse = [&](const std::string& what) { throw failure("line {}: {}", line.number, what); };
      std::vector<std::string> ops;
      for (const Op& one : catalogue()) ops.push_back(one.name);
      const std::string& name = line.fields[op];
      if (std::find(ops.begin(), ops.end(), name) == ops.end())
        refuse(fmt::format("unknown op '{}'{}", name, did_you_mean(name, ops)));
      if (!parse_dtype(line.fields[dtype])) refuse(fmt::format("unknown dtype '{}'", line.fields[dtype]));
      const ProblemId id{name, line.fields[problem], line.fields[dtype]};
      if (const auto [there, is_new] = entries.try_emplace(id, line.fields[variant]); !is_new)
        refuse(fmt::format("{} is there twice, first with '{}'", id.name(), there->second));
    }
  } catch (const std::runtime_error& error) {
    throw refusal(
        "{} is not a plan (own, baseline, fastest, naive, or a file with the columns op,dtype,problem,variant): {}",
        file.string(), error.what());
  }
  return entries;
}

void write_plan(const fs::path& file, const PlanEntries& entries) {
  CsvFile added{file, {"op", "dtype", "problem", "variant"}, {}};
  for (const auto& [id, variant] : entries) added.lines.push_back({0, {id.op, id.dtype, id.problem, variant}});
  merge_csv_file(file, added, {"op", "dtype", "problem"});
}

std::optional<std::string> check_plan_origin(const fs::path& plan, const std::string& device,
                                             const std::string& commit) {
  const fs::path file = plan.parent_path() / "env.json";
  if (!fs::exists(file))
    return fmt::format("plan {}: no env.json beside it says which device it is of; taken for one of this {}",
                       plan.string(), device);
  RunEnvironment environment;
  try {
    environment = read_environment(file);
  } catch (const std::runtime_error& error) {
    throw refusal("plan {}: which device it is of cannot be read: {}", plan.string(), error.what());
  }
  if (environment.device != device)
    throw refusal("{} is a plan for {}, and this is {}", plan.string(), environment.device, device);
  if (!same_code(environment.commit, commit))
    return fmt::format("plan {}: made at commit {}, and this program is of {}: its variants may have changed since",
                       plan.string(), environment.commit, commit);
  return std::nullopt;
}

}  // namespace noisefloor::pipeline
