#include "reports/run/resumed_rows.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "reports/run/files.h"
#include "reports/run/row_checks.h"
#include "reports/run/samples_file.h"
#include "reports/run/samples_line.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

// Cuts off a last line that a killed sweep left without its end. A file that is not `ours` is not ours to cut.
template <class Ours>
void drop_incomplete_line(const fs::path& file, const Ours& ours) {
  if (!fs::is_regular_file(file)) return;
  const std::string text = read_whole_file(file);
  const std::size_t complete = text.rfind('\n') + 1;  // npos + 1 is 0
  if (complete == text.size()) return;
  if (!ours(text)) throw foreign_file(file.string());
  fs::resize_file(file, complete);
}

// Also where the sweep was killed within the first line.
bool begins_as_samples(const std::string& text) {
  constexpr std::string_view kBeginning = "{\"op\":\"";
  return text.starts_with(kBeginning) || kBeginning.starts_with(text);
}
bool begins_as_sweep(const std::string& text) {
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? sweep_csv_header().starts_with(text)
                                  : is_sweep_csv_header(std::string_view(text).substr(0, end));
}

std::runtime_error damaged(const std::string& what) {
  return std::runtime_error(what + "; it is damaged: give another --out, or --fresh");
}

}  // namespace

std::runtime_error foreign_file(const std::string& place) {
  return std::runtime_error(place + ": not written by a sweep of this version; give another --out, or --fresh");
}

std::map<CaseId, SweepRow> resumed_rows(const fs::path& folder) {
  const auto sweep = folder / "sweep.csv";
  drop_incomplete_line(sweep, begins_as_sweep);
  drop_incomplete_line(folder / kSamplesFile, begins_as_samples);
  std::map<CaseId, SweepRow> rows;
  if (fs::is_regular_file(sweep) && fs::file_size(sweep) > 0) {
    std::vector<std::size_t> lines;
    for (const SweepRow& row : read_sweep_csv(sweep, &lines)) {
      try {
        check_numbers(row);
      } catch (const std::runtime_error& wrong) {
        throw damaged(fmt::format("{}:{}: {}", sweep.string(), lines[rows.size()], wrong.what()));
      }
      rows.emplace(row, row);
    }
  }
  drop_samples_without_row(folder, rows);
  return rows;
}

void drop_samples_without_row(const fs::path& folder, const std::map<CaseId, SweepRow>& rows) {
  const auto file = folder / kSamplesFile;
  if (!fs::exists(file)) return;
  std::istringstream stream(read_whole_file(file));
  std::string kept;
  bool dropped = false;
  std::size_t number = 0;
  std::map<CaseId, std::size_t> seen;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string place = fmt::format("{}:{}", file.string(), number);
    SamplesLine read;
    try {
      read = parse_samples_line(line);
    } catch (const std::runtime_error&) {
      throw foreign_file(place);
    }
    const auto row = rows.find(read.id);
    if (row == rows.end()) {
      dropped = true;
      continue;
    }
    kept += line + "\n";
    const auto [first, is_new] = seen.try_emplace(read.id, number);
    if (!is_new)
      throw damaged(
          fmt::format("{}: the samples of {} are there twice, first in line {}", place, read.id.name(), first->second));
    try {
      check_against_samples(row->second, read.samples);
    } catch (const std::runtime_error& wrong) {
      throw damaged(fmt::format("{}: the row of {} in sweep.csv is not of these samples: {}", place, read.id.name(),
                                wrong.what()));
    }
  }
  if (dropped) write_atomically(file, kept);
}

std::set<CaseId> rows_without_samples(const fs::path& folder, const std::map<CaseId, SweepRow>& rows) {
  const auto file = folder / kSamplesFile;
  std::set<CaseId> without;
  if (!fs::exists(file)) return without;
  for (const auto& [id, row] : rows)
    if (row.status == Outcome::ok || row.status == Outcome::throttled) without.insert(id);
  std::istringstream stream(read_whole_file(file));
  for (std::string line; std::getline(stream, line);) without.erase(parse_samples_line(line).id);
  return without;
}

}  // namespace noisefloor
