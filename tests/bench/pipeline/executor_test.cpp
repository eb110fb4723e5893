// What a network's launches are told.
#include "bench/pipeline/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "tests/support/host_platforms.h"

namespace noisefloor::pipeline {
namespace {

// Bits of the tensors of that name.
std::uint64_t bits_of(const Node& node, std::initializer_list<std::string_view> names) {
  const auto specs = node.op->tensors(node.problem, node.dtype);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (std::ranges::find(names, specs[i].name) != names.end()) bits |= std::uint64_t{1} << i;
  return bits;
}

TEST(Executor, SaysWhichTensorsAreConstant) {
  std::deque<Op> ops;
  std::map<std::string, std::set<std::uint64_t>> told;  // by op
  std::vector<SuiteEntry> entries;
  for (const Op& op : catalogue()) {
    Op& copy = ops.emplace_back(op);
    SuiteEntry& entry = entries.emplace_back(SuiteEntry{&copy, {}, oracle_of(copy)});
    for (AnyVariant& variant : copy.variants) {
      variant.launch = [&told, name = op.name, launch = variant.launch](
                           const AnyProblem& problem, DType dtype, std::span<void* const> pointers,
                           const Scratch& scratch, const LaunchContext& context) {
        told[name].insert(context.constant_inputs);
        return launch(problem, dtype, pointers, scratch, context);
      };
      entry.implementations.push_back(implementation_of(variant));
    }
  }
  const Suite suite(std::move(entries));
  LimitedPlatform platform(std::size_t{1} << 30);
  const Network network = require_network("digits").build({});
  const Plan plan(platform, suite, count_problems(network.graph), {"naive"});
  Executor executor(platform, network, RandomWeights(), plan);
  throw_if_failed(executor.enqueue_once());
  throw_if_failed(executor.enqueue_call());
  std::map<std::string, std::set<std::uint64_t>> wanted;
  for (const Node& node : network.graph.nodes())
    wanted[node.op->name].insert(bits_of(node, {"w", "b", "bias", "gamma", "beta"}));
  EXPECT_EQ(told["gemm"], wanted["gemm"]);
  EXPECT_EQ(told["conv2d"], wanted["conv2d"]);
  EXPECT_EQ(told["groupnorm"], wanted["groupnorm"]);
}

}  // namespace
}  // namespace noisefloor::pipeline
