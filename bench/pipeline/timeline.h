// One call of a network on a time axis, for Perfetto (ui.perfetto.dev) and chrome://tracing. A pure function of the
// breakdown's records.
#pragma once

#include <string>

#include "bench/pipeline/breakdown.h"

namespace noisefloor::pipeline {

// JSON in the Trace Event Format, of the breakdown's replay. Tracks: nodes, with op, variant and problem, from where
// all before have ended; the gaps between them; kernels, on further tracks where they overlap; and, as counters, the
// bytes of the activations that live and of the workspace. Throws std::runtime_error where records and launches do not
// match.
std::string timeline_json(const Breakdown& breakdown, const std::string& device);

}  // namespace noisefloor::pipeline
