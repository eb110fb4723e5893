// Which GPUs a build has code for.
#include <fmt/format.h>

#include "bench/platform/build_info.h"

namespace noisefloor {

bool serves_gpu(std::string_view architectures, int compute_capability) {
  int number = 0;
  bool exact = false;
  const auto serves = [&] {
    if (exact) return number == compute_capability;
    return number > 0 && number / 10 == compute_capability / 10 && number <= compute_capability;
  };
  for (const char letter : architectures) {
    if (letter >= '0' && letter <= '9') {
      number = 10 * number + (letter - '0');
    } else if (letter == 'a') {
      exact = true;
    } else if (letter == ',') {
      if (serves()) return true;
      number = 0;
      exact = false;
    }
  }
  return serves();
}

std::string why_unserved(const std::string& gpu, int compute_capability, std::string_view architectures) {
  if (serves_gpu(architectures, compute_capability)) return "";
  return fmt::format(
      "this program was built for GPUs of sm_{}, and {} is sm_{}: build it on this machine (scripts/sweep), or with "
      "-DNOISEFLOOR_CUDA_ARCHITECTURES={}{}, or use --device host",
      architectures, gpu, compute_capability, compute_capability, compute_capability == 90 ? "a" : "");
}

}  // namespace noisefloor
