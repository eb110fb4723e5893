#include "bench/pipeline/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/measure/fixture.h"
#include "kernels/core/device.h"
#include "networks/lifetimes.h"

namespace noisefloor::pipeline {
namespace {

Buffer allocate(Platform& platform, std::size_t bytes, const char* what, const Executor::Allocate& by = {}) {
  try {
    return bytes == 0 ? Buffer() : by ? by(bytes) : Buffer(platform, bytes);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(fmt::format("{} need {} bytes: {}", what, bytes, error.what()));
  }
}

void upload_constant(Platform& platform, const Value& value, void* data) {
  std::vector<char> bytes(value.bytes());
  for (std::int64_t i = 0; i < value.elements(); ++i)
    store_element(value.dtype, bytes.data(), i, static_cast<double>(i % value.period));
  platform.upload(data, bytes.data(), bytes.size());
}

// Launches of a library may begin that many launches early (order_libraries).
constexpr std::size_t kAhead = 4;

// Behind the lifetimes of a graph's values, those of what its nodes work in, which lie among the activations; at the
// end one that all libraries share, alive throughout: their launches may write before those ahead have ended, also
// those of the call before (order_libraries).
struct Workspace {
  std::size_t bytes = 0;
  bool of_library = false;
};
void add_workspaces(const std::vector<Workspace>& of_nodes, const std::vector<bool>& each_call,
                    std::vector<Lifetime>& lifetimes) {
  const std::size_t first = lifetimes.size();
  lifetimes.resize(first + of_nodes.size());
  std::size_t step = 0, of_libraries = 0;
  for (const bool each : {false, true})
    for (std::size_t node = 0; node < of_nodes.size(); ++node)
      if (each_call[node] == each) {
        if (of_nodes[node].of_library) of_libraries = std::max(of_libraries, of_nodes[node].bytes);
        lifetimes[first + node] = {of_nodes[node].of_library ? 0 : of_nodes[node].bytes, step, step};
        ++step;
      }
  lifetimes.push_back({of_libraries, 0, step});
}

struct Need {
  std::size_t workspace = 0, prepared = 0;
};

// Of the variant that runs the node, or the most of all that may.
std::optional<Need> need_of(const Node& node, const AnyVariant* runs, const PlatformDescription& platform) {
  std::optional<Need> most;
  for (const AnyVariant& variant : node.op->variants) {
    if ((variant.kind == Kind::host) != platform.is_host || !variant.built ||
        !variant.can_run(node.problem, node.dtype))
      continue;
    const Need need{variant.workspace_bytes(node.problem, node.dtype, platform.info),
                    variant.prepared_bytes(node.problem, node.dtype)};
    if (&variant == runs) return need;
    const Need before = most.value_or(Need{});
    most = {std::max(before.workspace, need.workspace), std::max(before.prepared, need.prepared)};
  }
  return most;
}

}  // namespace

Executor::Executor(Platform& platform, const Network& network, const Weights& weights, const Plan& plan,
                   const Allocate& states)
    : platform_(&platform),
      network_(&network),
      nodes_(&plan.nodes()),
      pointers_(network.graph.values().size(), nullptr) {
  set_programmatic(true);
  const Graph& graph = network.graph;
  std::vector<Workspace> workspaces;
  const std::vector<bool> each_call = nodes_of_each_call(network);
  for (const Node& node : graph.nodes()) {
    const ProblemId id = problem_id(node);
    auto& ready = ready_[id];
    if (!ready) ready = plan.make_ready(platform, node);
    workspaces.push_back({ready->workspace_bytes(), plan.choice(id).implementation->is(Kind::baseline)});
    steps_.push_back({plan.choice(id), ready.get(), &node, nullptr, each_call[steps_.size()]});
    steps_.back().constant_inputs = networks::weights_of(graph, node);
  }

  if (network.kept) {
    const std::vector<bool> shallow = nodes_of_shallow_calls(network);
    for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i].shallow = shallow[i];
  }
  order_libraries(/*shallow=*/false);
  if (network.kept) order_libraries(/*shallow=*/true);

