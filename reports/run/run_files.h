// A run folder as its readers meet it: env.json, the rows of sweep.csv and their raw samples, checked.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/run/files.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

// Raw samples, as a sweep writes them, or as one member of gzip (RFC 1952), as tools/publish packs them in folders that
// are kept.
inline constexpr const char* kSamplesFile = "samples.jsonl";
inline constexpr const char* kPackedSamplesFile = "samples.jsonl.gz";

// Which of the two `folder` has; the first where it has neither. Throws std::runtime_error where it has both.
fs::path samples_file(const fs::path& folder);

// The text of either. Throws std::runtime_error with the file's name, as read_whole_file() does, and where what is
// packed is damaged, cut off, or more than `most_bytes`.
std::string read_samples_text(const fs::path& file, std::size_t most_bytes = kMostFileBytes);

// env.json's `schema`: what a reader must know to read a folder rightly. A new column or field that a reader can pass
// over does not change it. 1 (or none): samples without batches. 2: samples.jsonl has `cold_batches` and `cold_mhz`.
// 3: networks are called otherwise (network_problems.h).
inline constexpr int kRunSchema = 3;

// The text of env.json that names the run of which a sweep kept rows (--reuse): these are of its commits.
inline constexpr const char* kReusedFrom = "reused_from";
inline constexpr const char* kShards = "shards";         // that were merged, "SELECTION 3/16": what else is missing
inline constexpr const char* kCheckSeed = "check_seed";  // by which rows that could be kept were chosen as checks
inline constexpr const char* kDoubted = "doubted";       // checks that took another time: the rows kept may not be true

// A folder may be resumed more often: the latest are kept.
inline constexpr std::size_t kMaxCommandLines = 1000;

// The files of a folder: what a run is made of, and what commands make of it.
inline constexpr const char* kRunFiles[] = {"sweep.csv", kSamplesFile,     kPackedSamplesFile,
                                            "env.json",  "ceilings.csv",   "networks.csv",
                                            "cases.csv", "crosscheck.csv", "shard.json"};
inline constexpr const char* kMadeFiles[] = {"roofline.csv", "totals.csv",   "plan.csv",    "report.html",
                                             "roofline.png", "roofline.svg", "overview.png"};
bool is_run_file(const std::string& name);  // one of them, or the lock
// What a sweep wrote to the folder, and what was made of it; nothing else. Throws fs::filesystem_error.
void remove_run_files(const fs::path& folder);
// Copies all else.
void copy_files_of_others(const fs::path& folder, const fs::path& to);

struct RunEnvironment {
  int schema = 1;
  std::string device, commit;  // always there
  std::string driver, time_utc;
  std::map<std::string, std::string> texts;  // all that the file has, by name
  std::optional<double> power_limit_w;
  std::optional<double> l2_bytes;  // on a host, of its last cache
  std::vector<std::vector<std::string>> command_lines;

  // Of `texts`; empty where the file has none of that name.
  std::string text(const std::string& name) const { return texts.contains(name) ? texts.at(name) : ""; }
};

// Whether two commits are one code. Of "unknown", what older programs outside of a checkout wrote, nobody can tell.
bool same_code(const std::string& commit, const std::string& other);

// Seconds since 1970 of a time as ISO 8601 writes it, with its zone: 2026-11-28T17:11:51Z, 2026-11-28 18:11:51.5+01:00.
// Nothing for any other text.
std::optional<double> parse_time(const std::string& text);
std::string utc_now();  // the first form

// The raw samples of one row, in the order in which they were taken.
struct RowSamples {
  std::size_t line = 0;                   // of the file of samples, from 1
  std::vector<double> cold_us, warm_us;   // each above 0
  std::vector<std::size_t> cold_batches;  // samples per batch; their sum is cold_us.size(); empty in schema 1
  std::vector<double> cold_mhz;           // SM clock behind each batch; NaN where it could not be read; empty: no clock
  std::vector<double> warm_serial_us;     // empty where warm_us is of ordinary edges already
  // As for cold; all empty where only the times were kept.
  std::vector<std::size_t> warm_batches, warm_serial_batches;
  std::vector<double> warm_mhz, warm_serial_mhz;
  // An edge between launches without work, before each of these phases and behind it. Empty: nobody looked.
  std::vector<double> warm_edge_us, warm_serial_edge_us;
  // Of the phase in which weights are cold; empty where there was none.
  std::vector<double> weights_cold_us, weights_cold_mhz;
  std::vector<std::size_t> weights_cold_batches;
  // What one launch runs on the GPU, by short names, and how often each. Empty: not known.
  std::vector<std::string> kernels;
  std::vector<std::size_t> kernel_counts;
  // Of a network under a plan: the cases that its nodes launch, by name, and how often each. Empty in schema 1 and 2.
  std::vector<std::string> launches;
  std::vector<std::size_t> launch_counts;
};

// A line of samples.jsonl, without its end. Times are rounded to a nanosecond.
struct SamplesLine {
  CaseId id;
  RowSamples samples;
};
std::string samples_line(const CaseId& id, const RowSamples& samples);
// Throws std::runtime_error naming the field. Fields that it does not know are passed over.
SamplesLine parse_samples_line(std::string_view line);

struct RunFiles {
  fs::path folder;
  RunEnvironment environment;
  std::vector<SweepRow> rows;            // no two of one case
  std::map<CaseId, RowSamples> samples;  // also rows that are not ok may have some

  // Throws std::runtime_error naming file and row where there are none.
  const RowSamples& samples_of(const SweepRow& row) const;
};

// What a row's numbers must agree with. Each throws std::runtime_error naming the column: where an error is above what
// is allowed; where a time is not that of the samples, or a number not theirs. Rows that are not ok have no time.
void check_numbers(const SweepRow& row);
void check_against_samples(const SweepRow& row, const RowSamples& taken);

// A sweep that was killed leaves a last line without its end, and perhaps no env.json.
enum class RunEnd { required, may_lack };

// Each throws std::runtime_error naming file, line and field for what is missing, cut off, of a newer schema, twice
// there, or no time (NaN, 0, negative, infinite).
RunEnvironment read_environment(const fs::path& file);
std::map<CaseId, RowSamples> read_samples(const fs::path& file, RunEnd end = RunEnd::required);
// All of a folder, its networks called as today, held against each other: rows are of env.json's device, and each time
// is the median of its samples. What DRAM moves of a problem that fits into L2 is left out, as today's sweeps do; older
// ones counted what L2 chose to keep. Samples without a row (of a case that a killed sweep was about to write) are left
// out.
RunFiles read_run(const fs::path& folder, RunEnd end = RunEnd::required);

}  // namespace noisefloor
