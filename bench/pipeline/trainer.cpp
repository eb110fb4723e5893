#include "bench/pipeline/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <ranges>

#include "bench/platform/build_info.h"
#include "bench/platform/fingerprint.h"
#include "kernels/core/philox.h"

namespace noisefloor::pipeline {
namespace {

// Each weight is a part of a state, which the trainer fills.
class FilledLater final : public Weights {
 public:
  void fill(Platform&, const Value&, void*) const override {}
};

Training built(const TrainerRequest& request, std::int64_t images, DType dtype) {
  TrainingOptions options = options_of(request.recipe, images, dtype);
  options.recompute = request.recompute;
  return build_training(require_network(request.network), options);
}

template <class State>  // a vector of float
auto part_of(State& state, const Value& slice) {
  return std::span(state).subspan(static_cast<std::size_t>(slice.part->first),
                                  static_cast<std::size_t>(slice.elements()));
}

// Without the number of a host's threads, which changes no bit.
std::string_view without_threads(std::string_view device) {
  return device.ends_with(" core)") || device.ends_with(" cores)") ? device.substr(0, device.rfind(" (")) : device;
}

std::int64_t fan_in_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

TrainingOptions options_of(const TrainingRecipe& recipe, std::int64_t images, DType dtype) {
  return {.batch = recipe.batch,
          .images = images,
          .dtype = dtype,
          .seed = recipe.seed,
          .p_mean = recipe.p_mean,
          .p_std = recipe.p_std,
          .shifted = recipe.shift,
          .flipped = recipe.flip,
          .unlabelled = recipe.unlabelled,
          .clip = recipe.clip,
          .beta1 = recipe.beta1,
          .beta2 = recipe.beta2,
          .decay = recipe.decay};
}

bool Trainer::Step::finite() const {
  return std::isfinite(loss) && std::isfinite(norm);
}

void fill_first_weights(const WeightSource& source, std::int64_t fan_in, std::uint64_t seed, std::span<float> numbers) {
  if (fan_in == 0) {
    std::ranges::fill(numbers, source.name.ends_with(".bias") ? 0.0f : 1.0f);
    return;
  }
  const float most = 1 / std::sqrt(static_cast<float>(fan_in));
  const std::uint64_t stream = Fingerprint().add(seed).add(source.name).value();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Philox4 words = philox4x32_10(philox_counter(i / 4, 0), stream);
    numbers[i] = most * (static_cast<float>(words.v[i % 4] >> 8) * 0x1p-23f - 1);
  }
}

Trainer::Trainer(const TrainerRequest& request, const TrainingData& data, Device device)
    : request_(request),
      platform_(device.platform),
      dtype_(request.dtype.value_or(platform_.description().is_host ? DType::fp32 : DType::bf16)),
      training_(built(request, data.count, dtype_)),
      identity_(identity(data)) {
  StoredTraining stored;
  if (request.resume.empty()) {
    stored.state.parameters = stored.state.ema = first_parameters();
  } else {
    stored = read_training(request.resume, identity_, training_.elements());
    if (stored.state.step > recipe().steps)
      throw InvalidInput(
          fmt::format("--resume {}: its step is {}, of {} steps", request.resume, stored.state.step, recipe().steps));
    doubt(device.nodes, stored);
  }
  const Network& network = training_.network;
  KnownTimes known;
  const Plan plan(platform_, device.nodes, count_problems(network.graph),
                  {.source = request.plan, .known = &known, .entries = &stored.plan});
  try {
    executor_ = std::make_unique<Executor>(platform_, network, FilledLater(), plan);
    steps_ = Buffer(platform_, kMostAtOnce * 2 * sizeof(float));
    rates_ = Buffer(platform_, kMostAtOnce * 4 * sizeof(float));
    results_ = Buffer(platform_, kMostAtOnce * 2 * sizeof(float));
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(fmt::format("--batch {}: a step does not fit: {}; lower --batch", recipe().batch, error.what()));
  }
  platform_.upload(executor_->data(training_.images), data.images.data(), data.images.size() * sizeof(float));
  if (training_.labels)
    platform_.upload(executor_->data(*training_.labels), data.labels.data(), data.labels.size() * sizeof(float));
  set_state(stored.state);
  kept_ = std::move(stored.state);
  recording_ = platform_.record([this] { return executor_->enqueue(); });
}

// What keeps a training that goes on from the numbers of one that was not interrupted.
void Trainer::doubt(const Suite& nodes, StoredTraining& stored) {
  const std::string &device = platform_.description().name, &commit = build_info().commit;
  std::vector<std::string> reasons;
  if (without_threads(stored.device) != without_threads(device)) {
    reasons.push_back(fmt::format("was written on {}, this is {}", stored.device, device));
    stored.plan.clear();
  }
  if (stored.commit != commit) reasons.push_back(fmt::format("was written by {}, this is {}", stored.commit, commit));
  std::erase_if(stored.plan, [&](const auto& choice) {
    const auto& [id, variant] = choice;
    const SuiteEntry* const entry = nodes.find(id.op);
    const ImplementationPtr found = entry == nullptr ? nullptr : entry->find(variant);
    const bool runs = found != nullptr && found->runs_on_platform(platform_.description().is_host);
    if (!runs) reasons.push_back(fmt::format("has {} of {}, which does not run here", variant, id.op));
    if (runs && found->is(Kind::baseline))
      reasons.push_back(fmt::format("has {} of {}, whose algorithm is chosen anew", variant, id.op));
    return !runs;
  });
  if (reasons.empty()) return;
  std::ranges::sort(reasons);
  reasons.erase(std::ranges::unique(reasons).begin(), reasons.end());
  note_ = fmt::format("{}: from here on numbers may be rounded otherwise: it {}", request_.resume,
                      fmt::join(reasons, "; it "));
}

// A line a parameter, for whoever reads a checkpoint: its name, where it begins in each state, and its shape there.
std::string Trainer::layout_text() const {
  std::string text;
  for (const ValueId id : training_.slices) {
    const Value& slice = training_.network.graph[id];
    text += fmt::format("{}\t{}\t{}\n", slice.source->name, slice.part->first, fmt::join(slice.shape, ","));
  }
  return text;
}

// What tells one training from another: all that its numbers depend on, but for device and variants.
FileMetadata Trainer::identity(const TrainingData& data) const {
  FileMetadata all{{"network", request_.network}, {"--dtype", to_string(dtype_)}, {"--data", data.fingerprint()}};
  for (const RecipeField& field : recipe_fields()) all[field.option()] = field.text(recipe());
  all["layout of the parameters"] = Fingerprint().add(layout_text()).text();
  return all;
}

std::vector<float> Trainer::first_parameters() const {
  const Graph& graph = training_.network.graph;
  std::vector<float> all(static_cast<std::size_t>(training_.elements()));
  if (!request_.weights.empty()) {
    Checkpoint checkpoint(request_.weights, training_.network.info->folder);
    checkpoint.drop_prefix(*training_.network.info);
    checkpoint.check(training_.network);
    for (const ValueId id : training_.slices) {
      const std::span<float> to = part_of(all, graph[id]);
      checkpoint.load(graph[id], {reinterpret_cast<char*>(to.data()), to.size_bytes()});
    }
    return all;
  }
  std::map<std::string, std::int64_t> fan_in;  // of weights, by their names without ".weight"
  const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  for (const ValueId id : training_.slices)
    if (const WeightSource& source = *graph[id].source; source.file.size() > 1)
      fan_in[layer(source.name)] = fan_in_of(source.file);
  for (const ValueId id : training_.slices) {
    const WeightSource& source = *graph[id].source;
    const auto found = fan_in.find(layer(source.name));
    fill_first_weights(source, found == fan_in.end() ? 0 : found->second, static_cast<std::uint64_t>(recipe().seed),
                       part_of(all, graph[id]));
  }
  return all;
}

std::vector<float> Trainer::state(ValueId id) const {
  std::vector<float> numbers(static_cast<std::size_t>(training_.elements()));
  platform_.download(numbers.data(), executor_->data(id), numbers.size() * sizeof(float));
  return numbers;
}

// Moments that are not there are zero.
void Trainer::set_state(const TrainingState& state) {
  const auto set = [&](ValueId id, std::vector<float> numbers) {
    numbers.resize(static_cast<std::size_t>(training_.elements()));
    platform_.upload(executor_->data(id), numbers.data(), numbers.size() * sizeof(float));
  };
  set(training_.parameters, state.parameters);
  set(training_.m, state.m);
  set(training_.v, state.v);
  if (training_.ema) set(*training_.ema, state.ema);
  if (training_.copies) {
    std::vector<char> rounded(state.parameters.size() * size_of(dtype_));
    store_floats(dtype_, rounded.data(), 0, std::ssize(state.parameters), state.parameters.data());
    platform_.upload(executor_->data(*training_.copies), rounded.data(), rounded.size());
  }
  taken_ = state.step;
}

std::vector<Trainer::Step> Trainer::take(std::int64_t steps) {
  const std::int64_t count = std::min(steps, kMostAtOnce);
  std::vector<std::array<float, 2>> numbers, results(static_cast<std::size_t>(count));
  std::vector<std::array<float, 4>> rates;
  for (std::int64_t i = 1; i <= count; ++i) {
    numbers.push_back(TrainingRecipe::number_of(taken_ + i));
    rates.push_back(recipe().rates_at(taken_ + i));
  }
  platform_.upload(steps_.data(), numbers.data(), numbers.size() * sizeof numbers[0]);
  platform_.upload(rates_.data(), rates.data(), rates.size() * sizeof rates[0]);
  for (std::int64_t i = 0; i < count; ++i) {
    platform_.copy(executor_->data(training_.step), steps_.as<float>() + 2 * i, 2 * sizeof(float));
    platform_.copy(executor_->data(training_.rates), rates_.as<float>() + 4 * i, 4 * sizeof(float));
    recording_->replay();
    platform_.copy(results_.as<float>() + 2 * i, executor_->data(training_.loss), sizeof(float));
    platform_.copy(results_.as<float>() + 2 * i + 1, executor_->data(training_.norm), sizeof(float));
  }
  platform_.synchronize();
  platform_.download(results.data(), results_.data(), results.size() * sizeof results[0]);
  std::vector<Step> taken;
  for (const auto& [loss, norm] : results) taken.push_back({++taken_, loss, norm});
  return taken;
}

std::string Trainer::gradient_not_finite(const Step& step) {
  if (taken_ > step.number) rewind();
  while (taken_ < step.number) take(step.number - taken_);
  const std::vector<float> gradients = state(training_.gradients);
  for (const ValueId id : std::views::reverse(training_.slices)) {
    const Value& slice = training_.network.graph[id];
    if (!std::ranges::all_of(part_of(gradients, slice), [](float number) { return std::isfinite(number); }))
      return slice.source->name;
  }
  return "";
}

void Trainer::write_weights(const std::filesystem::path& file, const std::filesystem::path& name) const {
  const std::vector<float> numbers = state(training_.ema.value_or(training_.parameters));
  std::vector<FileTensor> tensors;
  std::deque<std::vector<float>> turned;
  for (const ValueId id : training_.slices) {
    const Value& slice = training_.network.graph[id];
    turned.push_back(in_file_order(*slice.source, part_of(numbers, slice)));
    tensors.push_back({slice.source->name, safetensors_name(DType::fp32), slice.source->file,
                       std::as_bytes(std::span(turned.back()))});
  }
  if (is_named_as_unetcu(name, *training_.network.info)) return write_unetcu(file, tensors, recipe().batch);
  FileMetadata metadata{{"network", request_.network}, {"steps", fmt::format("{}", taken_)}};
  for (const RecipeField& field : recipe_fields())
    if (field.name == std::string_view("batch") || field.name == std::string_view("seed"))
      metadata[field.name] = field.text(recipe());
  write_safetensors(file, tensors, metadata);
}

StoredTraining Trainer::stored() const {
  StoredTraining all{{taken_, state(training_.parameters), state(training_.m), state(training_.v), {}},
                     platform_.description().name,
                     build_info().commit,
                     {},
                     layout_text()};
  all.state.ema = training_.ema ? state(*training_.ema) : all.state.parameters;
  const auto& nodes = training_.network.graph.nodes();
  for (std::size_t node = 0; node < nodes.size(); ++node)
    all.plan[problem_id(nodes[node])] = executor_->implementation(node).name;
  return all;
}

bool Trainer::states_finite() const {
  const ValueId average = training_.ema.value_or(training_.parameters);
  return std::ranges::all_of(std::array{training_.parameters, training_.m, training_.v, average}, [&](ValueId id) {
    return std::ranges::all_of(state(id), [](float number) { return std::isfinite(number); });
  });
}

void Trainer::write_checkpoint(const std::filesystem::path& file) {
  StoredTraining all = stored();
  write_training(file, all, identity_);
  kept_ = std::move(all.state);
}

}  // namespace noisefloor::pipeline
