// What `noisefloor sweep` was asked for, and which cases that is: before anything is opened or written.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/worker.h"
#include "bench/sweep/google_benchmark.h"
#include "bench/sweep/selection.h"
#include "bench/sweep/workers.h"
#include "reports/run/network_problems.h"
#include "reports/run/shard.h"

namespace noisefloor {

struct SweepRequest {
  std::vector<std::string> command_line, benchmark_arguments, plugins;
  Selection cases;
  std::optional<std::string> shard;
  std::string device, out, runs, reuse, counters = "auto", pytorch = "auto";
  bool fresh = false, search_again = false, no_pairs = false;
  double budget = 0;

  bool below_runs() const { return !runs.empty(); }
};

struct SweepPlan {
  SweepRequest request;
  BenchmarkFlags flags;
  std::vector<ProblemEntry> problems;
};

// Throws InvalidInput where the request makes no sense on any device.
SweepPlan plan_sweep(const SweepRequest& request);

// The cases that were asked for of a device: at least one, PyTorch's among them though none may be had.
// Throws InvalidInput saying which option leaves none, or asks for what the device has not.
std::vector<Case> asked_cases(const SweepPlan& plan, const PluginFiles& plugins, bool host);

// Every problem of the networks that were asked for, also of ops that were not.
std::vector<NetworkProblem> asked_network_problems(const SweepPlan& plan, bool host);

struct PyTorchSide {
  std::unique_ptr<Worker> worker;  // null where no case wants it, or it cannot be had
  std::string why_not;
};

// Starts it where there are cases of its. Where it cannot be had they are left out; in a shard, whose
// siblings must have the same cases, they stay and say why.
PyTorchSide start_pytorch_for(std::vector<Case>& cases, const SweepRequest& request, int device);

// Keeps the cases of --shard: of few problems maybe none. Empty without it.
std::optional<ShardRecord> take_shard(std::vector<Case>& cases, const SweepRequest& request);

std::vector<CaseId> ids_of(const std::vector<Case>& cases);

// A command line for another process: `arguments` without these options and their values ("--out DIR", "--out=DIR"),
// and without these flags.
std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         std::initializer_list<std::string_view> options,
                                         std::initializer_list<std::string_view> flags = {});

// The run folder of the request, for a device of this name: with --runs the newest that the same command was to fill,
// which is said, or a new one.
fs::path run_folder_of(const SweepRequest& request, const std::string& device);
// What --runs resumes by: the build and the command line, but for what only says which folder.
std::string command_text(const SweepRequest& request);

}  // namespace noisefloor
