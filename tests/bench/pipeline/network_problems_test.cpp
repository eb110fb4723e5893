// The problem files of the networks.
#include "networks/network.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "bench/sweep/problem_files.h"

namespace noisefloor::pipeline {
namespace {

using namespace networks;

// op/problem/dtype -> how often, and only of ops that a call has.
using Counts = std::map<std::string, long>;

// Full text, so that a plan from a sweep of the files' rows names every node. Of the networks that network.csv has:
// the rows of others were read off their public implementations, before anything is fused.
TEST(Networks, AskForTheProblemsOfTheProblemFiles) {
  const std::set<std::string> not_of_a_call{"q_sample", "sampler_step", "network"};
  const auto entries = load_problems("bench/problems");
  std::set<std::string> names, whole;  // of networks whose ops the files have, and of those that network.csv has
  for (const ProblemEntry& entry : entries)
    for (const auto& use : entry.uses) {
      if (!not_of_a_call.contains(entry.op->name)) names.insert(use.network);
      if (entry.op->name == "network") whole.insert(use.network.substr(0, use.network.rfind("-b")));
    }
  int compared = 0;
  for (const NetworkInfo& info : all_networks()) {
    for (const std::string& name : names) {
      const std::string prefix = std::string(info.name) + "-b";
      if (!name.starts_with(prefix) || !whole.contains(info.name)) continue;
      const std::int64_t batch = std::stoll(name.substr(prefix.size()));
      ++compared;
      const Network network = info.build({.batch = batch});  // as the op `network` builds it
      Counts asked, in_files;
      for (const CountedProblem& problem : count_problems(network.graph))
        asked[problem.op->name + "/" + problem.text + "/" + to_string(problem.dtype)] += problem.count;
      for (const ProblemEntry& entry : entries)
        for (const auto& use : entry.uses)
          if (use.network == name && !not_of_a_call.contains(entry.op->name))
            in_files[entry.op->name + "/" + entry.text + "/" + to_string(use.dtype.value_or(DType::bf16))] += use.count;
      EXPECT_EQ(asked, in_files) << name << ": see bench/problems/update.py";
    }
  }
  EXPECT_GE(compared, 5);
}

}  // namespace
}  // namespace noisefloor::pipeline
