// Training: recipes, checkpoints, weights as files have them, and steps that are taken again to the bit.
#include "bench/pipeline/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <numbers>
#include <sstream>

#include "bench/sweep/suite.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

constexpr const char* kShipped = "bench/pipeline/weights/digits.safetensors";

const RecipeField& field(std::string_view name) {
  return *std::ranges::find(recipe_fields(), name, [](const RecipeField& one) { return std::string_view(one.name); });
}

// As baselines/pytorch/digits/train.py has them.
TEST(TrainingRecipe, DigitsFollowTheScript) {
  const TrainingRecipe& recipe = recipe_of("digits");
  for (const std::int64_t step : {1, 100, 200, 2000, 4000}) {
    const double now = static_cast<double>(step);
    const double decay = 0.55 + 0.45 * std::cos(std::numbers::pi * now / 4000);
    EXPECT_NEAR(recipe.rate_at(step), 1e-3 * std::min(1.0, now / 200) * decay, 1e-12);
    EXPECT_NEAR(recipe.ema_kept_at(step), std::pow(0.5, 1 / std::min(500.0, now / 10 + 1)), 1e-12);
  }
  const auto [rate, first, second, kept] = recipe.rates_at(1);
  EXPECT_NEAR(first, 10, 1e-4);
  EXPECT_NEAR(second, 100, 1e-2);
  EXPECT_EQ(TrainingRecipe::number_of(65537 + 65536), (std::array<float, 2>{1, 2}));
  expect_parts(refusal_of([] { return recipe_of("sdxl"); }), {"sdxl", "digits"});
}

TEST(TrainingRecipe, NumbersHaveTheirRanges) {
  TrainingRecipe recipe;
  const auto refuses = [&](const char* name, const std::string& option, std::initializer_list<const char*> texts) {
    for (const char* text : texts)
      expect_parts(refusal_of([&] { return field(name).set(recipe, text), 0; }), {option, text, "range"});
  };
  refuses("rate", "--rate", {"-1", "nan", "0", "inf", "1e-3x"});
  refuses("steps", "--steps", {"0", "1.5"});
  refuses("batch", "--batch", {"-3", ""});
  refuses("beta1", "--betas", {"1"});
  refuses("unlabelled", "--unlabelled", {"1.1"});
  refuses("seed", "--seed", {"-1"});
  field("rate").set(recipe, "2e-3");
  field("steps").set(recipe, "7");
  EXPECT_EQ(recipe.rate, 2e-3);
  EXPECT_EQ(field("steps").text(recipe), "7");
}

TEST(TrainedWeights, GoBackIntoTheFilesOrder) {
  const WeightSource embedding{.name = "table", .file = {2, 3}, .layout = WeightSource::Layout::transposed};
  EXPECT_EQ(in_file_order(embedding, std::vector<float>{0, 10, 1, 11, 2, 12}),
            (std::vector<float>{0, 1, 2, 10, 11, 12}));
  // [cin, cout, 2, 2] of a transposed convolution: cin 2, cout 1; here its taps come first.
  const WeightSource up{.name = "up", .file = {2, 1, 2, 2}, .layout = WeightSource::Layout::transposed};
  EXPECT_EQ(in_file_order(up, std::vector<float>{0, 10, 1, 11, 2, 12, 3, 13}),
            (std::vector<float>{0, 1, 2, 3, 10, 11, 12, 13}));
}

TEST(TrainedWeights, BeginAsPyTorchsLayers) {
  std::vector<float> numbers(3000), again(3000), other(3000), norm(3);
  const WeightSource weight{.name = "a.weight", .file = {}}, bias{.name = "a.bias", .file = {}};
  fill_first_weights(weight, 100, 1, numbers);
  fill_first_weights(weight, 100, 1, again);
  fill_first_weights(weight, 100, 2, other);
  EXPECT_EQ(numbers, again);
  EXPECT_NE(numbers, other);
  const auto [least, most] = std::ranges::minmax(numbers);
  EXPECT_GE(least, -0.1f);
  EXPECT_LE(most, 0.1f);
  EXPECT_LT(least, -0.099f);
  EXPECT_GT(most, 0.099f);
  fill_first_weights(weight, 0, 1, norm);
  EXPECT_EQ(norm, (std::vector<float>{1, 1, 1}));
  fill_first_weights(bias, 0, 1, norm);
  EXPECT_EQ(norm, (std::vector<float>{0, 0, 0}));
}

