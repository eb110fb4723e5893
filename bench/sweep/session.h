// A sweep of one device: opened, run into its folder, and then to be published.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bench/ceilings/store.h"
#include "bench/platform/nvml.h"
#include "bench/platform/platform.h"
#include "bench/sweep/plan.h"
#include "bench/sweep/sweep.h"

namespace noisefloor {

struct SweepOutcome {
  bool device_lost;  // this process can go on with nothing
  std::size_t left_by_budget;
  int failed;  // repetitions and comparisons in which a result of ours was wrong
};

class SweepSession {
 public:
  // Which cases there are, and who measures them. Throws InvalidInput. Plan and platform must outlive it.
  SweepSession(const SweepPlan& plan, Platform& platform, std::unique_ptr<Worker> neighbour);
  const std::vector<Case>& cases() const { return cases_; }

  // Opens the run folder, and says in it what the sweep is of. Throws what keeps it from being added to.
  void open();
  RunFolder& folder() { return *folder_; }
  // Adds the rows that the folder has not. Each reporter may be null.
  SweepOutcome run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file);

 private:
  bool is_host() const { return platform_->description().is_host; }

  const SweepPlan* plan_;
  Platform* platform_;
  std::unique_ptr<Worker> neighbour_;
  GpuMonitor monitor_;
  PluginFiles plugins_;
  std::vector<Case> cases_;
  PyTorchSide pytorch_;
  std::optional<ShardRecord> shard_;
  std::optional<RunFolder> folder_;
  Ceilings ceilings_;
};

}  // namespace noisefloor
