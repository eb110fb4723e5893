// The ceilings of a GPU: the parts of gpu_rates.h, put together.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "bench/ceilings/ceilings.h"
#include "bench/ceilings/gpu_rates.h"
#include "bench/platform/clocks.h"
#include "bench/platform/nvml.h"

namespace noisefloor {
namespace ceilings {
namespace {

double seconds_of(const Gpu& gpu, const Event& start, const Event& stop, const std::function<void()>& work) {
  CUDA_CHECK(cudaEventRecord(start, gpu.stream));
  work();
  CUDA_CHECK(cudaEventRecord(stop, gpu.stream));
  gpu.clocks->enqueue(gpu.stream);  // before the clock can change; not beside the launch, which would starve it
  CUDA_CHECK(cudaEventSynchronize(stop));
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
  return milliseconds * 1e-3;
}

}  // namespace

double median_seconds(const Gpu& gpu, int launches, const std::function<void()>& launch) {
  constexpr int kSamples = 9;
  const Event start, stop;
  const auto sample = [&] {
    return seconds_of(gpu, start, stop, [&] {
      for (int i = 0; i < launches; ++i) launch();
    });
  };
  sample();  // loads the kernel, raises the clocks
  std::array<double, kSamples> seconds;
  for (int i = 0; i < kSamples; ++i) seconds[i] = sample() / launches;
  std::nth_element(seconds.begin(), seconds.begin() + kSamples / 2, seconds.end());
  return seconds[kSamples / 2];
}

double median_seconds_per_iteration(const Gpu& gpu, const std::function<void(int iterations)>& launch) {
  // Long against a launch; all samples together short against the power limit's regulation.
  constexpr double kTarget = 2e-3;
  constexpr int kProbe = 64;
  const double probe = median_seconds(gpu, 1, [&] { launch(kProbe); }) / kProbe;
  const int iterations = static_cast<int>(std::clamp(kTarget / probe, 1.0 * kProbe, 1e7));
  return median_seconds(gpu, 1, [&] { launch(iterations); }) / iterations;
}

}  // namespace ceilings

namespace {

double tensor_rate(const ceilings::Gpu& gpu, ceilings::Operand operand) {
  if (gpu.compute_capability != 90) return ceilings::mma_rate(gpu, operand);
#if defined(NOISEFLOOR_HAS_SM90A)
  return ceilings::wgmma_rate(gpu, operand);
#else
  throw std::runtime_error(
      "this build has no sm_90a code, without which Hopper's tensor pipe cannot be measured; "
      "build with NOISEFLOOR_CUDA_ARCHITECTURES=90a");
#endif
}

// A gigabyte or two: well past the L2 and its write-back, and small enough for every GPU that is not full.
std::size_t buffer_bytes(Platform& platform) {
  constexpr std::size_t kMost = std::size_t{2} << 30;
  const std::size_t l2_bytes = platform.description().info.l2_bytes, free = platform.free_bytes();
  const std::size_t bytes = std::min(kMost, free / 4) >> 20 << 20;
  if (bytes < 4 * l2_bytes)
    throw std::runtime_error(
        fmt::format("ceilings need {} MB of free device memory; {} MB are free (is another program on the GPU?)",
                    (16 * l2_bytes >> 20) + 4, free >> 20));
  return bytes;
}

}  // namespace

DeviceIdentity gpu_identity(int device) {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  std::array<char, 32> bus_id{};
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device));
  std::string driver = GpuMonitor(bus_id.data()).driver_version();
  if (driver.empty()) {  // no NVML: the newest CUDA that the driver supports stands for its version
    int version = 0;
    CUDA_CHECK(cudaDriverGetVersion(&version));
    driver = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  }
  int clock_khz = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device));
  return {properties.name, driver, clock_khz / 1000};
}

Ceilings measure_gpu_ceilings(int device) {
  const DeviceIdentity identity = gpu_identity(device);
  const std::unique_ptr<Platform> platform = make_cuda_platform(device);
  const cudaStream_t stream = platform->context().stream;
  ClockSampler clocks;
  const ceilings::Gpu gpu{platform->description().info, platform.get(), stream, &clocks};
  Ceilings result{identity.name, identity.driver, "", {}};
  const auto add = [&](const char* name, const char* unit, double rate) {
    CUDA_CHECK(cudaStreamSynchronize(stream));
    if (rate > 0)  // else the device has no such unit
      result.rows.push_back({name, rate * 1e-9, unit, datasheet_rate(identity.name, name).value_or(0), clocks.mhz()});
  };
  // The tensor pipe reaches the power limit within tens of milliseconds, and the clock falls. After a rest every
  // operand type starts from the same clock, as a kernel does that is timed by itself.
  const auto add_tensor = [&](const char* name, ceilings::Operand operand) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    add(name, "GFLOP/s", tensor_rate(gpu, operand));
  };

  {
    const std::size_t bytes = buffer_bytes(*platform);
    const Buffer from(*platform, bytes), to(*platform, bytes);
    ceilings::fill_random(from, 1, stream);
    ceilings::fill_random(to, 2, stream);
    add("dram_copy", "GB/s", ceilings::copy_rate(gpu, from, to));
    add("dram_read", "GB/s", ceilings::read_rate(gpu, from));
    add("l2", "GB/s", ceilings::l2_rate(gpu, from));
  }
  add("fma_fp32", "GFLOP/s", ceilings::fma_rate(gpu));
  add_tensor("tensor_bf16", ceilings::Operand::bf16);
  add_tensor("tensor_fp16", ceilings::Operand::fp16);
  add_tensor("tensor_tf32", ceilings::Operand::tf32);
  add_tensor("tensor_fp8", ceilings::Operand::fp8);
  return result;
}

}  // namespace noisefloor
