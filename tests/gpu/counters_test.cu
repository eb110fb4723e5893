// What is measured about a launch, against launches whose cost is known: counters, resources, clocks, ceilings.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "bench/ceilings/ceilings.h"
#include "bench/counters/kernel_resources.h"
#include "bench/counters/range_profiler.h"
#include "bench/platform/clocks.h"
#include "bench/platform/nvml.h"
#include "kernels/device/launch.cuh"
#include "tests/support/first_gpu.h"

namespace noisefloor {
namespace {

constexpr int kCountedThreads = 256;

__global__ void copy_vectors_kernel(const uint4* in, uint4* out) {
  const std::size_t i = std::size_t{blockIdx.x} * kCountedThreads + threadIdx.x;
  out[i] = in[i];
}

__global__ void fill_kernel(uint4* out) {
  const auto i = blockIdx.x * kCountedThreads + threadIdx.x;
  out[i] = make_uint4(i * 2654435761u, ~i, i ^ 0x5bd1e995u, i * 31u);
}

__global__ void __launch_bounds__(kCountedThreads) shared_kernel(float* out) {
  extern __shared__ float dynamic[];
  __shared__ float fixed[1024];
  dynamic[threadIdx.x] = out[threadIdx.x];
  fixed[threadIdx.x] = out[threadIdx.x + 1];
  __syncthreads();
  out[threadIdx.x] = dynamic[kCountedThreads - 1 - threadIdx.x] + fixed[threadIdx.x ^ 1];
}

struct Counters : testing::Test {
  void SetUp() override {
    const CounterProbe probe = probe_counters();
    if (probe.status != CounterStatus::ok) GTEST_SKIP() << to_string(probe.status) << ": " << probe.message;
  }
};

constexpr std::size_t kLarge = std::size_t{1} << 30, kSmall = std::size_t{1} << 28;  // both past any L2

// A copy whose source was just written, once a pass.
std::map<std::string, double> count_copy(RangeProfiler& profiler, const Buffer& from, const Buffer& to,
                                         std::size_t bytes) {
  const auto blocks = static_cast<unsigned>(bytes / sizeof(uint4) / kCountedThreads);
  int passes = 0;
  auto counted = profiler.measure(
      [&](int pass) {
        EXPECT_EQ(pass, passes++);
        fill_kernel<<<blocks, kCountedThreads>>>(from.as<uint4>());
      },
      [&] { copy_vectors_kernel<<<blocks, kCountedThreads>>>(from.as<uint4>(), to.as<uint4>()); });
  EXPECT_EQ(passes, 1);
  return counted;
}

// What was in L2 before need not be read, and what is in it afterwards is not written yet.
void expect_copy(const std::map<std::string, double>& counted, std::size_t bytes) {
  int l2_bytes = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0), cudaSuccess);
  ASSERT_LT(2.0 * l2_bytes, kLarge - kSmall);  // else the two copies could be taken for each other
  EXPECT_NEAR(counted.at("dram_read_bytes"), bytes, l2_bytes);
  EXPECT_NEAR(counted.at("dram_write_bytes"), bytes, l2_bytes);
  EXPECT_GE(counted.at("l2_bytes"), 2.0 * static_cast<double>(bytes));
  EXPECT_EQ(counted.size(), kRowMetrics.size());
  EXPECT_GT(counted.at("occupancy_pct"), 30);
  EXPECT_LE(counted.at("occupancy_pct"), 100);
  EXPECT_EQ(counted.at("tensor_pipe_pct"), 0);
}

// As the rows of a sweep are counted: one profiler after another on what the first one made.
TEST_F(Counters, EachProfilerCountsItsOwnLaunch) {
  const Buffer from(device(), kLarge), to(device(), kLarge);
  for (const std::size_t bytes : {kLarge, kSmall, kLarge}) {
    const auto profiler = open_range_profiler();
    EXPECT_THROW(open_range_profiler(), CountersUnavailable);  // one at a time
    expect_copy(count_copy(*profiler, from, to, bytes), bytes);
  }
  const auto profiler = open_range_profiler();
  expect_copy(count_copy(*profiler, from, to, kSmall), kSmall);
  expect_copy(count_copy(*profiler, from, to, kLarge), kLarge);  // two of one profiler
  expect_copy(count_copy(*profiler, from, to, kSmall), kSmall);
}

// Of a launch on a stream of its own.
std::vector<KernelResources> resources_of(const std::function<Status(Stream)>& enqueue) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const std::unique_ptr<CUstream_st, decltype(&cudaStreamDestroy)> owner(stream, cudaStreamDestroy);
  return kernel_resources(stream, [&] { return enqueue(stream); });
}

