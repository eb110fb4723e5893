// Runs a network's graph on a platform: weights packed once, activations in one arena, a variant for each node.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

#include "bench/pipeline/plan.h"
#include "bench/platform/platform.h"
#include "networks/network.h"
#include "reports/run/case_id.h"

namespace noisefloor::pipeline {

using namespace networks;

// Where a network's weights come from: a checkpoint, or chance.
class Weights {
 public:
  virtual ~Weights() = default;
  // Writes a weight's values, in the graph's layout and dtype, to the platform's memory. A part of a state that has a
  // source is filled as a weight is; all else of states is zero at first.
  virtual void fill(Platform& platform, const Value& weight, void* data) const = 0;
  // All weights are there: what was kept from one to the next may go.
  virtual void filled() const {}
};

// Normal numbers of fixed seeds, for timing and for verification: what a network computes with them means nothing, but
// every weight counts. A weight is the same numbers whatever the network's dtype and batch, up to rounding. Products
// keep the variance of their inputs (deviation 1 / sqrt(fan-in)), norms scale by about 1, and nothing is zero: ADM's
// and EDM's own initial values are zero in every block's last convolution, which would hide what stands before it.
class RandomWeights final : public Weights {
 public:
  void fill(Platform& platform, const Value& weight, void* data) const override;

 private:
  void fill_sum(Platform& platform, const Value& weight, void* data) const;
};

// Who wants to know of each launch, around it: breakdowns.
// One launch: a node of the network, or one of the solver's own.
struct LaunchLabel : CaseId {
  std::string node;
  std::optional<double> warm_us;  // by itself, as the plan measured it or a sweep's row has it
  // What it needs of the network's memory: activations that live while it runs, and its own workspace.
  struct Memory {
    std::size_t activations, workspace;
  };
  std::optional<Memory> memory = {};
  bool beside = false;  // on a stream of its own, under the launches behind it
};

class LaunchListener {
 public:
  virtual ~LaunchListener() = default;
  virtual void before(const LaunchLabel& label) = 0;
  virtual void after() = 0;
};

class Executor {
 public:
  using Allocate = std::function<Buffer(std::size_t bytes)>;
  // Allocates everything that a run needs, states by `states` if it is given; loads and prepares the weights. Throws
  // OutOfMemory that says how many bytes what needs.
  Executor(Platform& platform, const Network& network, const Weights& weights, const Plan& plan,
           const Allocate& states = {});

  // The memory of an input, or of the output; bind() puts another in its place for the runs enqueued after it.
  void* data(ValueId id) const { return pointers_.at(id); }
  void bind(ValueId id, void* data) { pointers_.at(id) = data; }
  // One label an image; guided networks get them behind a half without. Throws InvalidInput on one out of range.
  void set_labels(std::span<const int> labels);
  // Whether launches of ours may overlap with the one before (programmatic dependent launch). On at first, where the
  // device can. Sound because such kernels wait before they touch what others wrote or read, in arena or workspace.
  void set_programmatic(bool on);
  bool programmatic() const { return programmatic_; }
  bool overlapping() const { return overlapping_; }  // what it was set to, whatever the device can
  // Whom to tell of each launch, of a sampler's own too; null: nobody.
  void listen(LaunchListener* listener) { listener_ = listener; }
  LaunchListener* listener() const { return listener_; }
  // Launches of the caller's ahead of a node, listened to as `label`. The node waits for the end of what is on its
  // stream.
  void insert(std::size_t node, LaunchLabel label, Launch launch) {
    inserted_.push_back({&network_->graph.nodes()[node], std::move(label), std::move(launch)});
  }
  // Enqueues every node on the platform's stream: both of these.
  Status enqueue() {
    const Status status = enqueue_once();
    return status.ok() ? enqueue_call() : status;
  }
  // What neither latents nor the call's level reach of a network built for sampling: at the beginning of a loop, when
  // all other inputs are there. Nothing of other networks.
  Status enqueue_once() { return launch_those(false); }
  // All else. `shallow`: of a network with a kept value only what does not lie below that, which an earlier call left.
  // `call`: of the loop, of a network with levels ahead.
  Status enqueue_call(bool shallow = false, std::size_t call = 0);

