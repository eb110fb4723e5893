// Training on the GPU: a step is a graph, whose numbers are the host's up to rounding and the same again to the bit.
#include "bench/pipeline/trainer.h"

#include <gtest/gtest.h>

#include "bench/pipeline/breakdown.h"
#include "bench/sweep/suite.h"
#include "reports/run/files.h"
#include "tests/support/micro_batches.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::int64_t kSteps = 8;

TrainingData data_of_digits() {
  TrainingData data;
  data.count = 40;
  for (int i = 0; i < 40 * 64; ++i) data.images.push_back(static_cast<float>(i * 37 % 65) / 32 - 1);
  for (int i = 0; i < 40; ++i) data.labels.push_back(static_cast<float>(i % 10));
  return data;
}

TrainerRequest request_of(DType dtype) {
  TrainerRequest request{.network = "digits", .recipe = recipe_of("digits"), .dtype = dtype};
  request.recipe.batch = 16;
  request.recipe.steps = kSteps;
  return request;
}

std::vector<float> losses_of(Trainer& trainer, std::int64_t steps) {
  std::vector<float> losses;
  for (const Trainer::Step& step : trainer.take(steps)) {
    losses.push_back(step.loss);
    EXPECT_TRUE(step.finite()) << step.number;
  }
  return losses;
}

TrainerRequest small_request(const char* network, DType dtype) {
  TrainerRequest request{.network = network, .recipe = recipe_of(network), .dtype = dtype};
  request.recipe.batch = 2;
  request.recipe.steps = 3;
  request.recipe.warm_up = 0;
  return request;
}

class TrainerOnGpu : public testing::Test {
 protected:
  std::unique_ptr<Platform> gpu_ = make_cuda_platform(0);
};

TEST_F(TrainerOnGpu, StepsAreTheHosts) {
  const std::unique_ptr<Platform> host = make_host_platform();
  Trainer expected(request_of(DType::fp32), data_of_digits(), {*host, suite()});
  const std::vector<float> losses = losses_of(expected, kSteps);
  for (const auto& [dtype, tolerance] : {std::pair{DType::fp32, 2e-3f}, {DType::bf16, 3e-2f}}) {
    Trainer trainer(request_of(dtype), data_of_digits(), {*gpu_, suite()});
    const std::vector<float> found = losses_of(trainer, kSteps);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(found[i], losses[i], tolerance * losses[i]) << to_string(dtype) << " step " << i + 1;
  }
}