TEST(UnetcuFiles, HoldTheParametersInTheOrderOfItsModules) {
  const TemporaryFolder folder;
  const auto file = folder / "weights.bin";
  const Network network = require_network("unetcu").build({.dtype = DType::fp32});
  std::vector<FileTensor> tensors;
  std::deque<std::vector<float>> numbers;
  float value = 0;
  for (const auto& [name, shape] : checkpoint_of(network.graph)) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    numbers.emplace_back(static_cast<std::size_t>(elements), value += 1);
    tensors.push_back({name, "F32", shape, std::as_bytes(std::span(numbers.back()))});
  }
  write_unetcu(file, tensors, 7);
  EXPECT_TRUE(is_unetcu_file(file, kUnetcuWeights));
  EXPECT_EQ(std::filesystem::file_size(file), 1024u + 4u * 20'494'211u);
  Checkpoint checkpoint(file);
  checkpoint.check(network);
  for (const FileTensor& tensor : tensors) {
    const auto read = checkpoint.find(tensor.name)->file->read(*checkpoint.find(tensor.name)->tensor);
    EXPECT_TRUE(std::ranges::equal(read, tensor.data)) << tensor.name;
  }
  const std::vector<const FileTensor*> order = checkpoint.tensors();
  const char* const first[] = {"time_embed.0.weight",           "time_embed.0.bias",
                               "time_embed.2.weight",           "time_embed.2.bias",
                               "input_blocks.0.0.weight",       "input_blocks.0.0.bias",
                               "input_blocks.1.0.gn1.weight",   "input_blocks.1.0.gn1.bias",
                               "input_blocks.1.0.cv3_1.weight", "input_blocks.1.0.cv3_1.bias",
                               "input_blocks.1.0.l_emb.weight"};
  for (std::size_t i = 0; i < std::size(first); ++i) EXPECT_EQ(order[i]->name, first[i]);
  EXPECT_EQ(order.back()->name, "out.2.bias");

  const auto refusal = [&] { return refusal_of([&] { return Checkpoint(file).path(); }); };
  const auto patch = [&](std::streamoff place, std::int32_t number) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(4 * place);
    stream.write(reinterpret_cast<const char*>(&number), sizeof number);
  };
  patch(3, 32);
  expect_parts(refusal(), {"weights.bin", "C_model", "32", "64"});
  patch(3, 64), patch(8, 1);
  expect_parts(refusal(), {"weights.bin", "bytes"});
  std::filesystem::resize_file(file, 1024 + 3 * 4 * 20'494'211);  // with AdamW's states
  EXPECT_EQ(refusal(), "");
  patch(9, 1);
  std::filesystem::resize_file(file, 1024 + 3 * 4 * 20'494'211 + 48);  // and the generator's
  EXPECT_EQ(refusal(), "");
  std::filesystem::resize_file(file, 5000);
  expect_parts(refusal(), {"weights.bin", "time_embed.0.weight"});
  std::filesystem::resize_file(file, 500);
  expect_parts(refusal(), {"weights.bin", "header"});
}

class TrainingCheckpoints : public testing::Test {
 protected:
  std::string refusal(const FileMetadata& identity = kIdentity, std::int64_t elements = 2) const {
    return refusal_of([&] { return read_training(file_, identity, elements); });
  }
  static inline const FileMetadata kIdentity{{"network", "digits"}, {"--rate", "0.001"}};
  TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "checkpoint";
  StoredTraining stored_{{7, {1, 2}, {3, 4}, {5, 6}, {7, 8}},
                         "this device",
                         "this commit",
                         {{{"gemm", "m=1,n=2,k=3", "fp32"}, "host"}},
                         ""};
};

TEST_F(TrainingCheckpoints, OfSomethingElseAreRefused) {
  write_training(file_, stored_, kIdentity);
  EXPECT_EQ(read_training(file_, kIdentity, 2).plan, stored_.plan);
  expect_parts(refusal({{"network", "digits"}, {"--rate", "0.002"}}), {"--rate", "0.001", "0.002"});
  expect_parts(refusal({{"network", "other"}, {"--rate", "0.001"}}), {"network", "digits", "other"});
  expect_parts(refusal({{"network", "digits"}, {"--new", "1"}}), {"--new", "nothing there", "1"});
  expect_parts(refusal(kIdentity, 3), {"parameters", "F32 [3]"});
  write_safetensors(file_, {}, {{"noisefloor training checkpoint", "3"}});
  expect_parts(refusal(), {"schema 3"});
  write_safetensors(file_, {}, {{"network", "digits"}});
  expect_parts(refusal(), {"no training checkpoint", "--weights"});
  stored_.state.v[1] = NAN;
  write_training(file_, stored_, kIdentity);
  expect_parts(refusal(), {"v ", "not finite"});
  stored_.state.v[1] = -1e-9f;
  write_training(file_, stored_, kIdentity);
  expect_parts(refusal(), {"v ", "below 0"});
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 4);
  expect_parts(refusal(), {file_.string()});
}

