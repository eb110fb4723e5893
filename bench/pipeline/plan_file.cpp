#include "bench/pipeline/plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/core/fields.h"
#include "reports/run/csv.h"
#include "reports/run/run_files.h"

namespace noisefloor::pipeline {

std::string plan_key(const std::string& op, const std::string& dtype, const std::string& problem) {
  return op + "|" + dtype + "|" + problem;
}

PlanEntries read_plan(const std::filesystem::path& file) {
  PlanEntries entries;
  try {
    const CsvFile csv = read_csv(file);
    if (csv.header != std::vector<std::string>{"op", "dtype", "problem", "variant"})
      throw std::runtime_error(fmt::format("its columns are {}", fmt::join(csv.header, ",")));
    for (const CsvLine& line : csv.lines)
      entries[plan_key(line.fields[0], line.fields[1], line.fields[2])] = line.fields[3];
  } catch (const std::runtime_error& error) {
    throw InvalidInput(fmt::format(
        "{} is not a plan (own, baseline, fastest, naive, or a file with the columns op,dtype,problem,variant): {}",
        file.string(), error.what()));
  }
  return entries;
}

void write_plan(const std::filesystem::path& file, const PlanEntries& entries) {
  std::string text = "op,dtype,problem,variant\n";
  for (const auto& [key, variant] : entries) {
    const std::size_t first = key.find('|'), second = key.find('|', first + 1);
    text += fmt::format("{},{},{},{}\n", key.substr(0, first), key.substr(first + 1, second - first - 1),
                        quote_csv(key.substr(second + 1)), variant);
  }
  write_atomically(file, text);
}

std::optional<std::string> check_plan_origin(const std::filesystem::path& plan, const std::string& device,
                                             const std::string& commit) {
  const std::filesystem::path file = plan.parent_path() / "env.json";
  if (!std::filesystem::exists(file))
    return fmt::format("plan {}: no env.json beside it says which device it is of; taken for one of this {}",
                       plan.string(), device);
  RunEnvironment environment;
  try {
    environment = read_environment(file);
  } catch (const std::runtime_error& error) {
    throw InvalidInput(fmt::format("plan {}: which device it is of cannot be read: {}", plan.string(), error.what()));
  }
  if (environment.device != device)
    throw InvalidInput(fmt::format("{} is a plan for {}, and this is {}", plan.string(), environment.device, device));
  if (environment.commit != commit)
    return fmt::format("plan {}: made at commit {}, and this program is of {}: its variants may have changed since",
                       plan.string(), environment.commit, commit);
  return std::nullopt;
}

}  // namespace noisefloor::pipeline
