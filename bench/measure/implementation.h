// One way to run something: a variant of ours, a vendor's baseline or a whole network under a plan, all behind one
// interface. An Implementation says what it can run; per problem it gives one Ready, which all launches of that problem
// share, whatever their tensors.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "baselines/baseline.h"
#include "bench/measure/search_cache.h"
#include "bench/platform/platform.h"
#include "kernels/core/op.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

class CodeWatch;
class Worker;
struct EarlierRow;

// Warm times of implementations that were verified, of the rows of a run and of what plans measured themselves: a plan
// takes them rather than measure a second time. Where a run is reused, a plan also takes the times of its rows whose
// launch is still the same, so that it stays the same plan.
class KnownTimes {
 public:
  struct Entry {
    std::optional<double> warm_us;
    std::string why_not;    // where there is no time: it cannot run here, or is wrong
    bool prepares = false;  // weights, which is not in the time
  };

  // What a row says: its time, or why there is none. It is kept unless another attempt may have a time (`throttled`).
  Entry add(const SweepRow& row);
  void add(const CaseId& id, Entry entry) { entries_[id] = std::move(entry); }
  const Entry* find(const CaseId& id) const;  // null where nothing is known

  std::function<const EarlierRow*(const CaseId&)> earlier = {};  // of the reused run; as in RunnerOptions
  CodeWatch* code = nullptr;

 private:
  std::map<CaseId, Entry> entries_;
};

struct StaleChoice : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Ready {
 public:
  virtual ~Ready() = default;

  virtual std::size_t workspace_bytes() const = 0;
  virtual std::size_t prepared_bytes() const { return 0; }
  // Lays weights out anew at `prepared`; once per weight, untimed.
  virtual void prepare(std::span<void* const>, void* prepared, const LaunchContext&) { (void)prepared; }
  // Whether an algorithm must be chosen before the first launch. `tune` does it on these tensors (outputs are
  // overwritten) and their prepared weights, by the ranker's times. Throws LibraryRefused, DeviceError; and StaleChoice
  // where it repeats an earlier choice that no longer holds: made again, it will choose anew.
  virtual bool needs_tuning() const { return false; }
  virtual void tune(std::span<void* const>, const Scratch&, const LaunchContext&, Ranker&) {}
  // Which of the algorithms that it chose the launches run from now on.
  virtual void use(Caches) {}
  // Enqueues. Pointers in the order of Workload::tensors.
  virtual Status launch(std::span<void* const> pointers, const Scratch&, const LaunchContext&) = 0;

  // How it was chosen: a library's algorithm, a plan's variants.
  virtual std::string description() const { return {}; }
  // Of a network: the cases that its nodes launch, and how often.
  virtual std::map<CaseId, std::size_t> launches() const { return {}; }
  // Memory of its own, beside tensors and scratch, that launches touch.
  virtual std::vector<std::pair<void*, std::size_t>> resident() const { return {}; }
  // Whether its kernels may use programmatic launch.
  virtual bool overlaps() const { return true; }
  // A launch is hundreds of kernels: one alone says nothing of it, and they are timed as one CUDA graph.
  virtual bool many_kernels() const { return false; }
};

class Implementation {
 public:
  std::string name;
  std::string kind;  // of its rows: a variant's Kind, "baseline" or "network"
  Arch arch = Arch::any_gpu;
  bool on_host = false, on_gpu = true;
  bool built = true;
  std::string why_not_built = {};            // for the reason of its rows
  bool in_worker = false;                    // another program makes, verifies and times it (worker.h): `make` refuses
  std::string plugin = {};                   // the file of a plugin's row: nothing that it does is taken on trust
  std::shared_ptr<Worker> worker = nullptr;  // of a plugin: the process that measures it whole; `make` refuses

  virtual ~Implementation() = default;
  virtual Support can_run(const AnyProblem&, DType) const { return supported(); }
  // Throws LibraryMissing, LibraryRefused, OutOfMemory, DeviceError. What chooses by times takes them from `known` and
  // adds those that it measured.
  virtual std::unique_ptr<Ready> make(Platform&, const AnyProblem&, DType, KnownTimes& known) const = 0;
  // The variant of an op that this is; null for everything else.
  virtual const AnyVariant* variant() const { return nullptr; }

  bool is(Kind wanted) const { return kind == to_string(wanted); }
  bool own() const { return variant() != nullptr; }
  bool elsewhere() const { return in_worker || worker != nullptr; }  // in another process
  bool runs_on_platform(bool host) const { return host ? on_host : on_gpu; }
};
using ImplementationPtr = std::shared_ptr<const Implementation>;

// The rows of an op's variants and of the vendors' baselines. `variant` and `baseline` must outlive what is returned.
ImplementationPtr implementation_of(const AnyVariant& variant);
// What its searches find is kept in `searches`, and taken from there; null: every one of its runs searches.
ImplementationPtr implementation_of(const Baseline& baseline, const Op& op,
                                    std::shared_ptr<SearchCache> searches = nullptr);
// A row that a plugin's worker measures whole, with the name, kind and architecture that it says.
ImplementationPtr implementation_of_plugin(std::shared_ptr<Worker> worker, const std::string& plugin,
                                           const std::string& name, Kind kind, Arch arch);
// A baseline that a worker has, on GPUs.
ImplementationPtr implementation_in_worker(const std::string& name);

}  // namespace noisefloor