// But for blanks that fill up the header.
TEST_F(TrainingCheckpoints, WithAnyBitOtherAreRefused) {
  write_training(file_, stored_, kIdentity);
  const auto size = std::filesystem::file_size(file_);
  std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
  int taken = 0;
  for (std::uintmax_t bit = 0; bit < 8 * size; ++bit) {
    const auto flip = [&] {
      char byte = 0;
      file.seekg(static_cast<std::streamoff>(bit / 8)).get(byte);
      file.seekp(static_cast<std::streamoff>(bit / 8)).put(static_cast<char>(byte ^ 1 << bit % 8)).flush();
    };
    flip();
    if (refusal().empty()) {
      const StoredTraining read = read_training(file_, kIdentity, 2);
      EXPECT_EQ(std::tie(read.state.step, read.state.parameters, read.state.m, read.state.v, read.state.ema, read.plan),
                std::tie(stored_.state.step, stored_.state.parameters, stored_.state.m, stored_.state.v,
                         stored_.state.ema, stored_.plan))
          << "bit " << bit << " of " << size << " bytes";
      ++taken;
    }
    flip();
  }
  EXPECT_LT(taken, 8);  // the header has at most seven of them
}

// ---- whole trainings of digits, on the host

TrainingData some_digits() {
  TrainingData data;
  data.count = 20;
  for (int i = 0; i < 20 * 64; ++i) data.images.push_back(static_cast<float>(i * 37 % 65) / 32 - 1);
  for (int i = 0; i < 20; ++i) data.labels.push_back(static_cast<float>(i % 10));
  return data;
}

class Trainings : public testing::Test {
 protected:
  TrainerRequest request(std::int64_t seed = 3) const {
    TrainerRequest all{.network = "digits", .recipe = recipe_of("digits"), .dtype = DType::fp32};
    all.recipe.batch = 4;
    all.recipe.steps = 6;
    all.recipe.seed = seed;
    return all;
  }
  std::unique_ptr<Trainer> trainer(const TrainerRequest& asked) {
    return std::make_unique<Trainer>(asked, some_digits(), Device{*platform_, suite()});
  }
  std::string bytes_of(const Trainer& trainer) const {
    trainer.write_weights(folder_ / "weights");
    const std::ifstream file(folder_ / "weights", std::ios::binary);
    return (std::ostringstream() << file.rdbuf()).str();
  }
  // On two devices, each a host.
  std::unique_ptr<Trainer> of_two(const TrainerRequest& asked, const Trainer::Connect& connect) {
    const Device devices[] = {{*platform_, suite()}, {*other_, suite()}};
    return std::make_unique<Trainer>(asked, some_digits(), devices, connect);
  }
  static std::vector<float> losses(const std::vector<Trainer::Step>& steps) {
    std::vector<float> all;
    for (const Trainer::Step& step : steps) all.push_back(step.loss);
    return all;
  }
  TemporaryFolder folder_;
  std::unique_ptr<Platform> platform_ = make_host_platform(), other_ = make_host_platform();
};

// Two threads of the host meet. In the sum of number `at` the second one fails, says nothing any more, or what it gives
// is not finite.
class HostRanks final : public Communicator {
 public:
  enum class Trouble { none, fails, needs_memory, gives_nan, is_noticed, hangs };
  explicit HostRanks(Trouble trouble = Trouble::none, int at = 3) : trouble_(trouble), at_(at) {}