  auto lifetimes = activation_lifetimes(graph, network.output_values(), each_call, network.kept);
  std::size_t order = 0;
  for (const bool each : {false, true})
    for (Step& step : steps_)
      if (step.each_call == each) step.memory = {bytes_alive(lifetimes, order++), step.ready->workspace_bytes()};
  add_workspaces(workspaces, each_call, lifetimes);
  const Placement placement = place(lifetimes);
  activations_ = allocate(platform, placement.bytes, "the activations and workspaces");
  for (std::size_t node = 0; node < steps_.size(); ++node) {
    const std::size_t of_node = workspaces[node].of_library ? steps_.size() : node;
    if (workspaces[node].bytes > 0)
      steps_[node].workspace =
          static_cast<char*>(activations_.data()) + placement.offsets[graph.values().size() + of_node];
  }
  inputs_ = lay_out({Value::Kind::input, Value::Kind::constant}, "the inputs");
  weights_ = lay_out({Value::Kind::weight}, "the weights");
  states_ = lay_out({Value::Kind::state}, "what is trained", states);
  if (states_.bytes() > 0) platform.fill_bytes(states_.data(), 0, states_.bytes());
  for (ValueId id = 0; id < graph.values().size(); ++id) {
    const Value& value = graph[id];
    if (value.kind == Value::Kind::activation)
      pointers_[id] = static_cast<char*>(activations_.data()) + placement.offsets[id];
    if (value.kind == Value::Kind::constant) upload_constant(platform, value, pointers_[id]);
  }
  point_parts(0);
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (const Value& value = graph[id]; value.source && value.kind != Value::Kind::unread)
      weights.fill(platform, value, pointers_[id]);
  weights.filled();
  bytes_ = activations_.bytes() + inputs_.bytes() + weights_.bytes() + states_.bytes();
  prepare_weights();
  platform.synchronize();
}

void Executor::prepare_weights() {
  const Graph& graph = network_->graph;
  std::size_t anew = 0;
  for (Step& step : steps_) {
    const std::size_t prepared = step.ready->prepared_bytes();
    if (prepared == 0) continue;
    step.prepares = reads_written_weights(graph, *step.node);
    if (step.prepares) {
      anew = std::max(anew, prepared);
      continue;
    }
    arguments_.clear();
    for (const ValueId id : step.node->values) arguments_.push_back(pointers_[id]);
    prepared_.push_back(allocate(*platform_, prepared, "prepared weights"));
    step.prepared = prepared_.back().data();
    step.ready->prepare(arguments_, step.prepared, platform_->context());
    bytes_ += prepared;
  }
  if (anew == 0) return;
  prepared_.push_back(allocate(*platform_, anew, "prepared weights"));
  bytes_ += anew;
  for (Step& step : steps_)
    if (step.prepares) step.prepared = prepared_.back().data();
}

// Where parts of other values lie in a call.
void Executor::point_parts(std::size_t call) {
  const Graph& graph = network_->graph;
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (const auto& part = graph[id].part)
      pointers_[id] = static_cast<char*>(pointers_[part->of]) +
                      part->first_of(call) * static_cast<std::int64_t>(size_of(graph[id].dtype));
}

// Memory for all values of some kinds, one behind the other.
Buffer Executor::lay_out(std::initializer_list<Value::Kind> kinds, const char* what, const Allocate& by) {
  const Graph& graph = network_->graph;
  std::size_t bytes = 0;
  std::vector<std::pair<ValueId, std::size_t>> offsets;
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (std::ranges::find(kinds, graph[id].kind) != kinds.end() && !graph[id].part) {
      offsets.emplace_back(id, bytes);
      bytes += aligned(graph[id].bytes());
    }
  Buffer buffer = allocate(*platform_, bytes, what, by);
  for (const auto& [id, offset] : offsets) pointers_[id] = static_cast<char*>(buffer.data()) + offset;
  return buffer;
}

void Executor::set_labels(std::span<const int> labels) {
  const std::vector<char> held = one_hot(*network_, labels);
  platform_->upload(pointers_[network_->labels()], held.data(), held.size());
}

void Executor::set_programmatic(bool on) {
  overlapping_ = on;
  programmatic_ = on && platform_->description().info.compute_capability >= kFirstProgrammatic;
}

std::vector<std::pair<void*, std::size_t>> Executor::resident() const {
  std::vector<std::pair<void*, std::size_t>> ranges;
  const auto add = [&](const Buffer& buffer) {
    if (buffer.bytes() > 0) ranges.emplace_back(buffer.data(), buffer.bytes());
  };
  for (const Buffer* buffer : {&weights_, &states_, &activations_, &inputs_, &between_}) add(*buffer);
  for (const Buffer& buffer : prepared_) add(buffer);
  return ranges;
}

