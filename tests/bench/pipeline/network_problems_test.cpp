// The problem files of the networks.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

#include "bench/pipeline/executor.h"
#include "bench/sweep/problem_files.h"
#include "networks/network.h"
#include "networks/rewrite.h"

namespace noisefloor::pipeline {
namespace {

using namespace networks;

// op/problem/dtype -> how often, and only of ops that a call has.
using Counts = std::map<std::string, long>;

Counts counts_of(const std::vector<CountedProblem>& problems) {
  Counts counts;
  for (const CountedProblem& problem : problems)
    counts[problem.op->name + "/" + problem.text + "/" + to_string(problem.dtype)] += problem.count;
  return counts;
}

// Of the launches on sm_90a, the share that is in the files, where norms of some problems pay and others do not.
double share_of(const Network& folded, const Counts& built, const Counts& only_folded, unsigned seed) {
  const auto pays = [&](const std::vector<Change>& changes) {
    return std::mt19937(seed + std::hash<std::string>()(changes.back().node->text))() % 2 == 0;
  };
  Network network = folded;
  fuse(network, {.fuse_norms = NormFusion{.pays = pays}});
  double all = 0, there = 0;
  for (const auto& [problem, count] : counts_of(count_problems(network.graph))) {
    all += static_cast<double>(count);
    if (built.contains(problem) || only_folded.contains(problem)) there += static_cast<double>(count);
  }
  return there / all;
}

bool of_a_recipe(const Counts::value_type& one) {
  const std::string op = one.first.substr(0, one.first.find('/'));
  return op == "training_batch" || op == "grad_norm" || op == "adamw";
}

// Full text, so that a plan from a sweep of a network names every node.
TEST(Networks, AskForTheProblemsOfTheProblemFiles) {
  const std::set<std::string> not_of_a_call{"q_sample", "sampler_step", "network"};
  std::map<std::string, Counts> in_files;
  std::set<std::string> sets, run_here;
  const auto entries = load_problems("bench/problems");
  for (const ProblemEntry& entry : entries)
    for (const auto& use : entry.uses) {
      if (use.set) sets.insert(use.network);
      if (not_of_a_call.contains(entry.op->name)) continue;
      const std::string dtype = to_string(use.dtype.value_or(DType::bf16));
      in_files[use.network][entry.op->name + "/" + entry.text + "/" + dtype] += use.count;
    }
  for (const ProblemEntry& entry : entries) {
    if (entry.op->name != "network") continue;
    const Network network = build_network(entry.problem, DType::bf16);
    const std::string& name = entry.uses.at(0).network;
    if (entry.text.ends_with(",training=1")) {  // all but what its recipe says
      Counts step = counts_of(count_problems(network.graph));
      for (Counts* counts : {&step, &in_files[name]}) std::erase_if(*counts, of_a_recipe);
      EXPECT_EQ(step, in_files[name]) << name << ": see bench/problems/update.py";
      continue;
    }
    const std::string batch = "-b" + std::to_string(network.batch), family = name.substr(0, name.rfind(batch));
    const auto in = [&](const std::string& what) { return in_files[family + "-" + what + batch]; };
    SCOPED_TRACE(name + ": see bench/problems/update.py");
    const Counts built = counts_of(count_problems(network.graph));
    EXPECT_EQ(built, in_files[name]);
    const Network folds = build_network(entry.problem, DType::bf16, /*fold_skips=*/true);
    Counts folded = counts_of(count_foldable(folds));
    std::erase_if(folded, [&](const auto& one) { return built.contains(one.first); });
    EXPECT_EQ(folded, in("folded"));
    for (unsigned seed = 0; seed < 8; ++seed) EXPECT_GE(share_of(folds, built, folded, seed), 0.97) << seed;
    EXPECT_EQ(sets.contains(family + "-folded" + batch), !folded.empty()) << "sets.csv";
    EXPECT_FALSE(sets.contains(name)) << "sets.csv";
    if (family == "adm64" || family == "edm-cifar" || family == "unetcu") {
      const Network original = network.info->build({.batch = network.batch, .original = true, .merge_products = false});
      EXPECT_EQ(counts_of(count_unfused(original.graph)), in("unfused"));
    }
    run_here.insert(network.info->name);
  }
  for (const NetworkInfo& info : all_networks()) EXPECT_TRUE(run_here.contains(info.name)) << info.name;
}

}  // namespace
}  // namespace noisefloor::pipeline
