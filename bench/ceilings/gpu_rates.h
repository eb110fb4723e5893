// The parts of measure_gpu_ceilings: each returns one measured rate. Includes the CUDA runtime; for this folder only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "bench/platform/clocks.h"
#include "bench/platform/cuda_timing.h"
#include "bench/platform/platform.h"

namespace noisefloor::ceilings {

// The device, the stream that work is put on, and the clocks sampled there.
struct Gpu : DeviceInfo {
  Platform* platform;
  cudaStream_t stream;
  ClockSampler* clocks;
};

// The median time of a launch over several samples, after a warm-up. A sample is `launches` launches between two
// events. The SM clock is sampled right behind the launches.
double median_seconds(const Gpu& gpu, int launches, const std::function<void()>& launch);
// The same for a kernel that works in a loop: `launch(iterations)` with as many iterations as take some milliseconds.
// Returns seconds per iteration.
double median_seconds_per_iteration(const Gpu& gpu, const std::function<void(int iterations)>& launch);

// Fills with random bits, from Philox.
void fill_random(const Buffer& memory, std::uint64_t seed, cudaStream_t stream);

// Bytes per second. `copy_rate` counts bytes read plus bytes written. Both move `memory` once a launch.
double copy_rate(const Gpu& gpu, const Buffer& from, const Buffer& to);
double read_rate(const Gpu& gpu, const Buffer& memory);
// Reads the first half-L2 of `memory` over and over, past L1.
double l2_rate(const Gpu& gpu, const Buffer& memory);

// FLOPs per second; 0 where the device has no such unit.
enum class Operand { bf16, fp16, tf32, fp8 };  // in the order of the tables of rates
double fma_rate(const Gpu& gpu);
double mma_rate(const Gpu& gpu, Operand operand);    // mma.sync, operands in registers
double wgmma_rate(const Gpu& gpu, Operand operand);  // sm_90a: wgmma, operands in shared memory

}  // namespace noisefloor::ceilings