  Status sum(std::size_t rank, float* numbers, std::int64_t count, Stream) override {
    std::unique_lock lock(mutex_);
    const bool now = rank == 1 && ++sums_ == at_;
    if (now && trouble_ == Trouble::fails) return {StatusCode::cuda_error, "the sum", 0};
    if (now && trouble_ == Trouble::needs_memory) return {StatusCode::out_of_memory, "the sum", 0};
    if (now && (trouble_ == Trouble::is_noticed || trouble_ == Trouble::hangs)) {
      if (trouble_ == Trouble::is_noticed) failure_ = "a link is down";
      met_.wait(lock, [&] { return aborted_; });
    }
    if (now && trouble_ == Trouble::gives_nan) numbers[7] = NAN;
    if (sum_.empty()) {
      sum_.assign(numbers, numbers + count);
      met_.wait(lock, [&] { return summed_ || aborted_; });
      std::ranges::copy(sum_, numbers);
      sum_.clear(), summed_ = false;
    } else {
      for (std::int64_t i = 0; i < count; ++i) numbers[i] = sum_[static_cast<std::size_t>(i)] += numbers[i];
      summed_ = true;
    }
    met_.notify_all();
    met_.wait(lock, [&] { return !summed_ || aborted_; });
    return success();
  }
  std::string failure() override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  int sums() const { return sums_; }
  void abort() override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    met_.notify_all();
  }

 private:
  Trouble trouble_;
  int at_, sums_ = 0;
  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<float> sum_;
  bool summed_ = false, aborted_ = false;
  std::string failure_;
};
Trainer::Connect ranks(HostRanks::Trouble trouble = HostRanks::Trouble::none) {
  return [=] { return std::make_unique<HostRanks>(trouble); };
}

TEST_F(Trainings, AreTheSameOnTwoDevicesAndInTwoMicroBatches) {
  TrainerRequest asked = request();
  asked.accumulate = 2;
  const auto split = trainer(asked);
  const auto steps = split->take(3);
  asked.accumulate = 1;
  const auto two = of_two(asked, ranks());
  two->write_checkpoint(folder_ / "checkpoint");
  EXPECT_EQ(losses(two->take(3)), losses(steps));
  EXPECT_NE(losses(trainer(request(4))->take(3)), losses(steps)) << "of another seed";
  EXPECT_EQ(bytes_of(*two), bytes_of(*split));
  asked.resume = folder_ / "checkpoint";
  const auto whole = trainer(asked);
  EXPECT_NE(whole->note().find("2 micro-batches"), std::string::npos) << whole->note();
  const auto others = whole->take(3);
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_NEAR(others[i].loss, steps[i].loss, 1e-4f * steps[i].loss);
  asked.accumulate = 2;
  const auto resumed = trainer(asked);
  EXPECT_EQ(resumed->note(), "");
  EXPECT_EQ(losses(resumed->take(3)), losses(steps));
  EXPECT_TRUE(of_two(asked, ranks())->take(1)[0].finite());
  asked.accumulate = 3;
  expect_parts(refusal_of([&] { return trainer(asked); }), {"--batch 4", "--accumulate", "multiple of 3"});
}

TEST(Buckets, GrowFromTheFirstLayers) {
  constexpr std::int64_t kMiB = 1 << 18, kMost = 256 * kMiB;  // elements
  EXPECT_EQ(buckets_of(295'913'600, kMost),                   // adm64's
            (std::vector{16 * kMiB, 16 * kMiB, 32 * kMiB, 64 * kMiB, 128 * kMiB, kMost, kMost, kMost,
                         std::int64_t{27'478'144}}));
  EXPECT_EQ(buckets_of(1'000'000, kMost), std::vector<std::int64_t>{1'000'000});
  EXPECT_EQ(buckets_of(10, 4), (std::vector<std::int64_t>{4, 4, 2}));
}

TEST_F(Trainings, SumGradientsInBuckets) {
  const auto whole = of_two(request(), ranks());
  const auto steps = losses(whole->take(2));
  TrainerRequest asked = request();
  asked.bucket = whole->training().elements() / 4 + 1;
  HostRanks* meeting = nullptr;
  const auto two = of_two(asked, [&] {
    auto made = std::make_unique<HostRanks>();
    meeting = made.get();
    return made;
  });
  EXPECT_EQ(losses(two->take(2)), steps);
  EXPECT_EQ(meeting->sums(), 1 + 2 * 4);
  EXPECT_EQ(bytes_of(*two), bytes_of(*whole));
}

