// The candidates of the network op: a network under a plan, behind the interface of a baseline; and what they are
// verified against.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/network_op.h"

namespace noisefloor::pipeline {
namespace {

class NetworkRun final : public AssembledRun {
 public:
  NetworkRun(Platform& platform, const AnyProblem& problem, DType dtype, std::string_view plan, KnownTimes& known)
      : held_to_itself_(platform.description().is_host && dtype == DType::fp32),
        network_(build_network(problem, dtype)),
        plan_(platform, count_problems(network_.graph),
              {.source = std::string(plan), .strict = false, .known = &known}),
        executor_(platform, network_, RandomWeights(), plan_) {}

  void set_programmatic(bool on) { executor_.set_programmatic(on); }

  std::size_t workspace_bytes() const override { return 0; }
  // The plan is made, and the executor has tuned its nodes.
  Status tune(std::span<void* const>, void*, const LaunchContext&) override { return success(); }

  // Tensors in the order of network_op().
  Status launch(std::span<void* const> pointers, void*, const LaunchContext&) override {
    std::size_t next = 0;
    for (const auto* tensors : {&network_.inputs, &network_.outputs})
      for (const NetworkTensor& tensor : *tensors) executor_.bind(tensor.value, pointers[next++]);
    return executor_.enqueue();
  }

  // "nodes: 231 ptx_sm90a, 40 tiled", most first. A host's naive variants in fp32 are these very ones.
  std::string description() const override {
    std::map<std::string, int> counts;
    for (std::size_t node = 0; node < network_.graph.nodes().size(); ++node) ++counts[executor_.candidate(node).name];
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

constexpr std::string_view kPrefix = "plan_";  // reports call the best of an op's rows "own best" and "fastest"

// A plan that can be made of nothing here is a problem that cannot be run, not a mistake of the caller's.
std::unique_ptr<AssembledRun> create(const char* name, Platform& platform, const AnyProblem& problem, DType dtype,
                                     KnownTimes& known) {
  try {
    return std::make_unique<NetworkRun>(platform, problem, dtype, std::string_view(name).substr(kPrefix.size()), known);
  } catch (const InvalidInput& error) {
    throw LibraryRefused(error.what());
  }
}

}  // namespace

std::span<const Assembly> network_assemblies() {
  static constexpr Assembly kAssemblies[] = {
      {"plan_own", "network", true, create},
      {"plan_baseline", "baseline", false, create},
      {"plan_fastest", "network", false, create},  // last: every time that its plan asks for is known by then
  };
  return kAssemblies;
}

std::vector<double> reference_output(Fixture& fixture) {
  Platform& platform = fixture.platform();
  KnownTimes nothing;
  NetworkRun run(platform, fixture.problem(), DType::fp32, "naive", nothing);
  run.set_programmatic(false);  // what another launch order could spoil is not to be in both
  // Images, levels and output are fp32 in every network; labels are in the network's dtype.
  const TensorSpec& labels = fixture.specs()[2];
  const HostTensor& rounded = fixture.host_tensors()[2];
  std::vector<float> exact(static_cast<std::size_t>(labels.elements()));
  for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = static_cast<float>(rounded[static_cast<std::int64_t>(i)]);
  Buffer label_buffer(platform, exact.size() * sizeof(float));
  platform.upload(label_buffer.data(), exact.data(), label_buffer.bytes());
  const std::int64_t elements = fixture.specs()[3].elements();
  Buffer output(platform, static_cast<std::size_t>(elements) * sizeof(float));
  void* const pointers[] = {fixture.pointers()[0], fixture.pointers()[1], label_buffer.data(), output.data()};
  throw_if_failed(run.launch(pointers, nullptr, platform.context()));
  platform.synchronize();
  std::vector<float> values(static_cast<std::size_t>(elements));
  platform.download(values.data(), output.data(), output.bytes());
  return {values.begin(), values.end()};
}

}  // namespace noisefloor::pipeline
