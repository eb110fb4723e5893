// What a network's launches are told.
#include "bench/pipeline/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>

#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "networks/training.h"
#include "tests/support/host_platforms.h"
#include "tests/support/small_networks.h"

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

// A library's kernels may begin while launches ahead of them, also of the step before, still read and write: nothing
// else lies where they work (Executor::order_libraries).
TEST(Executor, PutsLibrariesWorkspacesBesideAllElse) {
  struct Library final : Ready {
    Library(std::unique_ptr<Ready> it, std::size_t own, std::map<void*, std::size_t>& places)
        : ready(std::move(it)), bytes(own), seen(places) {}
    std::size_t workspace_bytes() const override { return std::max(bytes, ready->workspace_bytes()); }
    std::size_t prepared_bytes() const override { return ready->prepared_bytes(); }
    void prepare(std::span<void* const> pointers, void* prepared, const LaunchContext& context) override {
      ready->prepare(pointers, prepared, context);
    }
    Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) override {
      std::size_t& most = seen[scratch.workspace];
      most = std::max(most, workspace_bytes());
      return ready->launch(pointers, scratch, context);
    }
    std::unique_ptr<Ready> ready;
    std::size_t bytes;
    std::map<void*, std::size_t>& seen;
  };
  std::map<void*, std::size_t> libraries, ours;  // where they work, and the most that they were given there
  std::size_t asked = 0;
  std::vector<SuiteEntry> entries;
  for (const SuiteEntry& entry : suite().entries()) {
    SuiteEntry& with = entries.emplace_back(entry);
    const ImplementationPtr host = entry.find("host");
    const bool library = entry.name() == "conv2d" || entry.name() == "groupnorm_backward";
    with.implementations = {std::make_shared<MadeBy>(
        "host", library ? Kind::baseline : Kind::host, [=, &asked, &libraries, &ours](auto&&... given) {
          return std::make_unique<Library>(host->make(given...), library ? asked += 1000 : 100,
                                           library ? libraries : ours);
        })};
  }
  const Suite mixed(std::move(entries));
  const auto platform = make_host_platform();
  const Training training = build_training(small_trained(), {.batch = 2, .images = 3});
  const Graph& graph = training.network.graph;
  PlanEntries host;
  for (const CountedProblem& problem : count_problems(graph)) host[problem_id(problem)] = "host";
  Executor executor(*platform, training.network, RandomWeights(),
                    {*platform, mixed, count_problems(graph), {.source = "own", .entries = &host}});
  libraries.clear(), ours.clear();  // of trials
  throw_if_failed(executor.enqueue());
  ASSERT_EQ(libraries.size(), 1u);
  const auto [place, bytes] = *libraries.begin();
  EXPECT_GE(bytes, 3000u) << "the most that any asks for";
  const auto expect_apart = [&](const void* other, std::size_t its_bytes, const std::string& what) {
    const auto begin = reinterpret_cast<std::uintptr_t>(place), its = reinterpret_cast<std::uintptr_t>(other);
    EXPECT_TRUE(its + its_bytes <= begin || begin + bytes <= its) << what;
  };
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (graph[id].kind != Value::Kind::unread) expect_apart(executor.data(id), graph[id].bytes(), graph[id].name);
  EXPECT_GT(ours.size(), 1u) << "which lie among the activations";
  for (const auto& [other, its_bytes] : ours) expect_apart(other, its_bytes, "a workspace of ours");
}

}  // namespace
}  // namespace noisefloor::pipeline