  const Network& network() const { return *network_; }
  const Suite& nodes() const { return *nodes_; }  // that the plan chose from
  const Implementation& implementation(std::size_t node) const { return *steps_.at(node).choice.implementation; }
  std::size_t bytes() const { return bytes_; }                  // of device memory
  std::vector<std::pair<void*, std::size_t>> resident() const;  // that memory

 private:
  struct Step {
    Plan::Choice choice;
    Ready* ready;  // shared by the nodes of one problem
    const Node* node;
    void* prepared;
    bool each_call;
    void* workspace = nullptr;          // among the activations
    bool shallow = false;               // also of calls that take the kept value from an earlier one
    bool begins_alone = false;          // see order_libraries
    bool prepares = false;              // before each launch: a node writes its weights
    std::uint64_t constant_inputs = 0;  // LaunchContext's: its weights
    LaunchLabel::Memory memory{};
  };
  struct Inserted {
    const Node* ahead_of;
    LaunchLabel label;
    Launch launch;
  };
  Status launch(const Step& step);
  Status listened(const std::function<LaunchLabel()>& label, const Launch& launch) const;
  Status launch_those(bool of_each_call, bool shallow = false);
  void point_parts(std::size_t call);
  Buffer lay_out(std::initializer_list<Value::Kind> kinds, const char* what, const Allocate& by = {});
  void order_libraries(bool shallow);
  void prepare_weights();

  Platform* platform_;
  const Network* network_;
  const Suite* nodes_;
  std::map<ProblemId, std::unique_ptr<Ready>> ready_;
  std::vector<Step> steps_;
  std::vector<void*> pointers_;  // of each value
  std::vector<void*> arguments_;
  Buffer weights_, states_, activations_, inputs_, between_;
  std::vector<Buffer> prepared_;
  std::size_t bytes_ = 0;
  bool programmatic_ = false, overlapping_ = false;
  LaunchListener* listener_ = nullptr;
  std::vector<Inserted> inserted_;
};

// ---- How much memory a network will take at some batch, from sizes alone: so that whoever asks for too many images
// can be told how many fit.

// What a plan's measurement of a problem allocates at once: tensors between guard bands, and outputs once more for the
// comparison. Without workspaces.
std::size_t trial_bytes(const Op& op, const AnyProblem& problem, DType dtype);

// Which variant will run a node; null where it is not known yet, or a vendor's.
using VariantOf = std::function<const AnyVariant*(std::size_t node)>;

// The most that is allocated at once to make an Executor of `network`: its activations with workspaces among
// them, inputs, weights and prepared weights; or, before that, to measure a node. Where `variant_of` knows none, or one
// that cannot run the problem, the most that any of ours asks for stands in; what vendors' libraries work in is not
// known beforehand. nullopt: a node that nothing of ours can run.
std::optional<std::size_t> executor_bytes(const Network& network, const PlatformDescription& platform,
                                          const VariantOf& variant_of);

// Of free memory, what a network can have: beside what is counted, a device holds the code of kernels, which is loaded
// as they are first launched, and recorded graphs.
std::size_t bytes_for_networks(Platform& platform);

// ---- Whole networks as a workload of the sweep (network_workload.cpp): `name=adm64,batch=32` takes images, noise
// levels and labels, and gives what one denoising call gives; `height=96,width=64` makes them of another size. Files
// and commands call it the op `network`.

// Its cost is the sum of the nodes' FLOPs; of bytes, what no fusion saves: weights, inputs and output once.
const Workload& network_workload();
Network build_network(const AnyProblem& problem, DType dtype, bool fold_skips = false);

// The implementations plan_own and plan_fastest (kind network), and plan_baseline: the plans of these names over the
// implementations in `nodes`, with random weights; on the host only plan_own, which is the host variants. They are held
// to the same network in fp32 by the tiled variants of the platform. `nodes` must outlive the entry.
SuiteEntry network_entry(const Suite& nodes);

}  // namespace noisefloor::pipeline
