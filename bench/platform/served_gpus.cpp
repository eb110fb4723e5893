// What a build says of its sources, and which GPUs it has code for.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "bench/platform/build_info.h"
#include "kernels/core/listed.h"

namespace noisefloor {

std::string BuildInfo::digest_of(std::string_view room) const {
  const std::string name = fmt::format("{}=", room);
  for (const std::string& entry : split_list(digests))
    if (entry.starts_with(name)) return entry.substr(name.size());
  return {};
}

bool serves_gpu(std::string_view architectures, int compute_capability) {
  return std::ranges::any_of(split_list(std::string(architectures)), [&](const std::string& name) {
    const int number = std::atoi(name.c_str());  // 0 where it has none
    if (name.ends_with('a')) return number == compute_capability;
    return number > 0 && number / 10 == compute_capability / 10 && number <= compute_capability;
  });
}

std::string why_unserved(const std::string& gpu, int compute_capability, std::string_view architectures) {
  if (serves_gpu(architectures, compute_capability)) return "";
  return fmt::format(
      "this program was built for GPUs of sm_{}, and {} is sm_{}: build it on this machine (scripts/sweep), or with "
      "-DNOISEFLOOR_CUDA_ARCHITECTURES={}{}, or use --device host",
      architectures, gpu, compute_capability, compute_capability, compute_capability == 90 ? "a" : "");
}

}  // namespace noisefloor
