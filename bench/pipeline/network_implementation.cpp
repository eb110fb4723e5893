// Networks under a plan, as implementations of the network workload; and the oracle that they are held to.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "bench/measure/fixture.h"
#include "bench/pipeline/executor.h"
#include "bench/pipeline/network_workload.h"

namespace noisefloor::pipeline {
namespace {

Network planned(const Suite& nodes, Platform& platform, const AnyProblem& problem, DType dtype,
                const Plan::Options& plan) {
  if (plan.pool) return build_network(problem, dtype);
  Network network = build_network(problem, dtype, folds_skips(nodes, platform, plan.source, dtype));
  fuse_norms_that_pay(network, platform, nodes, plan);
  return network;
}

class ReadyNetwork final : public Ready {
 public:
  ReadyNetwork(const Suite& nodes, Platform& platform, const AnyProblem& problem, DType dtype,
               const Plan::Options& plan)
      : held_to_itself_(platform.description().is_host && dtype == DType::fp32),
        network_(planned(nodes, platform, problem, dtype, plan)),
        plan_(platform, nodes, count_problems(network_.graph), plan),
        executor_(platform, network_, RandomWeights(), plan_) {}

  std::size_t workspace_bytes() const override { return 0; }
  bool many_kernels() const override { return true; }

  // Tensors in the order of network_workload().
  Status launch(std::span<void* const> pointers, const Scratch&, const LaunchContext& context) override {
    executor_.set_programmatic(context.programmatic_launch);
    std::size_t next = 0;
    for (const auto* tensors : {&network_.inputs, &network_.outputs})
      for (const NetworkTensor& tensor : *tensors) executor_.bind(tensor.value, pointers[next++]);
    return executor_.enqueue();
  }

  // "nodes: 231 ptx_sm90a, 40 tiled", most first. A host's naive variants in fp32 are these very ones.
  std::string description() const override {
    std::map<std::string, int> counts;
    for (std::size_t node = 0; node < network_.graph.nodes().size(); ++node)
      ++counts[executor_.implementation(node).name];
    std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text = "nodes:";
    for (const auto& [name, count] : sorted)
      text += fmt::format("{} {} {}", text.back() == ':' ? "" : ",", count, name);
    if (held_to_itself_) text += "; compared with the same variants in fp32, so it cannot come out incorrect";
    return text;
  }

  std::vector<std::pair<void*, std::size_t>> resident() const override { return executor_.resident(); }

 private:
  bool held_to_itself_;
  Network network_;
  Plan plan_;
  Executor executor_;
};

class NetworkImplementation final : public Implementation {
 public:
  NetworkImplementation(const Suite& nodes, const char* plan, const char* row_kind, bool also_on_host)
      : nodes_(&nodes), plan_(plan) {
    name = std::string("plan_") + plan;
    kind = row_kind;
    on_host = also_on_host;
  }
  // A plan that can be made of nothing here is a problem that cannot be run, not a mistake of the caller's.
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype,
                              KnownTimes& known) const override {
    try {
      build_network(problem, dtype).info->require(dtype);
      return std::make_unique<ReadyNetwork>(*nodes_, platform, problem, dtype,
                                            Plan::Options{.source = plan_, .known = &known});
    } catch (const InvalidInput& error) {
      throw LibraryRefused(error.what());
    }
  }

 private:
  const Suite* nodes_;
  const char* plan_;
};

// A network has no host function: its nodes have theirs. What it is held to is the same network, with the same weights
// and inputs, in fp32 by the tiled variants, which the nodes' own problems hold to their host functions.
class NetworkOracle final : public Oracle {
 public:
  explicit NetworkOracle(const Suite& nodes) : nodes_(&nodes) {}

  std::vector<Expectation> expect(Fixture& fixture, double) const override {
    std::vector<Expectation> expectations;
    for (auto& [tensor, values] : outputs_in_fp32(fixture)) {
      Expectation expected{tensor, true, {}, std::move(values)};
      expected.elements.resize(expected.values.size());
      std::iota(expected.elements.begin(), expected.elements.end(), std::int64_t{0});
      expected.rms = root_mean_square(expected.values);
      // Random weights that make nothing, or overflow, would let anything pass.
      if (!(expected.rms > 0) || !std::isfinite(expected.rms))
        throw std::runtime_error(fmt::format("the network's fp32 output has the root mean square {}", expected.rms));
      expectations.push_back(std::move(expected));
    }
    return expectations;
  }

 private:
  // By tensor of the fixture.
  std::map<std::size_t, std::vector<double>> outputs_in_fp32(Fixture& fixture) const {
    Platform& platform = fixture.platform();
    ReadyNetwork network(*nodes_, platform, fixture.problem(), DType::fp32, {.pool = Pool::tiled});
    const auto exact = fixture.workload().tensors(fixture.problem(), DType::fp32);
    std::vector<Buffer> buffers(exact.size());
    std::vector<void*> pointers(fixture.pointers().begin(), fixture.pointers().end());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const bool output = exact[i].role != Role::in;
      if (!output && exact[i].dtype == fixture.specs()[i].dtype) continue;
      buffers[i] = Buffer(platform, exact[i].bytes());
      pointers[i] = buffers[i].data();
      if (output) continue;
      std::vector<char> widened(exact[i].bytes());
      for (std::int64_t e = 0; e < exact[i].elements(); ++e)
        store_element(exact[i].dtype, widened.data(), e, fixture.host_tensors()[i][e]);
      platform.upload(pointers[i], widened.data(), widened.size());
    }
    throw_if_failed(network.launch(pointers, {}, platform.context()));
    platform.synchronize();
    std::map<std::size_t, std::vector<double>> outputs;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (exact[i].role == Role::in) continue;
      std::vector<char> bytes(exact[i].bytes());
      platform.download(bytes.data(), pointers[i], bytes.size());
      for (std::int64_t e = 0; e < exact[i].elements(); ++e)
        outputs[i].push_back(load_element(exact[i].dtype, bytes.data(), e));
    }
    return outputs;
  }

  const Suite* nodes_;
};

}  // namespace

SuiteEntry network_entry(const Suite& nodes) {
  const auto plan = [&](const char* name, const char* kind, bool on_host) {
    return std::make_shared<NetworkImplementation>(nodes, name, kind, on_host);
  };
  // fastest is last: every time that its plan asks for is known by then.
  return {&network_workload(),
          {plan("own", "network", true), plan("baseline", "baseline", false), plan("fastest", "network", false)},
          std::make_shared<NetworkOracle>(nodes),
          /*whole_networks=*/true};
}

}  // namespace noisefloor::pipeline
