// tune_groupnorm: times every plan of groupnorm's ptx_sm90a (cluster_plan.h) on the problems of bench/problems, and
// writes the best of each, which groupnorm_table.py makes the table of measured plans of (scripts/tune-groupnorm).
//
// Inputs, verification and times are the sweep's. Every plan gets one warm time; those near the best then get more, in
// turns, so that a clock that drifts is no plan's advantage; the last of them are verified and timed cold.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <tuple>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/measure/bound_case.h"
#include "bench/measure/verify.h"
#include "bench/platform/build_info.h"
#include "bench/sweep/problem_files.h"
#include "kernels/catalogue.h"
#include "kernels/groupnorm/cluster_plan.h"
#include "kernels/groupnorm/launchers.h"
#include "reports/statistics.h"

namespace noisefloor {
namespace {

using groupnorm::ClusterPlan;

constexpr DType kDtype = DType::bf16;
constexpr int kHeld[] = {0, 2, 4, groupnorm::kHeldByPairs};
constexpr int kLeastThreads = 64, kMostThreads = 512, kThreadStep = 32;
constexpr int kSamples = 4;  // of a plan's turn: what the platform queues at once
constexpr std::size_t kFewestFinalists = 5, kMostFinalists = 40;
constexpr double kFinalistWithin = 1.10;  // of the best warm time
constexpr int kColdTurns = 3;
constexpr double kOracleFlops = 2e7;  // of a problem; the naive variant then judges every element

struct Trial {
  ClusterPlan plan;
  bool estimated = false;  // what estimated_cluster_plan takes
  std::vector<double> warm, cold;
  double warm_us() const { return median(warm); }
};

// The estimate's plan, then all others; none where no plan fits.
std::vector<Trial> trials_of(const groupnorm::Problem& p, int sm_count) {
  std::vector<Trial> trials;
  std::set<std::tuple<int, int, int, int>> seen;
  const auto add = [&](const std::optional<ClusterPlan>& plan, bool estimated) {
    if (plan && seen.emplace(plan->bundle, plan->blocks, plan->tile_rows, plan->held).second)
      trials.push_back({*plan, estimated, {}, {}});
  };
  add(estimated_cluster_plan(p, sm_count), true);
  if (trials.empty()) return trials;
  for (int bundle = 1; bundle <= p.groups; ++bundle)
    for (int blocks = 1; blocks <= groupnorm::kMaxClusterBlocks; blocks *= 2) {
      if (blocks > 1 && p.hw < 8 * blocks) break;  // too few rows to share out
      for (int threads = kLeastThreads; threads <= kMostThreads; threads += kThreadStep)
        for (const int held : kHeld) add(make_cluster_plan(p, bundle, blocks, threads, held), false);
    }
  return trials;
}

// ptx_sm90a, but by the plan that `current` points to when it is launched.
AnyVariant variant_of_plan(const Op& op, const ClusterPlan** current) {
  for (const AnyVariant& variant : op.variants) {
    if (variant.name != "ptx_sm90a") continue;
    AnyVariant forced = variant;
    forced.launch = [current](const AnyProblem& problem, DType dtype, std::span<void* const> pointers, const Scratch&,
                              const LaunchContext& context) {
      const auto& p = problem.as<groupnorm::Problem>();
      return launch_cluster_plan(p, dtype, groupnorm::definition.bind(p, pointers), **current, context);
    };
    return forced;
  }
  throw std::logic_error("groupnorm has no variant ptx_sm90a");
}

// At most `most` of those within `factor` of the best warm time, but no fewer than kFewestFinalists, and the
// estimate's; best first.
std::vector<Trial*> best_of(const std::vector<Trial*>& trials, double factor, std::size_t most) {
  std::vector<std::pair<double, Trial*>> timed;
  for (Trial* trial : trials) timed.emplace_back(trial->warm_us(), trial);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& l, const auto& r) { return l.first < r.first; });
  std::vector<Trial*> best;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const auto& [us, trial] = timed[i];
    if (trial->estimated || i < kFewestFinalists || (i < most && us <= factor * timed.front().first))
      best.push_back(trial);
  }
  return best;
}

