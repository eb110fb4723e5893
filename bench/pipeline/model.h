// A network with its weights, as somebody asks for it; and the same running on a device.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/measure/suite.h"
#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/checkpoint_settings.h"
#include "bench/pipeline/executor.h"

namespace noisefloor::pipeline {

// A device, and what can run there.
struct Device {
  Platform& platform;
  const Suite& nodes;
};

// What is asked of a network, by the options of these names.
struct ModelRequest {
  std::string network, weights = {};  // no weights: the shipped ones
  std::optional<DType> dtype = {};    // none: bf16 on a GPU, fp32 on the host
  std::string plan = "own";           // Plan::Options::source
  bool strict = false, programmatic = true, folded_skips = true;
  bool own_settings = false;  // the network's: what the folder of the weights says is not looked at
  bool list_settings = false;
  std::shared_ptr<KnownTimes> known = {};  // of earlier plans, and for later ones

  // What the folder says of a network. Throws InvalidInput, as checkpoint_settings() does.
  CheckpointSettings settings(const NetworkInfo& info, bool sampled = false, const GivenOptions& given = {}) const;
  // The same of the decoder of what a network draws: its weights are in the same pipeline.
  ModelRequest of_decoder(const NetworkInfo& info) const;
};

// Opened and built: nothing of it is on the device yet, and no weight was looked at.
class Model {
 public:
  // The checkpoint decides whether the network is conditional, and device and plan what is fused. Throws InvalidInput.
  Model(CheckpointSettings settings, ModelRequest request, BuildOptions options, Device device);
  Model(const Model&) = delete;  // its network knows where its settings are
  Model& operator=(const Model&) = delete;

  void check_weights();  // once; throws InvalidInput on weights that are not the network's
  const Plan& plan();    // likewise; measures what nobody knows
  // On stderr, which checkpoint is read and how, where a user may not expect it; list_settings: also all that is
  // ignored.
  void say_what_is_read() const;

  const ModelRequest request;
  const Device device;
  const CheckpointSettings settings;  // the network is of its row
  const Checkpoint checkpoint;
  const BuildOptions options;
  Network network;  // plan() puts norms into convolutions

 private:
  friend class RunningModel;
  bool checked_ = false;
  std::unique_ptr<const Plan> plan_;
};

// A model under a plan, on its device.
class RunningModel {
 public:
  // How many bytes lie beside a network on the device.
  using BytesBeside = std::function<std::size_t(const Network&)>;

  // Checks the weights, plans and allocates. Throws InvalidInput, OutOfMemory (saying which batch, or how many frames,
  // would fit), DeviceError.
  explicit RunningModel(Model& model, BytesBeside beside = {});
  // Makes what lies beside the network: where that does not fit, it is said as above.
  void make(const std::function<void()>& beside);

  Model& model() const { return *model_; }
  Executor& executor() const { return *executor_; }

 private:
  std::string what_would_fit(const char* why) const;

  Model* model_;
  BytesBeside beside_;
  std::size_t available_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace noisefloor::pipeline
