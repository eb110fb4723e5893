#include "bench/pipeline/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <ranges>
#include <thread>

#include "bench/pipeline/pictures.h"
#include "bench/platform/fingerprint.h"
#include "kernels/core/parallel.h"
#include "kernels/core/philox.h"

namespace noisefloor::pipeline {
namespace {

// Each weight is a part of a state, which the trainer fills.
class FilledLater final : public Weights {
 public:
  void fill(Platform&, const Value&, void*) const override {}
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Of the watchdog. What waits in a library's own barrier, or for a broken GPU, is not freed by an abort.
constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr std::chrono::seconds kToEnd{20};
constexpr double kTimes = 10;  // a step may take as long as so many of the slowest so far; the first: of patience

Training built(const TrainerRequest& request, std::int64_t images, DType dtype, std::size_t rank, std::size_t ranks) {
  TrainingOptions options = options_of(request.recipe, images, dtype);
  options.devices = static_cast<std::int64_t>(ranks);
  options.device = static_cast<std::int64_t>(rank);
  options.parts = request.accumulate;
  options.recompute = request.recompute;
  const std::int64_t parts = options.devices * options.parts;
  if (options.batch % parts != 0)
    throw InvalidInput(fmt::format(
        "--batch {}: must be a multiple of {}, the micro-batches of a step: {} by --accumulate{}", options.batch, parts,
        request.accumulate, ranks == 1 ? "" : fmt::format(" on each of {} devices", ranks)));
  return build_training(require_network(request.network), options);
}

template <class State>  // a vector of float
auto part_of(State& state, const Value& slice) {
  return std::span(state).subspan(static_cast<std::size_t>(slice.part->first),
                                  static_cast<std::size_t>(slice.elements()));
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
  const std::int64_t draws = (std::ssize(numbers) + 3) / 4;
  parallel_for(draws, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t draw = begin; draw < end; ++draw) {
      const Philox4 words = philox4x32_10(philox_counter(static_cast<std::uint64_t>(draw), 0), stream);
      const std::size_t first = 4 * static_cast<std::size_t>(draw);
      for (std::size_t i = first; i < std::min(first + 4, numbers.size()); ++i)
        numbers[i] = most * (static_cast<float>(words.v[i % 4] >> 8) * 0x1p-23f - 1);
    }
  });
}

std::vector<std::int64_t> buckets_of(std::int64_t gradients, std::int64_t most) {
  constexpr std::int64_t kLeast = 1 << 22;
  std::vector<std::int64_t> counts;
  for (std::int64_t first = 0; first < gradients; first += counts.back())
    counts.push_back(std::min({most, std::max(first, kLeast), gradients - first}));
  return counts;
}

Trainer::Trainer(const TrainerRequest& request, const TrainingData& data, std::span<const Device> devices,
                 const Connect& connect)
    : request_(request),
      platform_(devices.front().platform),
      dtype_(request.dtype.value_or(platform_.description().is_host ? DType::fp32 : DType::bf16)) {
  platform_.make_current();
  for (const Device& device : devices)
    ranks_.push_back(
        {ranks_.size(), &device.platform, built(request, data.count, dtype_, ranks_.size(), devices.size())});
  identity_ = identity(data);
  // Each micro-batch draws images of other numbers, in the same time: the first device measures that of the first one.
  const auto drawn = [](const Training& t) {
    std::vector<ProblemId> problems;
    for (const std::size_t node : t.draws) problems.push_back(problem_id(t.network.graph.nodes()[node]));
    return problems;
  };
  const std::vector<ProblemId> own = drawn(training());
  std::vector<CountedProblem> problems = count_problems(training().network.graph);
  std::erase_if(problems, [&](const CountedProblem& problem) {
    return std::ranges::count(own | std::views::drop(1), problem_id(problem)) > 0;
  });
  StoredTraining stored;
  if (request.resume.empty()) {
    stored.state.parameters = stored.state.ema = first_parameters();
  } else {
    stored = read_training(request.resume, identity_, training().elements());
    if (stored.state.step > recipe().steps)
      throw InvalidInput(
          fmt::format("--resume {}: its step is {}, of {} steps", request.resume, stored.state.step, recipe().steps));
    doubt(devices.front().nodes, problems, stored);
  }
  KnownTimes known;
  Plan plan(platform_, devices.front().nodes, problems,
            {.source = request.plan, .known = &known, .entries = &stored.plan});
  for (const Rank& rank : ranks_)
    for (const ProblemId& problem : drawn(rank.training)) plan.take(problem, own.front());

  if (connect) communicator_ = connect();
  on_all([&](Rank& rank) { allocate(rank, plan, data); }, kTimes * request.patience);
  set_state(stored.state);
  kept_ = std::move(stored.state);
  if (communicator_) on_all([&](Rank& rank) { insert_sums(rank); }, kTimes * request.patience);
  on_all([](Rank& rank) { rank.recording = rank.platform->record([&] { return rank.executor->enqueue(); }); });
}

void Trainer::allocate(Rank& rank, const Plan& plan, const TrainingData& data) {
  const Training& t = rank.training;
  try {
    Executor::Allocate states;
    if (communicator_)
      states = [&](std::size_t bytes) { return communicator_->memory(rank.number, *rank.platform, bytes); };
    rank.executor = std::make_unique<Executor>(*rank.platform, t.network, FilledLater(), plan, states);
    rank.steps = Buffer(*rank.platform, kMostAtOnce * 2 * sizeof(float));
    rank.rates = Buffer(*rank.platform, kMostAtOnce * 4 * sizeof(float));
    rank.results = Buffer(*rank.platform, kMostAtOnce * (t.losses.size() + 1) * sizeof(float));
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(fmt::format("--batch {}: a step does not fit: {}; lower --batch, or split it with --accumulate",
                                  recipe().batch, error.what()));
  }
  rank.platform->upload(rank.executor->data(t.images), data.images.data(), data.images.size() * sizeof(float));
  if (t.labels)
    rank.platform->upload(rank.executor->data(*t.labels), data.labels.data(), data.labels.size() * sizeof(float));
}

// The sum of all devices' gradients, bucket by bucket: beside the nodes behind the last one that writes to it, and the
// one that is whole last ahead of the norm.
void Trainer::insert_sums(Rank& rank) {
  const Training& t = rank.training;
  const Graph& graph = t.network.graph;
  Platform* const platform = rank.platform;
  const auto sum = [this, number = rank.number, gradients = static_cast<float*>(rank.executor->data(t.gradients))](
                       std::int64_t first, std::int64_t count, Stream stream) {
    return communicator_->sum(number, gradients + first, count, stream);
  };
  throw_if_failed(sum(0, t.elements(), platform->context().stream));  // outside of a recording, since it connects
  platform->synchronize();
  struct Bucket {
    std::size_t ahead_of;  // the node
    std::int64_t first, count;
  };
  std::vector<Bucket> buckets;
  for (std::int64_t begin = 0; const std::int64_t count : buckets_of(t.elements(), request_.bucket)) {
    buckets.push_back({0, begin, count});
    begin += count;
  }
  for (std::size_t node = 0; node < t.update; ++node)
    for (const ValueId id : graph.nodes()[node].values)
      if (const Value& value = graph[id]; graph.whole(id) == t.gradients)
        for (Bucket& bucket : buckets)
          if (const std::int64_t begin = value.part ? value.part->first : 0;
              begin < bucket.first + bucket.count && bucket.first < begin + value.elements())
            bucket.ahead_of = node + 1;
  std::ranges::sort(buckets, {}, [](const Bucket& bucket) { return std::pair(bucket.ahead_of, bucket.first); });
  buckets.back().ahead_of = t.update;
  for (const auto& [ahead_of, first, count] : buckets) {
    const bool beside = ahead_of != t.update;
    const auto launch = [=, &executor = *rank.executor, first = first, count = count] {
      if (beside && executor.overlapping())  // else each launch runs by itself
        return platform->beside([=](Stream stream) { return sum(first, count, stream); });
      platform->join();
      return sum(first, count, platform->context().stream);
    };
    rank.executor->insert(
        ahead_of,
        {{{"all_reduce", fmt::format("ranks={},elements={}", ranks_.size(), count), to_string(DType::fp32)}, "nccl"},
         "gradients.all_reduce",
         {},
         {},
         beside},
        launch);
  }
}

// On each device in a thread of its own, as NCCL wants graphs to be recorded and launched. Where one fails, none waits
// for it, nor, behind `most` seconds, for one that says nothing.
void Trainer::on_all(const std::function<void(Rank&)>& work, double most) {
  if (ranks_.size() == 1 && !communicator_) return work(ranks_.front());
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t left = ranks_.size();
  std::string failure;
  std::exception_ptr as_of_one;  // what is no device's failure ends a training as it does on one
  const auto run = [&](Rank& rank) {
    std::string why;
    std::exception_ptr thrown;
    try {
      rank.platform->make_current();
      work(rank);
    } catch (const std::exception& error) {
      why = fmt::format("device {} of {}: {}", rank.number + 1, ranks_.size(), error.what());
      if (dynamic_cast<const DeviceError*>(&error) == nullptr) thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (failure.empty()) failure = why, as_of_one = thrown;
    --left;
    ended.notify_one();
  };
  const auto begin = Clock::now();
  std::vector<std::jthread> threads;
  for (Rank& rank : ranks_) threads.emplace_back(run, std::ref(rank));
  bool aborted = false;
  auto last = Clock::time_point::max();
  for (std::unique_lock lock(mutex); left > 0 || (!failure.empty() && !aborted);) {
    if (left > 0) ended.wait_for(lock, kBetweenLooks);
    if (communicator_ && failure.empty()) failure = communicator_->failure();
    if (left > 0 && failure.empty() && seconds_since(begin) > most)
      failure = fmt::format("a device does not answer: no step has ended for {:.0f} s", most);
    if (Clock::now() > last) {
      fmt::print(stderr, "\nnoisefloor: {}; another device does not stop waiting for it\n", failure);
      std::_Exit(1);
    }
    if (failure.empty() || aborted) continue;
    aborted = true;
    last = Clock::now() + kToEnd;
    if (communicator_) communicator_->abort();
  }
  threads.clear();
  if (!aborted) return;
  for (Rank& rank : ranks_) rank.recording.reset();
  if (as_of_one) std::rethrow_exception(as_of_one);
  throw RankFailed(failure);
}

void Trainer::break_down(const std::function<void(const Meeting&)>& lead) {
  std::barrier all(std::ssize(ranks_));
  const Meeting meet = communicator_ ? Meeting([&] { all.arrive_and_wait(); }) : Meeting();
  on_all([&](Rank& rank) {
    try {
      if (rank.number == 0) return lead(meet);
      follow_breakdown(
          *rank.platform, [&] { return rank.executor->enqueue(); }, meet);
    } catch (...) {
      all.arrive_and_drop();  // the others meet without it
      throw;
    }
  });
}

std::vector<float> Trainer::first_parameters() const {
  const Graph& graph = training().network.graph;
  std::vector<float> all(static_cast<std::size_t>(training().elements()));
  if (!request_.weights.empty()) {
    Checkpoint checkpoint(request_.weights, training().network.info->folder);
    checkpoint.drop_prefix(*training().network.info);
    checkpoint.check(training().network);
    for (const auto* ids : {&training().slices, &training().factors})
      for (const ValueId id : *ids) {
        const std::span<float> to = part_of(all, graph[id]);
        checkpoint.load(graph[id], {reinterpret_cast<char*>(to.data()), to.size_bytes()});
      }
    return all;
  }
  std::map<std::string, std::int64_t> fan_in;  // of weights, by their names without ".weight"
  const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  for (const ValueId id : training().slices)
    if (const WeightSource& source = *graph[id].source; source.file.size() > 1)
      fan_in[layer(source.name)] = fan_in_of(source.file);
  for (const ValueId id : training().slices) {
    const WeightSource& source = *graph[id].source;
    const auto found = fan_in.find(layer(source.name));
    fill_first_weights(source, found == fan_in.end() ? 0 : found->second, static_cast<std::uint64_t>(recipe().seed),
                       part_of(all, graph[id]));
    if (source.share)  // of blends that begin at 0
      for (float& number : part_of(all, graph[id])) number *= static_cast<float>(source.share->at(0));
  }
  return all;
}

std::vector<float> Trainer::state(ValueId id) const {
  std::vector<float> numbers(static_cast<std::size_t>(training().elements()));
  platform_.download(numbers.data(), ranks_.front().executor->data(id), numbers.size() * sizeof(float));
  return numbers;
}

// Moments that are not there are zero.
void Trainer::set_state(const TrainingState& state) {
  on_all([&](Rank& rank) {
    const Training& t = rank.training;
    const auto set = [&](ValueId id, std::vector<float> numbers) {
      numbers.resize(static_cast<std::size_t>(t.elements()));
      rank.platform->upload(rank.executor->data(id), numbers.data(), numbers.size() * sizeof(float));
    };
    set(t.parameters, state.parameters);
    set(t.m, state.m);
    set(t.v, state.v);
    if (t.ema) set(*t.ema, state.ema);
    if (!t.copies) return;
    std::vector<char> rounded(state.parameters.size() * size_of(dtype_));
    store_floats(dtype_, rounded.data(), 0, std::ssize(state.parameters), state.parameters.data());
    rank.platform->upload(rank.executor->data(*t.copies), rounded.data(), rounded.size());
  });
  taken_ = state.step;
}

std::vector<Trainer::Step> Trainer::take(std::int64_t steps) {
  const std::int64_t count = std::min(steps, kMostAtOnce);
  std::vector<std::array<float, 2>> numbers;
  std::vector<std::array<float, 4>> rates;
  for (std::int64_t i = 1; i <= count; ++i) {
    numbers.push_back(TrainingRecipe::number_of(taken_ + i));
    rates.push_back(recipe().rates_at(taken_ + i));
  }
  const std::size_t parts = training().losses.size();
  // Of each device and step the losses of its micro-batches, in the order of their images, and the norm.
  std::vector<std::vector<float>> results(ranks_.size());
  const auto begin = Clock::now();
  const double slowest = slowest_ > 0 ? slowest_ * static_cast<double>(count) : request_.patience;
  const auto work = [&](Rank& rank) {
    Platform& platform = *rank.platform;
    const Executor& executor = *rank.executor;
    platform.upload(rank.steps.data(), numbers.data(), numbers.size() * sizeof numbers[0]);
    platform.upload(rank.rates.data(), rates.data(), rates.size() * sizeof rates[0]);
    float* result = rank.results.as<float>();
    for (std::int64_t i = 0; i < count; ++i) {
      platform.copy(executor.data(rank.training.step), rank.steps.as<float>() + 2 * i, 2 * sizeof(float));
      platform.copy(executor.data(rank.training.rates), rank.rates.as<float>() + 4 * i, 4 * sizeof(float));
      rank.recording->replay();
      for (const ValueId loss : rank.training.losses) platform.copy(result++, executor.data(loss), sizeof(float));
      platform.copy(result++, executor.data(rank.training.norm), sizeof(float));
    }
    platform.synchronize();
    results[rank.number].resize(static_cast<std::size_t>(count) * (parts + 1));
    platform.download(results[rank.number].data(), rank.results.data(), results[rank.number].size() * sizeof(float));
  };
  on_all(work, std::max(request_.patience, kTimes * slowest));
  slowest_ = std::max(slowest_, seconds_since(begin) / static_cast<double>(count));
  std::vector<Step> taken;
  for (std::size_t first = 0; first < results[0].size(); first += parts + 1) {
    double loss = 0;
    for (const std::vector<float>& of_device : results)
      for (std::size_t part = 0; part < parts; ++part) loss += of_device[first + part];
    loss /= static_cast<double>(results.size() * parts);
    taken.push_back({++taken_, static_cast<float>(loss), results[0][first + parts]});
  }
  return taken;
}

std::string Trainer::gradient_not_finite(const Step& step) {
  if (taken_ > step.number) rewind();
  while (taken_ < step.number) take(step.number - taken_);
  const std::vector<float> gradients = state(training().gradients);
  for (const ValueId id : std::views::reverse(training().slices)) {
    const Value& slice = training().network.graph[id];
    if (!std::ranges::all_of(part_of(gradients, slice), [](float number) { return std::isfinite(number); }))
      return slice.source->name;
  }
  return "";
}

void Trainer::write_weights(const std::filesystem::path& file, const std::filesystem::path& name) const {
  const std::vector<float> numbers = state(training().ema.value_or(training().parameters));
  std::vector<FileTensor> tensors;
  std::deque<std::vector<float>> turned;
  std::map<std::string, double> factors;  // of blends, by their names
  const auto add = [&](const Value& slice) {
    WeightSource source = *slice.source;
    if (source.share) source.times = source.share->at(factors.at(source.share->of));
    source.share.reset();
    turned.push_back(in_file_order(source, part_of(numbers, slice)));
    tensors.push_back(
        {source.name, safetensors_name(DType::fp32), slice.source->file, std::as_bytes(std::span(turned.back()))});
    if (!std::ranges::all_of(turned.back(), [](float number) { return std::isfinite(number); }))
      throw NotFinite(fmt::format("{} is not finite{}", source.name,
                                  slice.source->share ? fmt::format(" without its share of a blend, {:.3g} by {}",
                                                                    source.times, slice.source->share->of)
                                                      : ""));
    return static_cast<double>(turned.back().front());
  };
  const Graph& graph = training().network.graph;
  for (const ValueId id : training().factors) factors[graph[id].source->name] = add(graph[id]);
  for (const ValueId id : training().slices) add(graph[id]);
  if (is_named_as_unetcu(name, *training().network.info)) return write_unetcu(file, tensors, recipe().batch);
  FileMetadata metadata{{"network", request_.network}, {"steps", fmt::format("{}", taken_)}};
  for (const RecipeField& field : recipe_fields())
    if (field.name == std::string_view("batch") || field.name == std::string_view("seed"))
      metadata[field.name] = field.text(recipe());
  write_safetensors(file, tensors, metadata);
}

bool Trainer::states_finite() const {
  const ValueId average = training().ema.value_or(training().parameters);
  return std::ranges::all_of(std::array{training().parameters, training().m, training().v, average}, [&](ValueId id) {
    return std::ranges::all_of(state(id), [](float number) { return std::isfinite(number); });
  });
}

}  // namespace noisefloor::pipeline
