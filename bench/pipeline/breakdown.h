// Where the time of a call of a network goes: records of what ran on the device, made into times by node and by op.
// Pure functions of records, but for what is in breakdown_run.cpp, which makes the records.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "bench/counters/kernel_trace.h"
#include "bench/pipeline/executor.h"

namespace noisefloor::pipeline {

// The kernels of each launch, by name; their number is the same in every run of one sequence of launches.
using LaunchKernels = std::vector<std::vector<std::string>>;

// From activities tagged with the number of their launch, in the order in which they started. Throws
// std::runtime_error for one without a tag, with a tag that no launch has, or of a launch before the one that came
// last, if neither is beside the others.
LaunchKernels kernels_of_launches(std::span<const LaunchLabel> launches, std::span<const DeviceActivity> activities);

// The activities of each launch, told by their order. Throws std::runtime_error where number or names are not those of
// `kernels`.
std::vector<std::vector<DeviceActivity>> activities_of_launches(std::span<const LaunchLabel> launches,
                                                                const LaunchKernels& kernels,
                                                                std::span<const DeviceActivity> activities);

// Where the time of one run went. A launch's time begins where the one before has ended, or where its first kernel
// starts, whichever is later, and ends with its last kernel: kernels that overlap are not counted twice, and times and
// gaps above zero add up to the span. Of launches beside the others only what lies in their gaps is counted.
struct LaunchTime {
  double time_us = 0;
  // What was idle between the end of all before and its start; below zero where it started before they ended.
  double gap_us = 0;
  double kernel_us = 0;  // its kernels' own durations, which overlap those of other launches
  double begin_us = 0;   // of its time, from the run's begin; no median has it
};
struct RunTime {
  std::vector<LaunchTime> launches;
  struct Idle {
    std::size_t before;  // the launch
    double begin_us, us;
  };
  double span_us = 0;           // from the first start to the last end
  std::vector<Idle> idle = {};  // in order; what gaps above zero are made of
};
RunTime time_of_run(std::span<const LaunchLabel> launches, const LaunchKernels& kernels,
                    std::span<const DeviceActivity> activities);

// Medians over runs: of each launch, and of the span.
RunTime median_of_runs(std::span<const RunTime> runs);
// The run whose span is nearest to the median.
std::size_t median_run(std::span<const RunTime> runs);

struct Breakdown {
  std::string title;  // "digits, one call of 4 images"
  std::vector<LaunchLabel> labels;
  LaunchKernels kernels;               // on the host empty lists
  RunTime together;                    // as the pipeline runs them: replays of a recording
  std::vector<DeviceActivity> replay;  // of these the one that took the median
  RunTime alone;                       // one after the other; only kernel_us counts
  std::size_t runs = 0;                // of each
  double end_to_end_us = 0;            // of the recording, without a trace
  bool host = false;                   // wall clock, no kernels
};

// Sums over launches.
struct Share {
  std::string name, variant, problem;  // variant and problem of the first
  std::size_t launches = 0, kernels = 0;
  double time_us = 0, gap_us = 0, overlap_us = 0, alone_us = 0;
  double warm_us = 0;             // of the launches whose time by themselves is known
  std::size_t warm_launches = 0;  // that many
  double time_of_warm_us = 0;     // time and gap of these
};
// Of launches with the same text in a field, most time first.
std::vector<Share> shares(const Breakdown& breakdown, std::string LaunchLabel::*field);
Share total(const Breakdown& breakdown);

// Tables for stdout: totals, by op, and the `top` nodes that take most time.
std::string breakdown_text(const Breakdown& breakdown, std::size_t top);
// op,node,problem,variant,kernels,time_us,gap_before_us; a line for each launch, in order.
std::string breakdown_csv(const Breakdown& breakdown);

// In timeline.cpp: one call on a time axis, for Perfetto (ui.perfetto.dev) and chrome://tracing.
// JSON in the Trace Event Format, of the breakdown's replay. Tracks: nodes, with op, variant and problem, from where
// all before have ended, but for those beside others; the gaps between them; kernels, on further tracks where they
// overlap; and, as counters, the bytes of the activations that live and of the workspace. Throws std::runtime_error
// where records and launches do not match.
std::string timeline_json(const Breakdown& breakdown, const std::string& device);

// In breakdown_run.cpp.
// Breaks down what `enqueue` launches through the executor (and a sampler over it), which must be the same each time it
// is called. On a GPU three times over: a recording timed without a trace; launch by launch, which tells whose each
// kernel is; and the recording again, traced, kernels told by their order. On the host by wall clock. Throws
// CountersUnavailable, DeviceError, and std::runtime_error when kernels cannot be matched.
// With `meet`, of several GPUs in threads of their own, whose launches wait for each other: the others follow, and all
// meet before and behind each run. Between runs all GPUs are idle: what CUPTI and the runtime do there may wait for
// any.
using Meeting = std::function<void()>;
Breakdown measure_breakdown(Platform& platform, Executor& executor, const Launch& enqueue, const std::string& title,
                            const Meeting& meet = {});
void follow_breakdown(Platform& platform, const Launch& enqueue, const Meeting& meet);

// Warm times of a run folder's rows that are ok and of this device take the place of the plan's. Throws InvalidInput
// where the folder has no sweep.csv, or none of its rows is of the device.
void use_rows(Breakdown& breakdown, const std::filesystem::path& folder, const std::string& device);

}  // namespace noisefloor::pipeline
