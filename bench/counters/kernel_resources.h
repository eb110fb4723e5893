// What the kernels of a launch take: registers, shared memory, spills and the occupancy that these allow, read from the
// kernels that really run (ours and the vendor's), by capturing the launch in a CUDA graph and asking the driver for
// each kernel node.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/status.h"

namespace noisefloor {

struct KernelResources {
  std::string name;                      // demangled
  std::array<unsigned, 3> grid{};        // blocks
  std::array<unsigned, 3> block{};       // threads
  std::size_t static_shared_bytes = 0;   // per block
  std::size_t dynamic_shared_bytes = 0;  // per block
  int registers = 0;                     // per thread
  std::size_t local_bytes = 0;           // per thread: spills and arrays that are indexed at run time
  int blocks_per_sm = 0;                 // that can be resident
  double occupancy_limit_pct = 0;        // resident warps by these limits over the warps an SM can hold
  std::string occupancy_limiter{};       // what one more block would exceed: "registers and shared memory"
  double waves = 0;                      // blocks over those that the device holds at a time
  double resident_bytes = 0;  // registers and shared memory, in bytes, that the launch holds on the device at a time

  std::size_t shared_bytes() const { return static_shared_bytes + dynamic_shared_bytes; }
  long blocks() const { return static_cast<long>(grid[0]) * grid[1] * grid[2]; }
  long threads() const { return static_cast<long>(block[0]) * block[1] * block[2]; }
};

// Of an SM, and how many there are.
struct SmLimits {
  int count = 0, warp_size = 32, threads = 0, blocks = 0, registers = 0;
  std::size_t shared_bytes = 0, shared_bytes_reserved = 0;  // reserved: of each block, by the driver
};

// What follows from grid, block, registers, shared memory and blocks_per_sm.
void complete_occupancy(KernelResources& kernel, const SmLimits& sm);

std::string demangled(const std::string& name);  // of a kernel; what is no mangled name stays as it is

// A demangled name without return type, parameters, unnamed namespaces and our own: what stays the same from build to
// build, and tells instances of a template apart.
std::string short_kernel_name(std::string_view demangled);

// Of a kernel that the driver says nothing of.
inline constexpr const char* kUnknownKernel = "unknown";

// Captures what `enqueue` puts on `stream` (which must not be the default stream, and has nothing captured yet);
// nothing is executed. In the order of the graph's nodes; empty when the launch has no kernels (copies only). Throws
// std::runtime_error where the launch fails or cannot be captured (it synchronises or allocates), or where this build
// has no CUDA.
std::vector<KernelResources> kernel_resources(Stream stream, const std::function<Status()>& enqueue);

// How many kernels of a launch in a series begin behind an ordinary edge, when the one before them has ended: those of
// two launches less those of one. Programmatic edges do not count. Captures as kernel_resources(), and throws as it.
int ordinary_edges(Stream stream, const std::function<Status()>& enqueue);

// The kernel that stands for a launch of several: the one whose resident blocks hold the most registers and shared
// memory. That is the product or the convolution rather than the reduction or the bookkeeping around it, also when it
// is persistent and has few blocks. Null when there are none.
const KernelResources* dominant_kernel(std::span<const KernelResources> kernels);

}  // namespace noisefloor