TEST(KernelResources, AreThoseOfTheLaunch) {
  const Buffer buffer(device(), 1 << 20);
  constexpr int kDynamic = 8192;
  const auto kernels = resources_of([&](Stream stream) {
    shared_kernel<<<dim3(3, 2, 1), kCountedThreads, kDynamic, stream>>>(buffer.as<float>());
    copy_vectors_kernel<<<1, kCountedThreads, 0, stream>>>(buffer.as<uint4>(), buffer.as<uint4>() + kCountedThreads);
    return success();
  });
  ASSERT_EQ(kernels.size(), 2u);
  const KernelResources& shared = kernels[0];
  EXPECT_NE(shared.name.find("shared_kernel"), std::string::npos) << shared.name;
  EXPECT_EQ(shared.grid, (std::array<unsigned, 3>{3, 2, 1}));
  EXPECT_EQ(shared.block, (std::array<unsigned, 3>{kCountedThreads, 1, 1}));
  EXPECT_EQ(shared.static_shared_bytes, 4096u);
  EXPECT_EQ(shared.dynamic_shared_bytes, static_cast<std::size_t>(kDynamic));
  cudaFuncAttributes attributes;
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, shared_kernel), cudaSuccess);
  EXPECT_EQ(shared.registers, attributes.numRegs);
  EXPECT_EQ(shared.local_bytes, attributes.localSizeBytes);
  int blocks = 0;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared_kernel, kCountedThreads, kDynamic),
            cudaSuccess);
  EXPECT_EQ(shared.blocks_per_sm, blocks);
  EXPECT_GT(shared.occupancy_limit_pct, 0);
  EXPECT_LE(shared.occupancy_limit_pct, 100);
  EXPECT_FALSE(shared.occupancy_limiter.empty()) << "one more block exceeds something";
  EXPECT_GT(shared.waves, 0);
  EXPECT_EQ(dominant_kernel(kernels), &kernels[0]);
}

TEST(KernelResources, OrdinaryEdgesAreThoseOfALaunchInASeries) {
  const Buffer buffer(device(), 1 << 20);
  auto* const data = buffer.as<uint4>();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const auto launches = [&](int count, bool programmatic) {
    return ordinary_edges(stream, [&] {
      for (int i = 0; i < count; ++i) {
        // The first follows the launch before in the ordinary way.
        const LaunchShape shape{.grid = 1, .block = kCountedThreads, .programmatic = programmatic && i > 0};
        EXPECT_TRUE(launch_kernel("fill_kernel", fill_kernel, shape, stream, data).ok());
      }
      return success();
    });
  };
  EXPECT_EQ(launches(1, false), 1);
  EXPECT_EQ(launches(3, false), 3);
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  if (properties.major >= 9) EXPECT_EQ(launches(3, true), 1);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(KernelResources, LaunchThatCannotBeCapturedIsRefused) {
  EXPECT_THROW(resources_of([](Stream stream) {
                 cudaStreamSynchronize(stream);
                 return success();
               }),
               std::runtime_error);
  EXPECT_THROW(resources_of([](Stream) { return failure(StatusCode::unsupported_problem, "not today"); }),
               std::runtime_error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Gpu, IsDescribedTheSameByCudaAndNvml) {
  const GpuMonitor monitor(device().description().pci_bus_id);
  if (!monitor.available()) GTEST_SKIP() << monitor.reason();
  const GpuDescription gpu = monitor.describe();
  if (gpu.mig.value_or(false)) GTEST_SKIP() << "CUDA names the slice, NVML the whole GPU";
  EXPECT_EQ(device().description().uuid, gpu.uuid);
  ASSERT_TRUE(gpu.power_limit_w && gpu.sm_clock_max_mhz);
  EXPECT_GT(*gpu.power_limit_w, 10);
  EXPECT_GT(*gpu.sm_clock_max_mhz, 500);
}

TEST(Clocks, AgreeWithNvml) {
  const GpuMonitor monitor(device().description().pci_bus_id);
  if (!monitor.available()) GTEST_SKIP() << monitor.reason();
  ClockSampler clock(1.2e6);  // spins for over a second, so that NVML reads a busy GPU
  clock.enqueue(nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const GpuState state = monitor.read();
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  EXPECT_TRUE(std::isnan(clock.mhz()));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_TRUE(state.sm_clock_mhz);
  EXPECT_NEAR(clock.mhz() / *state.sm_clock_mhz, 1, 0.03);
  ASSERT_TRUE(state.clock_event_reasons);
  ASSERT_TRUE(state.compute_processes);
}

TEST(Ceilings, AreWithinReachOfTheDatasheet) {
  const Ceilings ceilings = measure_gpu_ceilings(0);
  for (const Ceiling& ceiling : ceilings.rows) {
    EXPECT_GT(ceiling.value, 0) << ceiling.name;
    EXPECT_GT(ceiling.sm_clock_mhz, 100) << ceiling.name;
    EXPECT_LT(ceiling.sm_clock_mhz, 1.03 * gpu_identity(0).max_clock_mhz) << ceiling.name;
    if (ceiling.datasheet > 0) {
      EXPECT_GT(ceiling.value, 0.5 * ceiling.datasheet) << ceiling.name;
      EXPECT_LT(ceiling.value, 1.1 * ceiling.datasheet) << ceiling.name;  // the datasheet's boost clock may be exceeded
    }
  }
  EXPECT_GT(ceilings.memory().value, 0);
  EXPECT_GT(ceilings.compute(Pipe::fma, DType::fp32).value, 0);
  ASSERT_NE(ceilings.find("l2"), nullptr);
  EXPECT_GT(ceilings.find("l2")->value, ceilings.find("dram_read")->value);
}

}  // namespace
}  // namespace noisefloor
