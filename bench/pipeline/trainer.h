// Trains a network: a step is one list of nodes (networks/training.h), on a GPU one CUDA graph, whose numbers that
// change from step to step lie in device memory. On several devices each takes a share of the batch, and the same step
// with the sum of all gradients, so that what is trained has the same bits everywhere.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline/breakdown.h"
#include "bench/pipeline/model.h"
#include "bench/pipeline/training_data.h"
#include "bench/pipeline/training_recipe.h"
#include "bench/platform/nccl.h"
#include "networks/training.h"

namespace noisefloor::pipeline {

struct TrainerRequest {
  std::string network;
  TrainingRecipe recipe;
  std::optional<DType> dtype = {};        // none: bf16 on a GPU, fp32 on the host
  std::string weights = {}, resume = {};  // to begin with: a checkpoint's, or what a training checkpoint has
  std::string plan = "own";               // Plan::Options::source; of what `resume` names no variant for
  bool recompute = false;                 // TrainingOptions::recompute
  std::int64_t accumulate = 1;            // micro-batches of a device, one behind the other
  double patience = 60;                   // seconds that a step of several devices is waited for at least; no option
  std::int64_t bucket = 1 << 26;          // gradients that are summed at once, at most: 256 MiB; no option
};

TrainingOptions options_of(const TrainingRecipe& recipe, std::int64_t images, DType dtype);

// ---- Training checkpoints: one safetensors file, from which a training goes on bit for bit.

struct TrainingState {
  std::int64_t step = 0;                     // that many are taken
  std::vector<float> parameters, m, v, ema;  // flat, as networks/training.h lays them out
};
struct StoredTraining {
  TrainingState state;
  std::string device, commit;
  PlanEntries plan;                 // the same variants have the same roundings
  std::string layout;               // of the states; only written
  std::string micro_batches = "1";  // of all devices together
};
// `identity`: what must be the same to go on, by the names that messages use; an option's begins with "--".
void write_training(const std::filesystem::path& file, const StoredTraining& stored, const FileMetadata& identity);
// Throws InvalidInput: no training checkpoint, one of another schema, what differs from `identity` (with both values),
// or numbers that are not finite.
StoredTraining read_training(const std::filesystem::path& file, const FileMetadata& identity, std::int64_t elements);

// ----

// A tensor of a network's first weights, as PyTorch's layers begin: uniform, below 1 / sqrt(fan-in) of the layer; norms
// as they are. `fan_in`: 0 of a norm.
void fill_first_weights(const WeightSource& source, std::int64_t fan_in, std::uint64_t seed, std::span<float> numbers);

// Parts of so many gradients that are summed at once: how many each has, at most `most`. The first one has 16 MiB,
// which links of hundreds of GB/s add in less than 0.1 ms, each other one as many as all before it: the first layers'
// gradients are whole last, so that nothing hides the sum of theirs.
std::vector<std::int64_t> buckets_of(std::int64_t gradients, std::int64_t most);

// Of several devices one failed: all have stopped.
class RankFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Trainer {
 public:
  // Measures what the plan does not know, and allocates. Throws InvalidInput, OutOfMemory, DeviceError.
  Trainer(const TrainerRequest& request, const TrainingData& data, Device device)
      : Trainer(request, data, std::span(&device, 1), {}) {}
  // On devices of a kind. `connect` makes what sums over them. Throws RankFailed, too, as does what takes steps.
  using Connect = std::function<std::unique_ptr<Communicator>()>;
  Trainer(const TrainerRequest& request, const TrainingData& data, std::span<const Device> devices,
          const Connect& connect);
  Trainer(const Trainer&) = delete;  // its recording knows where it is
  Trainer& operator=(const Trainer&) = delete;

  struct Step {
    std::int64_t number;  // from 1
    float loss, norm;     // of the gradients, before clipping
    bool finite() const;
  };
  static constexpr std::int64_t kMostAtOnce = 256;
  // The next steps, on a GPU one behind the other without waiting; at most kMostAtOnce.
  std::vector<Step> take(std::int64_t steps);
  std::int64_t taken() const { return taken_; }
  // Behind a step that was not finite: the gradient that is not, nearest to the loss. Where others came behind it,
  // steps are taken again from where its state was kept.
  std::string gradient_not_finite(const Step& step);

  // The moving average of the weights, under the original checkpoint's names and layouts; in the format of `name`,
  // which the file will have. Throws NotFinite, naming a tensor that is not.
  void write_weights(const std::filesystem::path& file, const std::filesystem::path& name = {}) const;
  void write_checkpoint(const std::filesystem::path& file);
  bool states_finite() const;  // which a checkpoint does not ask
  void keep() { kept_ = stored().state; }
  void rewind() { set_state(kept_); }  // to where it was kept last: by keep(), as a checkpoint, or at the beginning

  const Training& training() const { return ranks_.front().training; }
  const TrainingRecipe& recipe() const { return request_.recipe; }
  DType dtype() const { return dtype_; }
  Executor& executor() { return *ranks_.front().executor; }  // of the first device
  // `lead` measures the first one's breakdown, the others follow.
  void break_down(const std::function<void(const Meeting&)>& lead);
  const std::string& note() const { return note_; }  // why what follows may be rounded otherwise than before; ""

 private:
  struct Rank {
    std::size_t number;
    Platform* platform;
    Training training;
    std::unique_ptr<Executor> executor = {};
    std::unique_ptr<Recording> recording = {};
    Buffer steps = {}, rates = {}, results = {};  // of the steps of one take()
  };
  void on_all(const std::function<void(Rank&)>& work, double most = std::numeric_limits<double>::infinity());
  void allocate(Rank& rank, const Plan& plan, const TrainingData& data);
  void insert_sums(Rank& rank);
  std::string layout_text() const;
  FileMetadata identity(const TrainingData& data) const;
  std::string micro_batches() const;
  std::vector<float> first_parameters() const;
  std::vector<float> state(ValueId id) const;
  void set_state(const TrainingState& state);
  void doubt(const Suite& nodes, const std::vector<CountedProblem>& problems, StoredTraining& stored);
  StoredTraining stored() const;

  TrainerRequest request_;
  Platform& platform_;  // the first one
  DType dtype_;
  std::unique_ptr<Communicator> communicator_;  // goes behind the recordings
  std::deque<Rank> ranks_;
  FileMetadata identity_;
  std::int64_t taken_ = 0;
  double slowest_ = 0;  // seconds of a step, so far
  TrainingState kept_;  // from which steps can be taken again
  std::string note_;
};

}  // namespace noisefloor::pipeline
