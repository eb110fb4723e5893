// What `noisefloor sweep` was asked for, and which cases that is.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/commands/benchmark_flags.h"
#include "bench/commands/commands.h"
#include "bench/commands/selection_options.h"
#include "bench/measure/worker.h"
#include "bench/platform/platform.h"
#include "bench/sweep/plugins.h"
#include "reports/run/network_problems.h"
#include "reports/run/shard.h"

namespace noisefloor {

struct SweepArguments {
  std::shared_ptr<Invocation> invocation;
  SelectionOptions cases;
  PluginOptions plugins;
  std::optional<std::string> shard;
  std::string device, out, runs, counters = "auto", pytorch = "auto";
  bool fresh = false, search_again = false, no_duels = false;
  int max_autotune = 0;
  double budget = 0;
};

void add_sweep_options(CLI::App& command, SweepArguments& arguments);

// The cases that were asked for of a device: at least one, PyTorch's among them though none may be had.
// Throws InvalidInput saying which option leaves none, or asks for what the device has not.
std::vector<Case> asked_cases(const SweepArguments& arguments, const BenchmarkFlags& flags,
                              const std::vector<ProblemEntry>& problems, const PluginFiles& plugins, bool host);

// Every problem of the networks that were asked for, also of ops that were not.
std::vector<NetworkProblem> asked_network_problems(const SweepArguments& arguments,
                                                   const std::vector<ProblemEntry>& problems, bool host);

struct PyTorchSide {
  std::unique_ptr<Worker> worker;  // null where no case wants it, or it cannot be had
  std::string why_not;
};

// Starts it where there are cases of its. Where it cannot be had they are left out; in a part of a split sweep, whose
// parts must have the same cases, they stay and say why.
PyTorchSide start_pytorch_for(std::vector<Case>& cases, const SweepArguments& arguments, int device);

// Keeps the cases of --shard: of few problems maybe none. Empty without it.
std::optional<ShardRecord> take_shard(std::vector<Case>& cases, const SweepArguments& arguments);

std::vector<CaseId> ids_of(const std::vector<Case>& cases);

}  // namespace noisefloor