TEST_F(TrainerOnGpu, OtherNetworksTakeTheHostsSteps) {
  const std::unique_ptr<Platform> host = make_host_platform();
  for (const char* network : {"mnist-unet", "moving-digits", "unetcu"}) {
    SCOPED_TRACE(network);
    const TrainingData data = read_training_data(std::vector<std::string>{kGenerated}, require_network(network));
    Trainer expected(small_request(network, DType::fp32), data, {*host, suite()});
    const std::vector<float> losses = losses_of(expected, 3);
    for (const auto& [dtype, tolerance] : {std::pair{DType::fp32, 2e-3f}, {DType::bf16, 3e-2f}}) {
      TrainerRequest request = small_request(network, dtype);
      if (dtype == DType::fp32) request.plan = "naive";  // which measures nothing
      Trainer trainer(request, data, {*gpu_, suite()});
      const std::vector<float> found = losses_of(trainer, 3);
      for (std::size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(found[i], losses[i], tolerance * losses[i]) << to_string(dtype) << " step " << i + 1;
    }
  }
}

// One by one or together, under one plan, before and behind a checkpoint.
TEST_F(TrainerOnGpu, StepsAreTheSameToTheBit) {
  const TemporaryFolder folder;
  TrainerRequest request = request_of(DType::bf16);
  Trainer whole(request, data_of_digits(), {*gpu_, suite()});
  whole.write_checkpoint(folder / "beginning");
  const std::vector<float> losses = losses_of(whole, kSteps);
  request.resume = folder / "beginning";
  Trainer again(request, data_of_digits(), {*gpu_, suite()});
  std::vector<float> found;
  for (int step = 0; step < 3; ++step) found.push_back(losses_of(again, 1).front());
  again.write_checkpoint(folder / "middle");
  request.resume = folder / "middle";
  Trainer resumed(request, data_of_digits(), {*gpu_, suite()});
  EXPECT_EQ(resumed.taken(), 3);
  for (const float loss : losses_of(resumed, kSteps - 3)) found.push_back(loss);
  EXPECT_EQ(found, losses);
}

// Two devices' shares of a step, one behind the other on one.
TEST_F(TrainerOnGpu, SharesAddUpToMicroBatches) {
  for (const char* network : {"digits", "unetcu"})
    for (const auto& [dtype, tolerance] : {std::pair{DType::fp32, 1e-4}, {DType::bf16, 2e-2}})
      expect_sums_of_shares(*gpu_, require_network(network), dtype, tolerance);
}

class TrainerOnGpus : public TrainerOnGpu {
 protected:
  void SetUp() override {
    try {
      require_nccl();
    } catch (const InvalidInput& error) {
      GTEST_SKIP() << error.what();
    }
  }
  // Of devices from 0 on, beginning with what `first`, on the first, begins with, and its variants.
  std::unique_ptr<Trainer> beside(Trainer& first, TrainerRequest request, std::span<const int> numbers,
                                  Trainer::Connect connect = {}) {
    first.write_checkpoint(folder_ / "beginning");
    request.resume = folder_ / "beginning";
    request.plan = "naive";  // of what has another batch
    std::vector<Device> devices;
    for (const int number : numbers) devices.push_back({*others_.emplace_back(make_cuda_platform(number)), suite()});
    if (!connect) connect = [=] { return make_nccl(numbers); };
    return std::make_unique<Trainer>(request, data_of_digits(), devices, connect);
  }
  std::vector<std::unique_ptr<Platform>> others_;
  TemporaryFolder folder_;
};

// NCCL's, but for one of the second device's: it fails, or is left out in silence, and the first GPU waits for it.
class OneSumMissing final : public Communicator {
 public:
  OneSumMissing(std::span<const int> devices, int missing, Status status)
      : nccl_(make_nccl(devices)), left_(missing), status_(status) {}
  Buffer memory(std::size_t rank, Platform& platform, std::size_t bytes) override {
    return nccl_->memory(rank, platform, bytes);
  }
  Status sum(std::size_t rank, float* numbers, std::int64_t count, Stream stream) override {
    if (rank == 1 && --left_ == 0) return status_;
    return nccl_->sum(rank, numbers, count, stream);
  }
  std::string failure() override { return nccl_->failure(); }
  void abort() override { nccl_->abort(); }

 private:
  std::unique_ptr<Communicator> nccl_;
  int left_;
  Status status_;
};

TEST_F(TrainerOnGpus, NcclOfOneRankChangesNoBit) {
  Trainer alone(request_of(DType::bf16), data_of_digits(), {*gpu_, suite()});
  const int numbers[] = {0};
  TrainerRequest request = request_of(DType::bf16);
  const auto one = beside(alone, request, numbers);
  request.bucket = alone.training().elements() / 4 + 1;  // summed under the backward pass
  const auto in_buckets = beside(alone, request, numbers);
  const std::vector<float> losses = losses_of(alone, kSteps);
  EXPECT_EQ(losses_of(*one, kSteps), losses);
  EXPECT_EQ(losses_of(*in_buckets, kSteps), losses);
}

TEST_F(TrainerOnGpus, TwoDevicesTakeTheStepsOfTwoMicroBatches) {
  std::string why;
  if (cuda_device_count(why) < 2) GTEST_SKIP() << "needs two GPUs";
  TrainerRequest request = request_of(DType::bf16);
  request.accumulate = 2;
  Trainer split(request, data_of_digits(), {*gpu_, suite()});
  request.accumulate = 1;
  request.bucket = split.training().elements() / 4 + 1;
  const int numbers[] = {0, 1};
  const auto two = beside(split, request, numbers);
  EXPECT_EQ(two->note(), "");
  EXPECT_EQ(losses_of(*two, 3), losses_of(split, 3));  // of three steps, and then of five more
  EXPECT_EQ(losses_of(*two, kSteps - 3), losses_of(split, kSteps - 3));
  two->write_weights(folder_ / "two");
  split.write_weights(folder_ / "split");
  EXPECT_EQ(read_whole_file(folder_ / "two"), read_whole_file(folder_ / "split"));
  two->break_down([&](const Meeting& meet) {
    const Breakdown times = measure_breakdown(
        *others_.front(), two->executor(), [&] { return two->executor().enqueue(); }, "", meet);
    const auto found = std::ranges::find(times.labels, "all_reduce", &LaunchLabel::op);
    ASSERT_NE(found, times.labels.end());
    EXPECT_GT(times.together.launches[static_cast<std::size_t>(found - times.labels.begin())].kernel_us, 1);
  });
}

TEST_F(TrainerOnGpus, OfWhichOneFailsOrIsSilentEnd) {
  std::string why;
  if (cuda_device_count(why) < 2) GTEST_SKIP() << "needs two GPUs";
  TrainerRequest request = request_of(DType::bf16);
  request.plan = "naive";  // which measures nothing
  Trainer first(request, data_of_digits(), {*gpu_, suite()});
  request.patience = 1;  // ten times as long for the first step
  const int numbers[] = {0, 1};
  constexpr int kConnecting = 1, kRecorded = 2;
  for (const auto& [missing, status, says] :
       {std::tuple{kConnecting, Status{StatusCode::cuda_error, "the sum", 0}, "device 2 of 2: the sum"},
        {kRecorded, success(), "does not answer"}}) {
    const auto connect = [&] { return std::make_unique<OneSumMissing>(numbers, missing, status); };
    try {
      beside(first, request, numbers, connect)->take(1);
      ADD_FAILURE() << says;
    } catch (const RankFailed& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
