// The gate: did a change make something slower? Two runs, row by row, one rule; its reports, and the baseline's folder.
//
// Each phase of a row is known to an interval: its median, give or take its noise. The noise is one number: the larger
// of what the row's own batches say and of what `gate calibrate` measured between runs of one build. A row
//   regressed   where the candidate's interval lies above the baseline's by more than 1.5 % (cold: and 0.5 us), in time
//               and, where the clock is known, in SM cycles;
//   improved    the same the other way;
//   passes      where it surely did not slow by 5 %;
//   else it is ambiguous: time and cycles disagree, or the noise is too large to see 5 %.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/run/run_files.h"
#include "reports/totals/totals.h"

namespace noisefloor {

// ---- Two runs row by row (compare.cpp): which rows belong together, how far apart their times are, and what a forward
// pass of each network takes on either side.

struct RowPairing {
  std::string variant_a, variant_b;  // both empty: each with its own namesake; else this one against that one
  NameFilter filter;                 // of "op/problem/dtype/variant"; none: all
};

struct RowPair {
  const SweepRow* a = nullptr;  // either may be missing, not both
  const SweepRow* b = nullptr;

  const SweepRow& named() const { return a != nullptr ? *a : *b; }
};
// In the order of `a`, then what only `b` has. Throws std::runtime_error where a run has none of a named variant, or
// the filter leaves nothing of either.
std::vector<RowPair> pair_rows(const RunFiles& a, const RunFiles& b, const RowPairing& options);

// What is compared of a row: launches one behind the other with ordinary edges, and launches that find nothing in
// cache.
enum class Phase { warm, cold };
const char* to_string(Phase phase);

struct PhaseSamples {
  std::vector<double> us;
  std::vector<std::size_t> batches;
  std::vector<double> cycles;  // time x clock of its batch, else of the row; empty where neither is known
  std::size_t slots = 1;       // of its buffers: batch i is of slot i, modulo their number
};
// Nothing where the row has no warm times with ordinary edges (an older folder). Throws as RunFiles::samples_of().
std::optional<PhaseSamples> phase_samples(const RunFiles& run, const SweepRow& row, Phase phase);

// Medians, and changes b over a minus 1.
struct PhaseChange {
  double a_us = 0, b_us = 0, change = 0;
  std::optional<double> cycle_change;  // where both runs know the clock
};

// One pair that is `ok` on both sides. `warm` is there where both runs have it.
struct RowChange {
  RowPair rows;
  PhaseChange cold;
  std::optional<PhaseChange> warm;
};
RowChange row_change(const RunFiles& a, const RunFiles& b, const RowPair& pair);

struct TotalChange {
  std::string network, op, dtype, choice;
  NetworkTotal a, b;  // `problems` of 0: that side has nothing of it
};
// "own best" of each network, op and dtype, or the two variants of `options`.
std::vector<TotalChange> total_changes(const RunFiles& a, const RunFiles& b, const RowPairing& options);

// Whether the runs are one, or one is a copy of the other: of which a few rows may have been measured again, and rows
// of a coarse clock are alike by chance.
bool same_samples(const RunFiles& a, const RunFiles& b);

// What differs between the machines and builds, one line each ("driver: 580.1 and 590.2").
std::vector<std::string> environment_differences(const RunFiles& a, const RunFiles& b);

// ---- How far runs of one build lie apart on a machine, row by row (noise.cpp). Where the driver put code and queues,
// which pages a process got, how warm the board was: all is drawn once a process, so that no batch of it shows it.
// `gate calibrate` takes it from runs of one build, as a file beside the baseline.

inline constexpr const char* kNoiseFile = "gate_noise.json";

// Noise counts for no more, wherever it is from; equal runs that lie further apart are not noise.
inline constexpr double kMostNoise = 0.2;

struct GateNoise {
  std::string device;
  std::vector<std::string> runs;  // name_of() each
  // Relative: the most by which two of the runs differ, in time and in SM cycles alike.
  std::map<std::pair<Phase, CaseId>, double> rows;

