#include "reports/run/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "reports/run/samples_line.h"

namespace noisefloor {
namespace {

// A last line without its end: the writer was killed, or the file was cut while it was copied.
void require_whole(const std::filesystem::path& file, const std::string& text) {
  if (text.empty() || text.back() == '\n') return;
  const auto line = std::count(text.begin(), text.end(), '\n') + 1;
  throw std::runtime_error(
      fmt::format("{}:{}: the last line is cut off; the sweep was killed, or the file not copied whole: resume with "
                  "the same command and --out",
                  file.string(), line));
}

// What the rows say of themselves, beyond what read_sweep_csv() checks line by line.
void check_rows(const std::filesystem::path& file, const std::vector<SweepRow>& rows,
                const std::vector<std::size_t>& lines) {
  std::map<CaseId, std::size_t> seen;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    const auto refuse = [&](const std::string& what) {
      throw std::runtime_error(fmt::format("{}:{}: {}", file.string(), lines[i], what));
    };
    const std::pair<const char*, const std::string*> names[] = {
        {"op", &row.op}, {"variant", &row.variant}, {"dtype", &row.dtype}, {"problem", &row.problem}};
    for (const auto& [name, value] : names)
      if (value->empty()) refuse(fmt::format("column '{}' is blank", name));
    if (row.time_cold_mad_us && *row.time_cold_mad_us < 0) refuse("column 'time_cold_mad_us' is negative");
    if (row.samples && *row.samples < 0) refuse("column 'samples' is negative");
    const auto [found, is_new] = seen.try_emplace(row.case_id(), lines[i]);
    if (!is_new) refuse(fmt::format("the row of {} is there twice, first in line {}", row.name(), found->second));
  }
}

}  // namespace

bool is_run_file(const std::string& name) {
  const auto is_it = [&](const char* known) { return name == known; };
  return name == ".lock" || std::ranges::any_of(kRunFiles, is_it) || std::ranges::any_of(kMadeFiles, is_it);
}

std::string read_whole_file(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw std::runtime_error(fmt::format("{}: cannot be read: it is a folder", file.string()));
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot be read", file.string()));
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) throw std::runtime_error(fmt::format("{}: reading failed", file.string()));
  return text;
}

std::map<CaseId, RowSamples> read_samples(const std::filesystem::path& file) {
  const std::string text = read_whole_file(file);
  require_whole(file, text);
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
        throw std::runtime_error(fmt::format("the samples of {} are there twice, first in line {}", found->first.name(),
                                             found->second.line));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", file.string(), number, error.what()));
    }
  }
  return all;
}

const RowSamples& RunFiles::samples_of(const SweepRow& row) const {
  const auto found = samples.find(row);
  if (found == samples.end() || found->second.cold_us.empty())
    throw std::runtime_error(
        fmt::format("{}: no samples of the row {}", (folder / "samples.jsonl").string(), row.name()));
  return found->second;
}

RunFiles read_run(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw std::runtime_error(
        fmt::format("{}: {}; give the folder of a run", folder.string(),
                    std::filesystem::exists(folder, error) ? "is not a folder" : "no such folder"));
  const auto sweep = folder / "sweep.csv", samples = folder / "samples.jsonl";
  if (!std::filesystem::exists(sweep, error))
    throw std::runtime_error(fmt::format("{}: no sweep.csv there; give the folder of a run", folder.string()));
  RunFiles run;
  run.folder = folder;
  run.environment = read_environment(folder / "env.json");
  require_whole(sweep, read_whole_file(sweep));
  std::vector<std::size_t> lines;
  run.rows = read_sweep_csv(sweep, &lines);
  check_rows(sweep, run.rows, lines);
  if (std::filesystem::exists(samples, error)) {
    auto read = read_samples(samples);
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      const SweepRow& row = run.rows[i];
      auto node = read.extract(row.case_id());
      if (node.empty()) continue;
      const RowSamples& taken = node.mapped();
      if (row.status == Outcome::ok && row.samples && static_cast<std::size_t>(*row.samples) != taken.cold_us.size())
        throw std::runtime_error(fmt::format("{}:{}: column 'samples' is {}, but {}:{} has {} cold samples",
                                             sweep.string(), lines[i], *row.samples, samples.string(), taken.line,
                                             taken.cold_us.size()));
      run.samples.insert(std::move(node));
    }
  }
  return run;
}

}  // namespace noisefloor
