// sweep.csv: one row per (op, problem, dtype, variant).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/run/case_id.h"

namespace noisefloor {

// What became of a case. Only `ok` carries a time.
enum class Outcome {
  ok,
  incorrect,
  cuda_error,
  unsupported_problem,
  unsupported_arch,
  not_built,
  out_of_memory,
  no_device,
  throttled,
  implausible  // faster than the device's measured rates allow
};

const char* to_string(Outcome outcome);
std::optional<Outcome> parse_outcome(const std::string& text);

// What bounds a row under its roof. In files `memory:tensor_bf16`: memory, where arithmetic would be held to the
// ceiling tensor_bf16. Blank: the row has no place under a roof.
struct Bound {
  enum class By { nothing, memory, compute } by = By::nothing;
  std::string ceiling;  // of arithmetic, as ceilings.csv has it

  std::string text() const;
  static Bound parse(const std::string& text);  // throws std::runtime_error
  bool operator==(const Bound&) const = default;
};

using Figure = std::optional<double>;  // a number of a row, or none

// The columns are one table, reports/run/columns.def. A number that was not measured is empty in the file.
struct SweepRow : CaseId {
  Outcome status = Outcome::no_device;
#define NOISEFLOOR_CASE_COLUMN(...)
#define NOISEFLOOR_COLUMN(Type, name, ...) Type name{};
#include "reports/run/columns.def"
  // What a file has in columns that this program does not know: kept. Its first row has them all, also blank ones.
  std::map<std::string, std::string> others;
};

// The header line and one row, RFC 4180 quoting, with line ends. `others`: unknown columns of the file, behind ours.
std::string sweep_csv_header(const std::vector<std::string>& others = {});
std::string to_csv(const SweepRow& row, const std::vector<std::string>& others = {});
std::vector<std::string> other_columns(const std::vector<SweepRow>& rows);
bool is_wrong(Outcome outcome);  // the case was run, and what it did cannot be trusted
// Whether it makes the exit code 1: wrong, or failed on the device, and ours. What a library gets wrong is a row.
bool is_failure(const SweepRow& row);
bool of_pytorch(const SweepRow& row);  // torch_*
bool of_worker(const SweepRow& row);   // or peer_*: of another program, whose rows a plan for this one cannot use

// Reads a whole sweep.csv. Columns are found by name, in any order: what is missing is blank, what is not known is kept
// in SweepRow::others. A last line without its line end (the sweep was killed while writing it) is left out. Throws
// std::runtime_error naming file, line, column and value for anything else that is not a sweep row, and for a second
// row of a case. `lines`, where given, gets each row's line.
std::vector<SweepRow> read_sweep_csv(const std::filesystem::path& file, std::vector<std::size_t>* lines = nullptr);

inline constexpr const char* kMixedPlan = "plan_fastest";  // the variant of a network that is of both sides

// Of so many of their threads that could run, on average, a sweep warns, and a run is no baseline without being asked
// for: where nothing else is done, it is below a tenth.
inline constexpr double kLoaded = 0.5;

// Of a run: the median of its rows, NaN where none says.
double load_of(const std::vector<SweepRow>& rows);

// "adm64-b32:10;sd15-b2:2" -> how often the problem occurs in a forward pass of each network. Throws on malformed text.
struct NetworkCount {
  std::string network;
  long count;
};
inline constexpr long kMaxNetworkCount = 1'000'000'000;  // far above any network; sums of them do not overflow
std::vector<NetworkCount> parse_networks(const std::string& text);

}  // namespace noisefloor