TEST_F(Trainings, OfTwoDevicesEndWithOne) {
  TrainerRequest asked = request();
  asked.patience = 1;  // ten times as long for the first step
  for (const auto& [trouble, says] : {std::pair{HostRanks::Trouble::fails, "device 2 of 2: the sum"},
                                      {HostRanks::Trouble::is_noticed, "a link is down"},
                                      {HostRanks::Trouble::hangs, "does not answer"}}) {
    const auto two = of_two(asked, ranks(trouble));
    two->take(1);
    try {
      two->take(2);
      ADD_FAILURE() << says;
    } catch (const RankFailed& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
  const auto without_memory = of_two(request(), ranks(HostRanks::Trouble::needs_memory));
  without_memory->take(1);
  EXPECT_THROW(without_memory->take(2), OutOfMemory);  // as on one device
  const auto two = of_two(request(), ranks(HostRanks::Trouble::gives_nan));
  const auto steps = two->take(2);
  EXPECT_TRUE(steps[0].finite());
  EXPECT_FALSE(steps[1].finite());
  EXPECT_FALSE(two->states_finite());
}

// As a variant that runs fewer problems than it did when the checkpoint was written.
struct Narrower final : Implementation {
  Narrower() {
    name = "narrower";
    kind = to_string(Kind::host);
    on_host = true;
  }
  Support can_run(const AnyProblem&, DType) const override { return unsupported("needs less: see host"); }
  std::unique_ptr<Ready> make(Platform&, const AnyProblem&, DType, KnownTimes&) const override { return nullptr; }
};

TEST_F(Trainings, SayWhatRoundsOtherwiseFromHereOn) {
  const auto begun = trainer(request());
  begun->write_checkpoint(folder_ / "checkpoint");
  const SafetensorsFile file(folder_ / "checkpoint");
  FileMetadata identity = file.metadata();
  for (const char* of_state : {"noisefloor training checkpoint", "digest", "step", "device", "commit", "plan",
                               "layout of the states", "micro-batches"})
    ASSERT_EQ(identity.erase(of_state), 1u) << of_state;
  const StoredTraining stored = read_training(folder_ / "checkpoint", identity, file.tensors().front().shape.front());
  TrainerRequest again = request();
  again.resume = folder_ / "changed";
  const auto change = [&](const auto& by) {
    StoredTraining changed = stored;
    by(changed);
    write_training(folder_ / "changed", changed, identity);
  };
  const auto choose = [&](const std::string& another) {
    change([&](StoredTraining& changed) {
      const auto host = std::ranges::find_if(changed.plan, [](const auto& choice) { return choice.second == "host"; });
      ASSERT_NE(host, changed.plan.end());
      host->second = another;
    });
  };
  change([](StoredTraining& changed) { changed.commit = "another commit"; });
  EXPECT_NE(trainer(again)->note().find("another commit"), std::string::npos);
  change([](StoredTraining& changed) { changed.device.insert(changed.device.find(" core"), "9"); });
  EXPECT_EQ(trainer(again)->note(), "");  // another number of threads: the same bits
  change([](StoredTraining& changed) { changed.device = "another device"; });
  EXPECT_NE(trainer(again)->note().find("another device"), std::string::npos);
  choose("naive");
  EXPECT_NE(trainer(again)->note().find("naive"), std::string::npos);
  choose("gone");
  const auto resumed = trainer(again);
  EXPECT_NE(resumed->note().find("gone"), std::string::npos) << resumed->note();
  EXPECT_TRUE(resumed->take(1)[0].finite());
  choose("narrower");
  Suite nodes = suite();
  for (const SuiteEntry& entry : suite().entries()) nodes.add(entry.name(), std::make_shared<Narrower>());
  expect_parts(Trainer(again, some_digits(), Device{*platform_, nodes}).note(), {"narrower", "needs less: see host"});
  change([](StoredTraining& changed) { changed.state.step = 7; });
  expect_parts(refusal_of([&] { return trainer(again); }), {"step", "7", "6"});
}

TEST_F(Trainings, GoBackToWhereTheyWereKept) {
  const auto begun = trainer(request());
  (void)begun->take(2);
  begun->keep();
  const auto steps = losses(begun->take(2));
  begun->rewind();
  EXPECT_EQ(begun->taken(), 2);
  EXPECT_EQ(losses(begun->take(2)), steps);
}

TEST_F(Trainings, AreTheSameWithRecomputation) {
  TrainerRequest asked = request();
  asked.recipe.batch = 64;  // activations of a MiB
  const auto kept = trainer(asked);
  asked.recompute = true;
  const auto again = trainer(asked);
  EXPECT_GT(again->training().network.graph.nodes().size(), kept->training().network.graph.nodes().size() + 10);
  EXPECT_EQ(losses(again->take(2)), losses(kept->take(2)));
  EXPECT_EQ(bytes_of(*again), bytes_of(*kept));
}

}  // namespace
}  // namespace noisefloor::pipeline