// Kernels of ours let the next launch begin early: most once all before them have ended, some streaming ones sooner.
// cuDNN launches its own in that way, too, and those wait in the warps that load a product's operands: what else they
// read, as a residual, may be read while a kernel ahead still writes it (inferred: docs/experiments/networks, "a
// library's kernel that begins early"). So where a library reads such a tensor that one of the launches ahead writes,
// the last of them ours, a byte is set between them, behind which everything has ended. Looked at are more launches
// than streaming ones follow each other.
void Executor::order_libraries(bool shallow) {
  const PlatformDescription& device = platform_->description();
  if (device.is_host || device.info.compute_capability < kFirstProgrammatic) return;
  const auto is_ours = [](const Step& step) { return !step.choice.implementation->is(Kind::baseline); };
  std::vector<const Node*> ahead;
  const Step* last = nullptr;
  for (const bool each : {false, true})
    for (Step& step : steps_) {
      if (step.each_call != each || (shallow && !step.shallow)) continue;
      step.begins_alone |= last != nullptr && is_ours(*last) && !is_ours(step) &&
                           networks::reads_beside_first(network_->graph, *step.node, ahead);
      if (step.begins_alone && between_.bytes() == 0) between_ = allocate(*platform_, 1, "what lies between launches");
      last = &step;
      ahead.push_back(step.node);
      if (ahead.size() > kAhead) ahead.erase(ahead.begin());
    }
}

Status Executor::listened(const std::function<LaunchLabel()>& label, const Launch& launch) const {
  if (listener_ == nullptr) return launch();
  listener_->before(label());
  const Status status = launch();
  listener_->after();
  return status;
}

Status Executor::launch(const Step& step) {
  bool behind_inserted = false;
  for (const Inserted& inserted : inserted_) {
    if (inserted.ahead_of != step.node) continue;
    behind_inserted = true;
    if (const Status status = listened([&] { return inserted.label; }, inserted.launch); !status.ok()) return status;
  }
  arguments_.clear();
  for (const ValueId id : step.node->values) arguments_.push_back(pointers_[id]);
  LaunchContext context = platform_->context();
  context.programmatic_launch = programmatic_ && !behind_inserted;
  context.constant_inputs = step.constant_inputs;
  const auto label = [&]() -> LaunchLabel {
    const Node& node = *step.node;
    return {{{node.op->name, node.text, to_string(node.dtype)}, step.choice.implementation->name},
            node.name,
            step.choice.warm_us,
            step.memory};
  };
  return listened(label, [&] {
    if (step.begins_alone) platform_->fill_bytes(between_.data(), 0, 1);
    if (step.prepares) step.ready->prepare(arguments_, step.prepared, platform_->context());
    return step.ready->launch(arguments_, {step.workspace, step.prepared}, context);
  });
}

Status Executor::launch_those(bool of_each_call, bool shallow) {
  for (const Step& step : steps_)
    if (step.each_call == of_each_call && (!shallow || step.shallow))
      if (const Status status = launch(step); !status.ok()) return status;
  return success();
}

Status Executor::enqueue_call(bool shallow, std::size_t call) {
  point_parts(call);
  return launch_those(true, shallow);
}

std::size_t trial_bytes(const Op& op, const AnyProblem& problem, DType dtype) {
  std::size_t bytes = Fixture::kGuardBytes;
  for (const TensorSpec& spec : op.tensors(problem, dtype)) {
    bytes += aligned(spec.bytes()) + Fixture::kGuardBytes;
    if (spec.role != Role::in) bytes += spec.bytes();
  }
  return bytes;
}

std::optional<std::size_t> executor_bytes(const Network& network, const PlatformDescription& platform,
                                          const VariantOf& variant_of) {
  const Graph& graph = network.graph;
  const std::vector<bool> each_call = nodes_of_each_call(network);
  std::vector<Workspace> workspaces;
  std::size_t held = 0, measuring = 0;
  for (const Value& value : graph.values())
    if (value.kind != Value::Kind::activation && value.kind != Value::Kind::unread && !value.part)
      held += aligned(value.bytes());
  std::size_t anew = 0;  // prepared before each launch
  std::set<ProblemId> measured;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const std::optional<Need> need = need_of(node, variant_of(i), platform);
    if (!need) return std::nullopt;
    workspaces.push_back({need->workspace});
    if (reads_written_weights(graph, node))
      anew = std::max(anew, need->prepared);
    else
      held += aligned(need->prepared);
    if (measured.insert(problem_id(node)).second)
      measuring = std::max(measuring, trial_bytes(*node.op, node.problem, node.dtype) + need->workspace +
                                          Fixture::kGuardBytes + need->prepared);
  }
  auto lifetimes = activation_lifetimes(graph, network.output_values(), each_call, network.kept);
  add_workspaces(workspaces, each_call, lifetimes);
  return std::max(held + place(lifetimes).bytes + aligned(anew), measuring);
}

std::size_t bytes_for_networks(Platform& platform) {
  constexpr std::size_t kDeviceReserve = std::size_t{256} << 20;
  const std::size_t free = platform.free_bytes();
  return free - (platform.description().is_host ? 0 : std::min(kDeviceReserve, free));
}

}  // namespace noisefloor::pipeline
