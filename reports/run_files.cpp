#include "reports/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "reports/samples_line.h"

namespace noisefloor {
namespace {

std::string read_text(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw std::runtime_error(fmt::format("{}: cannot be read: it is a folder", file.string()));
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot be read", file.string()));
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) throw std::runtime_error(fmt::format("{}: reading failed", file.string()));
  return text;
}

// A last line without its end: the writer was killed, or the file was cut while it was copied.
void require_whole(const std::filesystem::path& file, const std::string& text) {
  if (text.empty() || text.back() == '\n') return;
  const auto line = std::count(text.begin(), text.end(), '\n') + 1;
  throw std::runtime_error(
      fmt::format("{}:{}: the last line is cut off; the sweep was killed, or the file not copied whole: go on with "
                  "the same command and --out",
                  file.string(), line));
}

std::string text_field(const nlohmann::json& object, const char* name, bool required) {
  const auto found = object.find(name);
  if (found == object.end()) {
    if (required) throw std::runtime_error(fmt::format("field '{}' is missing", name));
    return "";
  }
  if (!found->is_string()) throw std::runtime_error(fmt::format("field '{}' is no text", name));
  return found->get<std::string>();
}

std::vector<std::vector<std::string>> command_lines_of(const nlohmann::json& object) {
  const auto found = object.find("command_lines");
  if (found == object.end()) return {};
  try {
    return found->get<std::vector<std::vector<std::string>>>();
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error("field 'command_lines' is no list of lists of texts");
  }
}

int schema_of(const nlohmann::json& object) {
  const auto found = object.find("schema");
  if (found == object.end()) return 1;
  if (!found->is_number_unsigned() || found->get<unsigned>() == 0)
    throw std::runtime_error("field 'schema' is no whole number from 1");
  if (found->get<std::uint64_t>() > static_cast<std::uint64_t>(kRunSchema))
    throw std::runtime_error(fmt::format("schema {} is newer than this program, which knows 1 to {}",
                                         found->get<std::uint64_t>(), kRunSchema));
  return found->get<int>();
}

// What the rows say of themselves, beyond what read_sweep_csv() checks line by line.
void check_rows(const std::filesystem::path& file, const std::vector<SweepRow>& rows,
                const std::vector<std::size_t>& lines) {
  std::map<std::string, std::size_t> seen;
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
    const auto [found, is_new] = seen.try_emplace(row.key(), lines[i]);
    if (!is_new) refuse(fmt::format("the row of {} is there twice, first in line {}", row.key(), found->second));
  }
}

}  // namespace

RunEnvironment read_environment(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  try {
    const auto object = nlohmann::json::parse(text);
    if (!object.is_object()) throw std::runtime_error("is no JSON object");
    RunEnvironment environment;
    environment.schema = schema_of(object);
    environment.device = text_field(object, "device", true);
    environment.commit = text_field(object, "commit", true);
    const std::pair<const char*, std::string*> optional[] = {
        {"driver", &environment.driver},
        {"cuda_toolkit", &environment.cuda_toolkit},
        {"cuda_architectures", &environment.cuda_architectures},
        {"compiler", &environment.compiler},
        {"host_arch", &environment.host_arch},
        {"build_type", &environment.build_type},
        {"version", &environment.version},
        {"host", &environment.host},
        {"time_utc", &environment.time_utc},
    };
    for (const auto& [name, value] : optional) *value = text_field(object, name, false);
    environment.command_lines = command_lines_of(object);
    return environment;
  } catch (const nlohmann::json::parse_error& error) {
    const auto place = std::min(error.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n');
    throw std::runtime_error(fmt::format("{}:{}: not JSON, or cut off there", file.string(), line));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), error.what()));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), error.what()));
  }
}

std::map<std::string, RowSamples> read_samples(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  require_whole(file, text);
  std::map<std::string, RowSamples> all;
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
      const auto [found, is_new] = all.try_emplace(std::move(read.key), std::move(read.samples));
      if (!is_new)
        throw std::runtime_error(
            fmt::format("the samples of {} are there twice, first in line {}", found->first, found->second.line));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", file.string(), number, error.what()));
    }
  }
  return all;
}

const RowSamples& RunFiles::samples_of(const SweepRow& row) const {
  const auto found = samples.find(row.key());
  if (found == samples.end() || found->second.cold_us.empty())
    throw std::runtime_error(
        fmt::format("{}: no samples of the row {}", (folder / "samples.jsonl").string(), row.key()));
  return found->second;
}

RunFiles read_run(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw std::runtime_error(fmt::format("{}: {}; give the folder of a run", folder.string(),
                                         std::filesystem::exists(folder, error) ? "is no folder" : "no such folder"));
  const auto sweep = folder / "sweep.csv", samples = folder / "samples.jsonl";
  if (!std::filesystem::exists(sweep, error))
    throw std::runtime_error(fmt::format("{}: no sweep.csv there; give the folder of a run", folder.string()));
  RunFiles run;
  run.folder = folder;
  run.environment = read_environment(folder / "env.json");
  require_whole(sweep, read_text(sweep));
  std::vector<std::size_t> lines;
  run.rows = read_sweep_csv(sweep, &lines);
  check_rows(sweep, run.rows, lines);
  if (std::filesystem::exists(samples, error)) {
    auto read = read_samples(samples);
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      const SweepRow& row = run.rows[i];
      auto node = read.extract(row.key());
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
