// How far runs of one build lie apart on a machine, row by row.
//
// Where the driver put code and queues, which pages a process got, how warm the board was: all is drawn once a process,
// so that no batch of it shows it. `gate calibrate` takes it from runs of one build, as a file beside the baseline.
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
GateNoise read_noise(const std::filesystem::path& file);  // throws std::runtime_error naming it

}  // namespace noisefloor
