#include "bench/counters/kernel_resources.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace noisefloor {

void complete_occupancy(KernelResources& kernel, const SmLimits& sm) {
  constexpr long kRegisterBytes = 4, kRegistersAtATime = 256;  // given out by the warp, in such pieces
  const long warps = (kernel.threads() + sm.warp_size - 1) / sm.warp_size, more = kernel.blocks_per_sm + 1;
  kernel.occupancy_limit_pct = 100.0 * static_cast<double>(kernel.blocks_per_sm * warps * sm.warp_size) / sm.threads;
  const double held = 1.0 * kernel.blocks_per_sm * sm.count;
  kernel.waves = held > 0 ? static_cast<double>(kernel.blocks()) / held : 0;
  kernel.resident_bytes = std::min(static_cast<double>(kernel.blocks()), held) *
                          (static_cast<double>(kRegisterBytes * kernel.registers * warps * sm.warp_size) +
                           static_cast<double>(kernel.shared_bytes()));

  const long pieces = (static_cast<long>(kernel.registers) * sm.warp_size + kRegistersAtATime - 1) / kRegistersAtATime;
  const std::pair<bool, const char*> limits[] = {
      {more * warps * sm.warp_size > sm.threads, "threads"},
      {more > sm.blocks, "blocks"},
      {more * warps * pieces * kRegistersAtATime > sm.registers, "registers"},
      {static_cast<std::size_t>(more) * (kernel.shared_bytes() + sm.shared_bytes_reserved) > sm.shared_bytes,
       "shared memory"},
  };
  kernel.occupancy_limiter.clear();
  for (const auto& [exceeded, name] : limits)
    if (exceeded) kernel.occupancy_limiter += std::string(kernel.occupancy_limiter.empty() ? "" : " and ") + name;
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

std::string short_kernel_name(std::string_view demangled) {
  std::string name(demangled);
  for (const std::string_view left_out : {"(anonymous namespace)::", "noisefloor::"})
    for (std::size_t at = name.find(left_out); at != std::string::npos; at = name.find(left_out, at))
      name.erase(at, left_out.size());
  // The parameters are the parenthesis that closes the name, and what is before a space outside of all brackets is the
  // return type.
  std::size_t end = name.size(), begin = 0;
  if (name.ends_with(')')) {
    int depth = 0;
    do {
      --end;
      depth += name[end] == ')' ? 1 : name[end] == '(' ? -1 : 0;
    } while (end > 0 && depth > 0);
    if (depth != 0) end = name.size();
  }
  int depth = 0;
  for (std::size_t i = 0; i < end; ++i) {
    if (name[i] == '<' || name[i] == '(' || name[i] == '{') ++depth;
    if (name[i] == '>' || name[i] == ')' || name[i] == '}') --depth;
    if (name[i] == ' ' && depth == 0) begin = i + 1;
  }
  return begin < end ? name.substr(begin, end - begin) : name;
}

const KernelResources* dominant_kernel(std::span<const KernelResources> kernels) {
  const KernelResources* dominant = nullptr;
  for (const KernelResources& kernel : kernels)
    if (dominant == nullptr || kernel.resident_bytes > dominant->resident_bytes) dominant = &kernel;
  return dominant;
}

}  // namespace noisefloor
