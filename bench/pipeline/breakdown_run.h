// Runs a pipeline to see where its time goes.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "bench/pipeline/breakdown.h"
#include "bench/pipeline/executor.h"
#include "bench/platform/platform.h"

namespace noisefloor::pipeline {

// Breaks down what `enqueue` launches through the executor (and a sampler over it), which must be the same each time it
// is called. On a GPU three times over: a recording timed without a trace; launch by launch, which tells whose each
// kernel is; and the recording again, traced, kernels told by their order. On the host by wall clock. Throws
// CountersUnavailable, DeviceError, and std::runtime_error when kernels cannot be matched.
Breakdown measure_breakdown(Platform& platform, Executor& executor, const Launch& enqueue, const std::string& title);

// Warm times of a run folder's rows that are ok and of this device. Throws InvalidInput where the
// folder has no sweep.csv, or none of its rows is of the device.
std::map<CaseId, double> warm_times_of_rows(const std::filesystem::path& folder, const std::string& device);
// Where the rows have a launch's time, it takes the place of the plan's.
void use_rows(Breakdown& breakdown, const std::map<CaseId, double>& warm_times);

}  // namespace noisefloor::pipeline