std::string name_of(const ClusterPlan& plan) {
  return fmt::format("{} groups x {} blocks of {} threads, {} held", plan.bundle, plan.blocks,
                     plan.columns * plan.tile_rows, plan.held);
}

class Tuner {
 public:
  Tuner(Platform& platform, const Op& op) : platform_(&platform), variant_(variant_of_plan(op, &current_)) {}
  Tuner(const Tuner&) = delete;  // the variant points into it

  // The best plans with their times; none where no plan fits. Throws std::runtime_error where the output of one is
  // wrong.
  std::vector<Trial> tune(const ProblemEntry& entry);

 private:
  std::vector<Trial*> time_warm(std::vector<Trial>& trials, BoundCase& bound, const std::string& problem);
  void verify(const Trial& trial, BoundCase& bound, Verifier& verifier, const std::string& problem);

  Platform* platform_;
  const ClusterPlan* current_ = nullptr;
  AnyVariant variant_;
};

std::vector<Trial> Tuner::tune(const ProblemEntry& entry) {
  if (!variant_.can_run(entry.problem, kDtype)) return {};
  auto trials = trials_of(entry.problem.as<groupnorm::Problem>(), platform_->description().info.sm_count);
  if (trials.empty()) return {};
  Fixture fixture(*platform_, *entry.entry, entry.problem, kDtype, /*seed=*/1);
  Verifier verifier(fixture, kOracleFlops);
  BoundCase bound(fixture, *implementation_of(variant_));
  verify(trials.front(), bound, verifier, entry.text);

  const auto finalists = best_of(time_warm(trials, bound, entry.text), kFinalistWithin, kMostFinalists);
  for (const Trial* trial : finalists) verify(*trial, bound, verifier, entry.text);
  const Launch launch = bound.launch();
  const auto resident = bound.resident();
  for (int turn = 0; turn < kColdTurns; ++turn)
    for (Trial* trial : finalists) {
      current_ = &trial->plan;
      const auto samples = platform_->time_cold(launch, kSamples, resident);
      trial->cold.insert(trial->cold.end(), samples.begin(), samples.end());
    }
  std::vector<Trial> result;
  for (const Trial* trial : finalists) result.push_back(*trial);
  return result;
}

void Tuner::verify(const Trial& trial, BoundCase& bound, Verifier& verifier, const std::string& problem) {
  current_ = &trial.plan;
  const Verdict verdict = verifier.verify(bound);
  if (!verdict.correct)
    throw std::runtime_error(fmt::format("{}, {}: wrong: {}", problem, name_of(trial.plan), verdict.reason));
}

// Returns those that can be launched.
std::vector<Trial*> Tuner::time_warm(std::vector<Trial>& trials, BoundCase& bound, const std::string& problem) {
  current_ = &trials.front().plan;
  const double probe_us = platform_->time_cold(bound.launch(), 1, bound.resident()).front();
  const int repeats = std::clamp(static_cast<int>(200 / probe_us) + 1, 1, 20);  // as the sweep's
  const Launch launch = bound.launch(/*overlapping=*/true);
  std::vector<Trial*> timed;
  for (Trial& trial : trials) {
    current_ = &trial.plan;
    try {
      trial.warm = platform_->time_warm(launch, 1, repeats);
      timed.push_back(&trial);
    } catch (const DeviceError& error) {
      if (trial.estimated || error.lost()) throw;
      fmt::print(stderr, "{}, {}: left out: {}\n", problem, name_of(trial.plan), error.what());
    }
  }
  struct Stage {
    double factor;
    int turns;
  };
  for (const auto& [factor, turns] : {Stage{1.3, 1}, Stage{1.1, 2}, Stage{1.04, 4}}) {
    const auto left = best_of(timed, factor, timed.size());
    for (int turn = 0; turn < turns; ++turn)
      for (Trial* trial : left) {
        current_ = &trial->plan;
        const auto samples = platform_->time_warm(launch, kSamples, repeats);
        trial->warm.insert(trial->warm.end(), samples.begin(), samples.end());
      }
  }
  return timed;
}