  std::optional<double> of(const CaseId& id, Phase phase) const;
};

std::string name_of(const RunFiles& run);  // commit and time
// A host has no clock that is held, and neighbours on its caches.
bool is_of_host(const RunFiles& run);

struct MeasuredNoise {
  GateNoise noise;
  std::vector<std::string> left_out;  // rows that lie apart, with the run whose time does
};
// Of three runs or more. Throws std::runtime_error where they are of different devices or commits, one is a copy of
// another, or of one more than a tenth of the rows lie apart from the other runs' by more than kMostNoise: it is named,
// with them.
MeasuredNoise measure_noise(std::span<const RunFiles> runs);

std::string to_json(const GateNoise& noise);
GateNoise read_noise(const fs::path& file);  // throws std::runtime_error naming it

// ---- The rule

inline constexpr double kSmallChange = 0.015;
inline constexpr double kLargeChange = 0.05;
inline constexpr double kMostAmbiguous = 0.1;  // an ambiguous row that is slower by more is not passed over
// Of cold times, what the timer resolves; of a launch of less than two of these, three tenths.
inline constexpr double kTimerUs = 0.5, kTimerShare = 0.3;
// What nobody measured: of a GPU so much that both sides together are as wide as the least change.
inline constexpr double kAssumedNoise = kSmallChange / 2;
static_assert(2 * (1 - kMostNoise) / (1 + kMostNoise) > 1 + kTimerShare,
              "a row twice as slow regresses, whatever else");

enum class GateVerdict { regressed, ambiguous, improved, pass };  // worst first
const char* to_string(GateVerdict verdict);

struct PhaseVerdict {
  double noise = 0;
  GateVerdict verdict = GateVerdict::pass;
  std::string reason = {};  // of an ambiguous one
};
PhaseVerdict judge(const PhaseChange& change, Phase phase, double noise);

// From the batches of one side: three standard deviations of its median, from the order of the batches' medians alone,
// so that batches of two levels give an interval that holds both. Batches of one buffer slot count once.
double batch_noise(const PhaseSamples& samples);

struct GateRow {
  RowChange change;
  PhaseVerdict cold;
  std::optional<PhaseVerdict> warm;  // where both runs have serial warm times
  GateVerdict verdict = GateVerdict::pass;
  std::vector<Phase> by;  // the phases that have this verdict; empty where all pass
  std::string reason;

  const PhaseVerdict& of(Phase phase) const { return phase == Phase::warm ? *warm : cold; }
  const PhaseChange& change_of(Phase phase) const { return phase == Phase::warm ? *change.warm : change.cold; }
  double slowdown() const;  // the largest change among those phases, else among all
  // Ambiguous, and slower by more than kMostAmbiguous.
  bool blocks() const { return verdict == GateVerdict::ambiguous && slowdown() > kMostAmbiguous; }
  bool is_suspect() const { return verdict == GateVerdict::regressed || blocks(); }
};

// What one side lacks.
struct GateGap {
  enum class Weight { fails, blocks, noted };
  CaseId id;
  Weight weight;
  std::string what;   // "ok in the baseline, missing in the candidate"
  bool lost = false;  // the baseline has it
};

// Which kernels the rows of two runs launch: what appeared, vanished, or is launched more or less often: the same
// change in one or more rows of a variant.
struct LaunchChange {
  struct Kernel {
    std::string name;
    std::size_t before = 0, after = 0;  // launches of it in one launch of the row
  };
  std::vector<const SweepRow*> rows;
  std::vector<Kernel> kernels;
  bool of_library = false;  // then it is the library's business
};

struct LaunchChanges {
  std::vector<LaunchChange> changes;  // ours first, then by number of rows
  std::size_t compared = 0;           // rows whose kernels both runs know
  std::size_t known_to_one = 0;       // and that one of them knows
  std::vector<const SweepRow*> lost;  // of these, what `a` knows

