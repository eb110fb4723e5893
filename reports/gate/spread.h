// How far two processes of one build lie apart: what a change must exceed twice to be one.
//
// Where the driver put code and queues, which pages a process got, how warm the board was: all is drawn once a process,
// so that no batch of it shows it. It is measured from runs of one build, for short and long launches apart, and kept
// as a file with the GPU or with a baseline.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/gate/compare.h"

namespace noisefloor {

inline constexpr const char* kSpreadFile = "gate_noise.json";

// By how much, as a fraction of the shorter time, two times differ: the least that medians, means of batches and SM
// cycles say, 0 where they contradict. A difference that the clock explains is none, nor one of a median alone.
double agreed_change(const PhaseChange& change);

struct Spread {
  // Of the pairs of runs of all rows of that length.
  struct Class {
    Phase phase;
    double from_us;  // up to the next of class_edges()
    std::size_t pairs;
    double rms, p99;  // of agreed_change()
    double typical;   // the median of its rows' rms; the class's own is set by a few rows of two levels
    // The 99th percentile, of few pairs rather that of a normal distribution.
    double spread() const;
  };
  // A row by itself: what its pairs of runs say, and a little of what its class does.
  struct Row {
    std::size_t runs;
    double rms;  // of agreed_change(), of the pairs of these runs
  };
  std::string device;
  bool of_host = false;
  std::vector<std::string> sweeps;  // commit and time of each run that it was measured from; none: it is assumed
  std::vector<Class> classes;
  // Warm every row of a GPU, else those that two runs of one build would have called changed.
  std::map<std::pair<Phase, CaseId>, Row> rows;

  // What a change of this row must exceed: twice its own spread where enough runs say it, else that of its class,
  // measured or assumed, if the row's is not larger.
  double threshold(const CaseId& id, Phase phase, double us) const;
  // Whether its class had pairs enough to be measured.
  bool measured(Phase phase, double us) const;
};

std::span<const double> class_edges();  // microseconds, from 0
// Commit and time, by which a run is known in Spread::sweeps.
std::string sweep_name(const RunFiles& run);
bool of_host(const RunFiles& run);

// Of two or more runs. Throws std::runtime_error where they are of different devices or commits, or one is a copy of
// another: as noise it would say that processes never differ. So where an older program pooled several processes in a
// row: such rows differ less.
Spread measure_spread(std::span<const RunFiles* const> runs);

// As a file. Reading throws std::runtime_error naming it.
std::string to_json(const Spread& spread);
Spread read_spread(const std::filesystem::path& file);
// That of reports/recorded, which the program holds.
std::optional<Spread> recorded_spread(const std::string& device);
std::string spread_text(const Spread& spread);  // a table

}  // namespace noisefloor
