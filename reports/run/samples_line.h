// One line of samples.jsonl: the raw samples of one row.
#pragma once

#include <string>
#include <string_view>

#include "reports/run/run_files.h"

namespace noisefloor {

struct SamplesLine {
  CaseId id;
  RowSamples samples;
};

// Without a line end. Times are rounded to a nanosecond.
std::string samples_line(const CaseId& id, const RowSamples& samples);

// Throws std::runtime_error naming the field. Memory stays below four times the line: the values are parsed as they
// come, into one array. Fields that it does not know are passed over.
SamplesLine parse_samples_line(std::string_view line);

}  // namespace noisefloor
