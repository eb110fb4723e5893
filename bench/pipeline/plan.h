// Which variant runs each problem of a network.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "bench/measure/suite.h"
#include "bench/platform/platform.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

ProblemId problem_id(const Node& node);
ProblemId problem_id(const CountedProblem& problem);

// What a plan chooses from. Whoever asks for a plan names one of kPools, or a file; tiled has no name.
enum class Pool { own, baseline, fastest, naive, tiled };
inline constexpr const char* kPools[] = {"own", "baseline", "fastest", "naive"};
std::optional<Pool> pool_named(const std::string& source);  // none: a file

// Whether a network for this plan is built with its skip connections in the nodes that read them, and averages in the
// norms before them (networks/rewrite.h): for own and fastest, on a device that runs our variants in PTX for sm_90a. A
// file's rows are of networks without.
bool folds_skips(const Suite& nodes, const Platform& platform, const std::string& source, DType dtype);

// In plan_file.cpp: plan.csv (op,dtype,problem,variant), and whether it belongs to this device and program.
using PlanEntries = std::map<ProblemId, std::string>;  // the variant of each problem

// Columns are found by name. Throws InvalidInput naming the file where it is not a plan.
PlanEntries read_plan(const std::filesystem::path& file);
// Into a file that is there: its other lines and columns stay.
void write_plan(const std::filesystem::path& file, const PlanEntries& entries);

// A plan is as good as what was measured for it: env.json beside it, as a run folder has it, names device and commit.
// Throws InvalidInput for another device, and for an env.json that cannot be read, naming it. What remains in doubt is
// said: no env.json, or another commit, since when variants may have changed.
std::optional<std::string> check_plan_origin(const std::filesystem::path& plan, const std::string& device,
                                             const std::string& commit);

// Why a variant that a file names cannot run the problem; empty where it can.
std::string why_not_launched(Platform& platform, const Suite& nodes, const CountedProblem& problem,
                             const std::string& variant);

// A choice per distinct problem: of a pool, or as a file has it that `noisefloor roofline` wrote (plan.csv).
class Plan {
 public:
  struct Options {
    std::string source = "own";            // a name of kPools, or a file
    bool strict = false;                   // refuse problems that the file does not name, instead of measuring them
    KnownTimes* known = nullptr;           // times to take rather than measure; what is measured is added
    std::optional<Pool> pool = {};         // in the place of a source
    const PlanEntries* entries = nullptr;  // choices that are made already
  };
  // own, fastest: of the implementations in `nodes` that run here and are correct on random data, the one whose warm
  // time is shortest; on the spot, with progress on stderr. fastest takes a library's where it is shorter by more than
  // the edge behind it, which an own kernel would not wait for. baseline: likewise of the vendors', and ours where no
  // vendor has the problem, which is said on stderr. naive: the naive variants, unmeasured. tiled: the tiled ones,
  // naive where there is none, unmeasured too; what networks are verified against. (On the host all are the host
  // variants.) A file's choices are taken as they are, those it lacks are measured (all implementations) and written
  // back to it. Throws InvalidInput for a file that is not a plan, is of another device (env.json beside it says of
  // which), or names variants that this build or device cannot run; all of them at once. Throws OutOfMemory where a
  // problem has no implementation for want of memory.
  Plan(Platform& platform, const Suite& nodes, const std::vector<CountedProblem>& problems, const Options& options);

  const Suite& nodes() const { return *nodes_; }
  struct Choice {
    ImplementationPtr implementation;
    std::optional<double> warm_us;  // where it was measured here or known; what a file names, or had no other, was not
  };
  const Choice& choice(const ProblemId& id) const { return choices_.at(id); }
  // Takes the choice for one problem for another, which runs as that does.
  void take(const ProblemId& id, const ProblemId& of) { choices_[id] = choice(of); }
  // The choice made ready for a node's problem, which launches of all its nodes share. A library's algorithm is
  // searched for on random data.
  std::unique_ptr<Ready> make_ready(Platform& platform, const Node& node) const;
  // How many implementations had to be measured.
  int measured() const { return measured_; }
  // Of `baseline`, where ours run some: "ours run 12 nodes that no vendor here runs: elementwise 2, resample 10"
  const std::string& fallbacks() const { return fallbacks_; }

 private:
  const Suite* nodes_;
  std::map<ProblemId, Choice> choices_;
  std::string fallbacks_;
  int measured_ = 0;
};

// Puts each norm into the convolutions behind it where those nodes take less time so, by warm times as the plan
// measures or knows them: under the plans and on the devices of folds_skips, unless nothing may be measured (strict).
// Throws what Plan does, and leaves the network as it was.
void fuse_norms_that_pay(Network& network, Platform& platform, const Suite& nodes, const Plan::Options& options);

}  // namespace noisefloor::pipeline