// The columns of a problem.
std::string key_of(const groupnorm::Problem& p) {
  constexpr const char* kFusions[] = {"none", "silu", "silu+ss"};
  return fmt::format("{},{},{},{},{},{:d}", p.n, p.hw, p.channels, p.groups, kFusions[static_cast<int>(p.fusion)],
                     p.packed);
}

struct Options {
  std::string device = "0", folder, networks = "all", out;
};

int tune(const Options& options) {
  OutputFiles outputs;
  outputs.add("--out", options.out);
  const auto problems = in_networks(
      load_problems(options.folder.empty() ? default_problem_folder() : std::filesystem::path(options.folder)),
      split_list(options.networks));
  const auto platform = open_platform(options.device);
  const PlatformDescription& gpu = platform->description();
  if (gpu.is_host || !runs_on(Arch::sm90a, gpu.info.compute_capability))
    throw InvalidInput(fmt::format("groupnorm ptx_sm90a runs on sm_90a; this is {} ({})", gpu.name,
                                   gpu.is_host ? "the host" : platform->arch_text()));
  const Op& op = *find_op(groupnorm::definition.name);
  Tuner tuner(*platform, op);

  std::ofstream out(outputs.partial("--out"));
  out << "device,sm_count,commit,n,hw,channels,groups,fusion,packed,"
         "bundle,blocks,threads,held,estimated,warm_us,cold_us\n";
  const auto start = std::chrono::steady_clock::now();
  std::set<std::string> tuned;
  for (const ProblemEntry& entry : problems) {
    if (entry.op != &op) continue;
    // Problems that differ in eps alone (or in stats) are one to the table, and take the same time.
    const std::string key = key_of(entry.problem.as<groupnorm::Problem>());
    if (tuned.contains(key)) continue;
    const auto best = tuner.tune(entry);
    if (best.empty()) {
      fmt::print(stderr, "{}: no plan\n", entry.text);
      continue;
    }
    tuned.insert(key);
    for (const Trial& trial : best) {
      const ClusterPlan& plan = trial.plan;
      out << fmt::format("{},{},{},{},{},{},{},{},{:d},{:.4f},{:.4f}\n", gpu.name, gpu.info.sm_count,
                         build_info().commit, key, plan.bundle, plan.blocks, plan.columns * plan.tile_rows, plan.held,
                         trial.estimated, trial.warm_us(), median(trial.cold));
    }
    const auto estimated = std::find_if(best.begin(), best.end(), [](const Trial& trial) { return trial.estimated; });
    fmt::print(stderr, "{:6.1f} s  {}: best {:.2f} us by {}; the estimate's {:.2f}\n",
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), entry.text,
               best.front().warm_us(), name_of(best.front().plan), estimated->warm_us());
  }
  if (tuned.empty()) throw InvalidInput("these networks have no groupnorm that ptx_sm90a runs; nothing was timed");
  out.close();
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", options.out));
  outputs.commit();
  return kDone;
}

}  // namespace
}  // namespace noisefloor

int main(int argc, char** argv) {
  using namespace noisefloor;
  CLI::App app("tune_groupnorm: times the plans of groupnorm's ptx_sm90a, for scripts/tune-groupnorm");
  Options options;
  app.add_option("--out", options.out, "CSV file to write: the best plans of each problem with their times")
      ->required();
  app.add_option("--device", options.device, "CUDA device number (default: 0)");
  app.add_option("--networks", options.networks, "Their problems only, as N,M (default: all)");
  app.add_option("--problems", options.folder, "Folder of problem files (default: bench/problems)");
  try {
    app.parse(argc, argv);
    return tune(options);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "tune_groupnorm: {}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "tune_groupnorm: {}\n", error.what());
  }
  return kCouldNot;
}
