#include "bench/pipeline/breakdown.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/counters/kernel_resources.h"

namespace noisefloor::pipeline {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1, kNodes = 1, kGaps = 2, kKernels = 3;  // the latter and, where kernels overlap, those behind

Json metadata(const char* what, int track, Json args) {
  return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", track}, {"args", std::move(args)}};
}

void name_track(Json& events, int track, const std::string& name) {
  events.push_back(metadata("thread_name", track, {{"name", name}}));
  events.push_back(metadata("thread_sort_index", track, {{"sort_index", track}}));
}

Json slice(int track, const std::string& name, const std::string& category, double ts, double dur, Json args) {
  return {{"name", name}, {"cat", category}, {"ph", "X"},  {"pid", kProcess},
          {"tid", track}, {"ts", ts},        {"dur", dur}, {"args", std::move(args)}};
}

// Times on the axis begin with the first record.
double since(std::uint64_t base_ns, std::uint64_t ns) {
  return static_cast<double>(ns - base_ns) / 1e3;
}

// Each kernel on the first track that is free: slices of one track may not overlap.
void add_kernels(const Breakdown& b, Json& events) {
  std::vector<std::uint64_t> free_at;
  const auto kernels = activities_of_launches(b.labels, b.kernels, b.replay);
  const auto add = [&](std::size_t launch) {
    for (const DeviceActivity& kernel : kernels[launch]) {
      auto track = std::ranges::find_if(free_at, [&](std::uint64_t end) { return end <= kernel.start_ns; });
      if (track == free_at.end()) track = free_at.insert(track, 0);
      *track = kernel.end_ns;
      events.push_back(slice(kKernels + static_cast<int>(track - free_at.begin()), short_kernel_name(kernel.name),
                             "kernel", since(b.replay.front().start_ns, kernel.start_ns),
                             since(kernel.start_ns, kernel.end_ns), {{"node", b.labels[launch].node}}));
    }
  };
  for (const bool beside : {false, true})  // what is in order stays on one track, where it does not overlap
    for (std::size_t launch = 0; launch < b.labels.size(); ++launch)
      if (b.labels[launch].beside == beside) add(launch);
  for (std::size_t track = 0; track < free_at.size(); ++track)
    name_track(events, kKernels + static_cast<int>(track), track == 0 ? "kernels" : "kernels beside them");
}

}  // namespace

std::string timeline_json(const Breakdown& b, const std::string& device) {
  const RunTime run = time_of_run(b.labels, b.host ? LaunchKernels(b.labels.size(), {""}) : b.kernels, b.replay);
  Json events = Json::array({metadata("process_name", 0, {{"name", b.title + " on " + device}})});
  name_track(events, kNodes, "nodes");
  name_track(events, kGaps, "gaps");
  for (std::size_t i = 0; i < b.labels.size(); ++i) {
    const LaunchLabel& label = b.labels[i];
    const LaunchTime& time = run.launches[i];
    if (label.beside || (!b.host && b.kernels[i].empty())) continue;  // the former are among the kernels
    Json args = {{"op", label.op}, {"variant", label.variant}, {"problem", label.problem}, {"dtype", label.dtype}};
    if (!b.host) args["kernels"] = b.kernels[i].size();
    if (label.warm_us) args["warm_us"] = *label.warm_us;
    if (const auto& memory = label.memory)
      events.push_back({{"name", "bytes"},
                        {"ph", "C"},
                        {"pid", kProcess},
                        {"ts", time.begin_us},
                        {"args", {{"activations", memory->activations}, {"workspace", memory->workspace}}}});
    events.push_back(slice(kNodes, label.node, label.op, time.begin_us, time.time_us, std::move(args)));
  }
  for (const RunTime::Idle& idle : run.idle)
    events.push_back(slice(kGaps, "gap", "gap", idle.begin_us, idle.us, {{"before", b.labels[idle.before].node}}));
  if (!b.host) add_kernels(b, events);
  const Json file = {{"traceEvents", events},
                     {"displayTimeUnit", "ns"},
                     {"otherData", {{"device", device}, {"what", b.title}, {"span_us", run.span_us}}}};
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace noisefloor::pipeline
