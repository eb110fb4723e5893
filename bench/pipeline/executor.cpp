#include "bench/pipeline/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "networks/arena.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::size_t kAlignment = 256;  // what launchers may expect of a pointer

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Buffer allocate(Platform& platform, std::size_t bytes, const char* what) {
  try {
    return bytes == 0 ? Buffer() : Buffer(platform, bytes);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(fmt::format("{} need {} bytes: {}", what, bytes, error.what()));
  }
}

}  // namespace

Runner::Runner(Platform& platform, const Op& op, AnyProblem problem, DType dtype, const Candidate& candidate)
    : platform_(&platform), problem_(std::move(problem)), dtype_(dtype), candidate_(candidate) {
  (void)op;
  const DeviceInfo& device = platform.description().info;
  if (candidate_.baseline != nullptr) {
    run_ = candidate_.baseline->create(problem_, dtype, device);
    workspace_bytes_ = run_->workspace_bytes();
  } else {
    workspace_bytes_ = candidate_.variant->workspace_bytes(problem_, dtype, device);
  }
}

std::size_t Runner::prepared_bytes() const {
  return run_ ? 0 : candidate_.variant->prepared_bytes(problem_, dtype_);
}

void Runner::prepare(std::span<void* const> pointers, void* prepared) {
  throw_if_failed(candidate_.variant->prepare(problem_, dtype_, pointers, prepared, platform_->context()));
}

void Runner::tune(std::span<void* const> pointers, void* workspace) {
  if (!run_ || tuned_) return;
  throw_if_failed(run_->tune(pointers, workspace, platform_->context()));
  platform_->synchronize();
  tuned_ = true;
}

Status Runner::launch(std::span<void* const> pointers, void* workspace, const void* prepared, bool programmatic) const {
  LaunchContext context = platform_->context();
  if (run_) return run_->launch(pointers, workspace, context);
  context.programmatic_launch = programmatic;
  return candidate_.variant->launch(problem_, dtype_, pointers, {workspace, prepared}, context);
}

Executor::Executor(Platform& platform, const Network& network, const Weights& weights, const Plan& plan)
    : platform_(&platform), network_(&network), pointers_(network.graph.values().size(), nullptr) {
  set_programmatic(true);
  const Graph& graph = network.graph;
  std::size_t workspace = 0;
  for (const Node& node : graph.nodes()) {
    auto& runner = runners_[node.op->name + "|" + to_string(node.dtype) + "|" + node.text];
    if (!runner)
      runner =
          std::make_unique<Runner>(platform, *node.op, node.problem, node.dtype, plan(*node.op, node.dtype, node.text));
    workspace = std::max(workspace, runner->workspace_bytes());
    steps_.push_back({runner.get(), &node, nullptr, plan.warm_us(*node.op, node.dtype, node.text)});
  }

  const Placement placement = place(activation_lifetimes(graph, {network.output}));
  activations_ = allocate(platform, placement.bytes, "the activations");
  workspace_ = allocate(platform, workspace, "the workspaces");
  std::size_t input_bytes = 0;
  for (const Value& value : graph.values())
    if (value.kind == Value::Kind::input) input_bytes += aligned(value.bytes());
  inputs_ = allocate(platform, input_bytes, "the inputs");
  std::size_t offset = 0;
  for (ValueId id = 0; id < graph.values().size(); ++id) {
    if (graph[id].kind == Value::Kind::activation)
      pointers_[id] = static_cast<char*>(activations_.data()) + placement.offsets[id];
    if (graph[id].kind != Value::Kind::input) continue;
    pointers_[id] = static_cast<char*>(inputs_.data()) + offset;
    offset += aligned(graph[id].bytes());
  }
  load_weights(weights);
  bytes_ = activations_.bytes() + workspace_.bytes() + inputs_.bytes() + weights_.bytes();

  for (Step& step : steps_) {
    arguments_.clear();
    for (const ValueId id : step.node->values) arguments_.push_back(pointers_[id]);
    if (const std::size_t prepared = step.runner->prepared_bytes(); prepared > 0) {
      prepared_.push_back(allocate(platform, prepared, "prepared weights"));
      step.prepared = prepared_.back().data();
      step.runner->prepare(arguments_, step.prepared);
      bytes_ += prepared;
    }
    step.runner->tune(arguments_, workspace_.data());
  }
  platform.synchronize();
}

void Executor::load_weights(const Weights& weights) {
  weights.check(*network_);
  const Graph& graph = network_->graph;
  std::size_t total = 0;
  for (const Value& value : graph.values())
    if (value.source) total += aligned(value.bytes());
  weights_ = allocate(*platform_, total, "the weights");
  std::size_t offset = 0;
  for (ValueId id = 0; id < graph.values().size(); ++id) {
    if (!graph[id].source) continue;
    pointers_[id] = static_cast<char*>(weights_.data()) + offset;
    weights.fill(*platform_, graph[id], pointers_[id]);
    offset += aligned(graph[id].bytes());
  }
}

void Executor::set_labels(std::span<const int> labels) {
  const Value& value = network_->graph[network_->labels];
  const std::int64_t rows = value.shape[0], unconditional = rows - network_->batch;
  std::vector<char> one_hot(value.bytes());
  for (std::int64_t image = 0; image < network_->batch; ++image) {
    const int label = labels[static_cast<std::size_t>(image)];
    if (label < 0 || label >= network_->classes)
      throw InvalidInput(fmt::format("label {}: {} has classes 0 to {}", label, network_->name, network_->classes - 1));
    store_element(value.dtype, one_hot.data(), (unconditional + image) * network_->classes + label, 1);
  }
  platform_->upload(pointers_[network_->labels], one_hot.data(), one_hot.size());
}

void Executor::set_programmatic(bool on) {
  constexpr int kFirstCapability = 90;
  programmatic_ = on && platform_->description().info.compute_capability >= kFirstCapability;
}

std::vector<std::pair<void*, std::size_t>> Executor::resident() const {
  std::vector<std::pair<void*, std::size_t>> ranges;
  const auto add = [&](const Buffer& buffer) {
    if (buffer.bytes() > 0) ranges.emplace_back(buffer.data(), buffer.bytes());
  };
  for (const Buffer* buffer : {&weights_, &activations_, &inputs_, &workspace_}) add(*buffer);
  for (const Buffer& buffer : prepared_) add(buffer);
  return ranges;
}

Status Executor::launch(const Step& step) {
  arguments_.clear();
  for (const ValueId id : step.node->values) arguments_.push_back(pointers_[id]);
  const auto enqueue = [&] { return step.runner->launch(arguments_, workspace_.data(), step.prepared, programmatic_); };
  if (listener_ == nullptr) return enqueue();
  const Node& node = *step.node;
  listener_->before(
      {{{node.op->name, node.text, to_string(node.dtype)}, step.runner->candidate().name}, node.name, step.warm_us});
  const Status status = enqueue();
  listener_->after();
  return status;
}

Status Executor::enqueue() {
  for (const Step& step : steps_)
    if (const Status status = launch(step); !status.ok()) return status;
  return success();
}

}  // namespace noisefloor::pipeline