  std::size_t ours() const;  // changes of our rows
};
LaunchChanges launch_changes(const RunFiles& a, const RunFiles& b, std::span<const RowPair> pairs);

// "appears", "vanishes", "2 -> 3 launches".
std::string what_changed(const LaunchChange::Kernel& kernel);

struct GateOptions {
  RowPairing pairs;
  bool new_rows = false;             // rows that only the candidate has are noted, and do not block
  bool launches = false;             // a change of what a row of ours launches fails
  const GateNoise* noise = nullptr;  // as measured; rows that it does not know, and all without it, are assumed
  // Another run of the candidate's build: of a suspect that is ok there, its samples decide.
  const RunFiles* again = nullptr;
};

struct GateResult {
  std::string name_a = "baseline", name_b = "candidate";  // what columns are called
  // `noisefloor compare` fills rows without verdicts, and says the result in words.
  bool judged = true;
  std::string headline;
  std::string device;
  std::vector<GateRow> rows;  // worst first
  std::vector<GateGap> gaps;  // heaviest first
  std::vector<TotalChange> totals;
  LaunchChanges launches;
  std::vector<std::string> conditions;  // what a reader should know of the two runs
  std::size_t untimed = 0;              // pairs that are the same and not ok on both sides
  std::vector<GateRow> kept;            // the baseline's own, which the candidate's sweep kept: not compared
  bool gates_launches = false;

  std::size_t count(GateVerdict verdict) const;
  std::size_t count(GateGap::Weight weight) const;
  std::size_t much_slower_ambiguous() const;
  // 1 where a row regressed or broke, or launches changed that must not; else 2 where something cannot be compared, or
  // a row may be much slower; else 0.
  int exit_code() const;
};

// The runs must outlive the result. Throws std::runtime_error where nothing can be compared: runs of different devices,
// no row in common, no samples, noise of another device or from the candidate, no launches known on both sides to gate,
// a second measurement of another build or device, or that holds the samples of one of the two.
GateResult gate(const RunFiles& baseline, const RunFiles& candidate, const GateOptions& options);

// What the gate and `compare` found, for readers.
std::string phases_text(const std::vector<Phase>& phases);  // "warm and cold"
// Worst rows first, rows without a partner, totals, what differs between the machines.
std::string terminal_text(const GateResult& result);
std::string markdown_text(const GateResult& result);  // below what GitHub takes as one comment

// A test case a row: regressed fails, a row that cannot be compared is an error, an ambiguous or new one is skipped.
// And one a change of launches: skipped, or with --launches a failure where it is ours.
std::string junit_xml(const GateResult& result);

// The candidate's times for pages that show trends (docs/ci.md), each with the noise that the gate allows for. Rows
// without a time in one of the two runs are not there: exit code and JUnit have them.
std::string bencher_json(const GateResult& result);  // ns, by case: cold as `latency`, serial warm `warm-latency`
std::string benchmark_action_json(const GateResult& result);  // us, "CASE (cold)" and "CASE (warm)"

// One sentence each: interrupted, measured beside other programs, rows without a time because of that or of heat, all
// of it much faster than the baseline (which was then measured beside others). `against` may be null: there is no
// baseline yet.
std::vector<std::string> doubts_about(const RunFiles& candidate, const GateResult* against);

// Puts the files of the run `candidate` in the place of the run `baseline`, all at once: a reader finds the old run or
// the new one, or, where the folder itself cannot be exchanged (a mount point), for a moment one without sweep.csv,
// which no reader takes. Files in `baseline` that no command writes (a README) stay; what was made from the old run
// (roofline.csv, report.html, ...) goes. Where there is no such folder it is made. Throws std::runtime_error, with the
// baseline as it was, where it holds something else than a run, either folder is being written, one lies within the
// other, or the disk refuses.
void replace_baseline(const fs::path& baseline, const fs::path& candidate);

}  // namespace noisefloor
