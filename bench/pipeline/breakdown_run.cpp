#include <fmt/format.h>

#include <chrono>
#include <map>

#include "bench/pipeline/breakdown.h"
#include "bench/platform/refusal.h"
#include "reports/run/statistics.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::size_t kReplays = 11, kHostCalls = 3;
constexpr int kWarmUps = 2;  // a graph's first replays upload it, and CUPTI's first records allocate

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

// Who hears of each launch of one run. Without a trace times it by wall clock, as a launch on the host has ended when
// it returns; with one, tags what it makes with the launch's number.
class Listener final : public LaunchListener {
 public:
  Listener(Executor& executor, KernelTrace* trace) : executor_(&executor), trace_(trace) { executor.listen(this); }
  ~Listener() override { executor_->listen(nullptr); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void before(const LaunchLabel& label) override {
    if (trace_ != nullptr) trace_->tag(labels.size());
    labels.push_back(label);
    launches.push_back({"", now_ns(), 0, std::nullopt});
  }
  void after() override {
    launches.back().end_ns = now_ns();
    if (trace_ != nullptr) trace_->untag();
  }
  std::vector<LaunchLabel> labels;
  std::vector<DeviceActivity> launches;

 private:
  Executor* executor_;
  KernelTrace* trace_;
};

// Runs of the same launches, and what was recorded of each.
struct Runs {
  std::vector<RunTime> times;
  std::vector<std::vector<DeviceActivity>> records;

  void add(const Breakdown& breakdown, std::vector<DeviceActivity> activities) {
    times.push_back(time_of_run(breakdown.labels, breakdown.kernels, activities));
    records.push_back(std::move(activities));
  }
  void give(Breakdown& breakdown) {
    breakdown.together = median_of_runs(times);
    breakdown.replay = std::move(records[median_run(times)]);
    breakdown.runs = times.size();
  }
};

void measure_on_host(Executor& executor, const Launch& enqueue, Breakdown& breakdown) {
  breakdown.host = true;
  Runs runs;
  std::vector<double> calls_us;
  for (std::size_t i = 0; i < kHostCalls; ++i) {
    Listener listener(executor, nullptr);
    const std::uint64_t start = now_ns();
    throw_if_failed(enqueue());
    calls_us.push_back(static_cast<double>(now_ns() - start) / 1e3);
    breakdown.labels = std::move(listener.labels);
    breakdown.kernels.assign(breakdown.labels.size(), {""});
    runs.add(breakdown, std::move(listener.launches));
  }
  breakdown.kernels.assign(breakdown.labels.size(), {});
  runs.give(breakdown);
  breakdown.alone = breakdown.together;
  breakdown.end_to_end_us = median(calls_us);
}

void run_among(Platform& platform, const Meeting& meet, const std::function<void()>& run) {
  if (!meet) return run();
  meet();
  run();
  platform.synchronize();
  meet();
}

// By wall clock.
double end_to_end_among(Platform& platform, const Launch& enqueue, const Meeting& meet) {
  const auto recording = platform.record(enqueue);
  std::vector<double> times_us;
  for (std::size_t i = 0; i < kReplays + kWarmUps; ++i)
    run_among(platform, meet, [&] {
      const std::uint64_t start = now_ns();
      recording->replay();
      platform.synchronize();
      if (i >= kWarmUps) times_us.push_back(static_cast<double>(now_ns() - start) / 1e3);
    });
  return median(times_us);
}

// Launch by launch, without overlap: whose each kernel is, and how long it takes by itself.
void measure_alone(Platform& platform, Executor& executor, const Launch& enqueue, const Meeting& meet,
                   KernelTrace& trace, Breakdown& breakdown) {
  const bool overlapping = executor.overlapping();
  executor.set_programmatic(false);
  std::vector<RunTime> runs;
  for (std::size_t i = 0; i < kReplays + kWarmUps; ++i) {
    Listener listener(executor, &trace);
    const auto activities =
        trace.collect_tagged([&] { run_among(platform, meet, [&] { throw_if_failed(enqueue()); }); });
    if (i == 0) {
      breakdown.labels = std::move(listener.labels);
      breakdown.kernels = kernels_of_launches(breakdown.labels, activities);
    }
    if (i >= kWarmUps) runs.push_back(time_of_run(breakdown.labels, breakdown.kernels, activities));
  }
  breakdown.alone = median_of_runs(runs);
  executor.set_programmatic(overlapping);
}

void measure_together(Platform& platform, const Launch& enqueue, const Meeting& meet, KernelTrace& trace,
                      Breakdown& breakdown) {
  const auto recording = platform.record(enqueue);
  Runs runs;
  for (std::size_t i = 0; i < kReplays + kWarmUps; ++i) {
    auto activities = trace.collect([&] { run_among(platform, meet, [&] { recording->replay(); }); });
    if (i >= kWarmUps) runs.add(breakdown, std::move(activities));
  }
  runs.give(breakdown);
}

}  // namespace

Breakdown measure_breakdown(Platform& platform, Executor& executor, const Launch& enqueue, const std::string& title,
                            const Meeting& meet) {
  Breakdown breakdown;
  if (platform.description().is_host) {
    measure_on_host(executor, enqueue, breakdown);
  } else {
    // Before the trace, which slows what follows it in this process.
    breakdown.end_to_end_us = meet ? end_to_end_among(platform, enqueue, meet)
                                   : median(platform.time_warm(enqueue, static_cast<int>(kReplays), 1));
    const auto trace = open_kernel_trace();
    measure_alone(platform, executor, enqueue, meet, *trace, breakdown);
    measure_together(platform, enqueue, meet, *trace, breakdown);
  }
  breakdown.title = title;
  return breakdown;
}

void follow_breakdown(Platform& platform, const Launch& enqueue, const Meeting& meet) {
  (void)end_to_end_among(platform, enqueue, meet);
  const auto run_all = [&](const std::function<void()>& run) {
    for (std::size_t i = 0; i < kReplays + kWarmUps; ++i) run_among(platform, meet, run);
  };
  run_all([&] { throw_if_failed(enqueue()); });
  const auto recording = platform.record(enqueue);
  run_all([&] { recording->replay(); });
}

void use_rows(Breakdown& breakdown, const std::filesystem::path& folder, const std::string& device) {
  std::map<CaseId, double> times;
  std::string other;
  try {
    for (const SweepRow& row : read_sweep_csv(folder / "sweep.csv")) {
      if (row.device != device)
        other = row.device;
      else if (row.status == Outcome::ok && row.time_warm_us)
        times[row] = *row.time_warm_us;
    }
  } catch (const std::runtime_error& error) {
    throw refusal("{} is not a run folder: {}", folder.string(), error.what());
  }
  if (times.empty())
    throw refusal("{} has no warm times of {}{}", folder.string(), device,
                  other.empty() ? "" : fmt::format(", but rows of {}", other));
  for (LaunchLabel& label : breakdown.labels)
    if (const auto row = times.find(label); row != times.end()) label.warm_us = row->second;
}

}  // namespace noisefloor::pipeline
