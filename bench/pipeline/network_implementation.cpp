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

class ReadyNetwork final : public Ready {
 public:
  ReadyNetwork(const Suite& nodes, Platform& platform, const AnyProblem& problem, DType dtype, std::string_view plan,
               KnownTimes& known)
      : held_to_itself_(platform.description().is_host && dtype == DType::fp32),
        network_(build_network(problem, dtype)),
        plan_(platform, nodes, count_problems(network_.graph),
              {.source = std::string(plan), .strict = false, .known = &known}),
        executor_(platform, network_, RandomWeights(), plan_) {}

  void set_programmatic(bool on) { executor_.set_programmatic(on); }

  std::size_t workspace_bytes() const override { return 0; }
  bool many_kernels() const override { return true; }

  // Tensors in the order of network_workload().
  Status launch(std::span<void* const> pointers, const Scratch&, const LaunchContext&) override {
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
      return std::make_unique<ReadyNetwork>(*nodes_, platform, problem, dtype, plan_, known);
    } catch (const InvalidInput& error) {
      throw LibraryRefused(error.what());
    }
  }

 private:
  const Suite* nodes_;
  const char* plan_;
};

// A network has no host function: its nodes have theirs. What it is held to is the same network, with the same weights
// and inputs, in fp32 by the naive variants.
class NetworkOracle final : public Oracle {
 public:
  explicit NetworkOracle(const Suite& nodes) : nodes_(&nodes) {}

  std::vector<Expectation> expect(Fixture& fixture, double) const override {
    const std::size_t output = fixture.specs().size() - 1;
    Expectation expected{output, true, {}, output_in_fp32(fixture)};
    expected.elements.resize(expected.values.size());
    std::iota(expected.elements.begin(), expected.elements.end(), std::int64_t{0});
    expected.rms = root_mean_square(expected.values);
    // Random weights that make nothing, or overflow, would let anything pass.
    if (!(expected.rms > 0) || !std::isfinite(expected.rms))
      throw std::runtime_error(fmt::format("the network's fp32 output has the root mean square {}", expected.rms));
    return {std::move(expected)};
  }

 private:
  std::vector<double> output_in_fp32(Fixture& fixture) const {
    Platform& platform = fixture.platform();
    KnownTimes nothing;
    ReadyNetwork network(*nodes_, platform, fixture.problem(), DType::fp32, "naive", nothing);
    network.set_programmatic(false);  // what another launch order could spoil is not to be in both
    // Images, levels and output are fp32 in every network; what is in the network's dtype is widened.
    std::vector<Buffer> widened;
    std::vector<void*> pointers;
    for (std::size_t i = 0; i + 1 < fixture.specs().size(); ++i) {
      const TensorSpec& spec = fixture.specs()[i];
      pointers.push_back(fixture.pointers()[i]);
      if (spec.dtype != DType::bf16 && spec.dtype != DType::fp16) continue;
      std::vector<float> exact(static_cast<std::size_t>(spec.elements()));
      for (std::size_t e = 0; e < exact.size(); ++e)
        exact[e] = static_cast<float>(fixture.host_tensors()[i][static_cast<std::int64_t>(e)]);
      widened.emplace_back(platform, exact.size() * sizeof(float));
      platform.upload(widened.back().data(), exact.data(), widened.back().bytes());
      pointers.back() = widened.back().data();
    }
    const std::int64_t elements = fixture.specs().back().elements();
    Buffer output(platform, static_cast<std::size_t>(elements) * sizeof(float));
    pointers.push_back(output.data());
    throw_if_failed(network.launch(pointers, {}, platform.context()));
    platform.synchronize();
    std::vector<float> values(static_cast<std::size_t>(elements));
    platform.download(values.data(), output.data(), output.bytes());
    return {values.begin(), values.end()};
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
          std::make_shared<NetworkOracle>(nodes)};
}

}  // namespace noisefloor::pipeline
