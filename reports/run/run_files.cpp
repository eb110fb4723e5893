#include "reports/run/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reports/run/network_problems.h"

namespace noisefloor {
namespace {

// A last line without its end: the writer was killed, or the file was cut while it was copied.
void require_whole(const fs::path& file, const std::string& text) {
  if (text.empty() || text.back() == '\n') return;
  const auto line = std::count(text.begin(), text.end(), '\n') + 1;
  throw failure(
      "{}:{}: the last line is cut off; the sweep was killed (the same command and --out resumes it), or the file was "
      "not copied whole",
      file.string(), line);
}

void leave_out_below_l2(SweepRow& row, const RunEnvironment& environment) {
  if (!environment.l2_bytes || !(row.bytes.value_or(0) < *environment.l2_bytes)) return;
  if (!row.dram_read_bytes && !row.dram_write_bytes) return;
  row.dram_read_bytes.reset();
  row.dram_write_bytes.reset();
  row.counter_status = "ok_below_l2";
}

}  // namespace

bool is_run_file(const std::string& name) {
  const auto is_it = [&](const char* known) { return name == known; };
  return name == ".lock" || std::ranges::any_of(kRunFiles, is_it) || std::ranges::any_of(kMadeFiles, is_it);
}

void remove_run_files(const fs::path& folder) {
  for (const char* name : kRunFiles) fs::remove(folder / name);
  for (const char* name : kMadeFiles) fs::remove(folder / name);
}

void copy_files_of_others(const fs::path& folder, const fs::path& to) {
  constexpr auto kOptions = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const auto name = entry.path().filename(); !is_run_file(name)) {
      if (!entry.is_symlink() && entry.is_other())
        throw failure("{} is neither a file nor a folder: move it elsewhere", entry.path().string());
      fs::copy(entry, to / name, kOptions);
    }
}

std::map<CaseId, RowSamples> read_samples(const fs::path& file, RunEnd end_of_run) {
  std::string text = read_samples_text(file);
  if (end_of_run == RunEnd::required)
    require_whole(file, text);
  else
    text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  std::map<CaseId, RowSamples> all;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    ++number;
    const std::size_t end = text.find('\n', begin);
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    try {
      SamplesLine read = parse_samples_line(line);
      read.samples.line = number;
      const auto [found, is_new] = all.try_emplace(std::move(read.id), std::move(read.samples));
      if (!is_new)
        throw failure("the samples of {} are there twice, first in line {}", found->first.name(), found->second.line);
    } catch (const std::runtime_error& error) {
      throw failure("{}:{}: {}", file.string(), number, error.what());
    }
  }
  return all;
}

const RowSamples& RunFiles::samples_of(const SweepRow& row) const {
  const auto found = samples.find(row);
  if (found == samples.end() || found->second.cold_us.empty())
    throw failure("{}: no samples of the row {}", samples_file(folder).string(), row.name());
  return found->second;
}

RunFiles read_run(const fs::path& folder, RunEnd end) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw failure("{}: {}; give the folder of a run", folder.string(),
                  fs::exists(folder, error) ? "is not a folder" : "no such folder");
  const auto sweep = folder / "sweep.csv", samples = samples_file(folder), environment = folder / "env.json";
  if (!fs::exists(sweep, error)) throw failure("{}: no sweep.csv there; give the folder of a run", folder.string());
  RunFiles run;
  run.folder = folder;
  const bool whole = end == RunEnd::required;
  const bool has_environment = whole || fs::exists(environment, error);
  if (has_environment) run.environment = read_environment(environment);
  const bool reuses = run.environment.texts.contains(kReusedFrom);
  if (whole) require_whole(sweep, read_whole_file(sweep));
  std::vector<std::size_t> lines;
  run.rows = read_sweep_csv(sweep, &lines);
  if (has_environment && has_old_names(folder))
    for (SweepRow& row : run.rows) row.networks = names_of_today(row.networks);
  std::map<CaseId, RowSamples> read;
  if (fs::exists(samples, error)) read = read_samples(samples, end);
  for (std::size_t i = 0; i < run.rows.size(); ++i) {
    SweepRow& row = run.rows[i];
    leave_out_below_l2(row, run.environment);
    const auto refuse = [&](const std::string& what) { throw failure("{}:{}: {}", sweep.string(), lines[i], what); };
    for (const auto& [name, part] : kCaseParts)
      if ((row.*part).empty()) refuse(fmt::format("column '{}' is blank", name));
    if (has_environment && row.device != run.environment.device)
      refuse(fmt::format("the row of {} is of device '{}', but {} says '{}'", row.name(), row.device,
                         environment.string(), run.environment.device));
    if (has_environment && !reuses && !row.commit.empty() && row.commit != run.environment.commit)
      refuse(fmt::format("the row of {} is of commit '{}', but {} says '{}'", row.name(), row.commit,
                         environment.string(), run.environment.commit));
    try {
      check_numbers(row);
    } catch (const std::runtime_error& problem) {
      refuse(problem.what());
    }
    auto node = read.extract(row.case_id());
    if (node.empty()) continue;
    try {
      check_against_samples(row, node.mapped());
    } catch (const std::runtime_error& problem) {
      refuse(fmt::format("{} ({}:{})", problem.what(), samples.string(), node.mapped().line));
    }
    run.samples.insert(std::move(node));
  }
  return run;
}

}  // namespace noisefloor
