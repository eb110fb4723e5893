// What a launcher may know of the device it launches on. Filled once by the caller; launchers never query the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

struct CUstream_st;

namespace noisefloor {

using Stream = CUstream_st*;  // cudaStream_t, spelled so that host-only builds need no CUDA header

struct DeviceInfo {
  int compute_capability = 0;              // 10 * major + minor; 0 is the host
  int sm_count = 0;                        // streaming multiprocessors; on the host, cores
  std::size_t l2_bytes = 0;                // on the host, last-level cache
  std::size_t shared_bytes_per_block = 0;  // the opt-in limit
};

// What a variant needs to run. `sm90a` is exactly compute capability 9.0 (wgmma and TMA are not forward compatible);
// the others are that one and newer.
enum class Arch { host, any_gpu, sm75, sm80, sm90a };

const char* to_string(Arch arch);                 // "host", "any", "sm_75+", "sm_80+", "sm_90a"
bool runs_on(Arch arch, int compute_capability);  // host variants run on compute capability 0 only

inline constexpr int kFirstProgrammatic = 90;  // the first compute capability with programmatic dependent launch

struct LaunchContext {
  Stream stream = nullptr;
  const DeviceInfo* device = nullptr;  // never null
  // Launch with programmatic stream serialization, where the kernel waits for its predecessor before it reads or writes
  // any tensor but constant_inputs; other kernels are launched as without.
  bool programmatic_launch = false;
  // Bit i: the op's tensor i has had its values since before the launch ahead of this one began, as a network's weights
  // have, and so has what was prepared of it. A kernel may read it before it waits for that launch.
  std::uint64_t constant_inputs = 0;
  // The way to run the problem, of those that the variant offers (Variant::choices); empty: what it chooses itself.
  std::string_view choice = {};
  constexpr bool constant(int tensor) const { return (constant_inputs >> tensor & 1) != 0; }
};

inline constexpr std::size_t kAllocationAlignment = 256;  // what cudaMalloc promises, so what launchers may count on

// `bytes` rounded up to a place where the next tensor may begin.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
}

}  // namespace noisefloor
