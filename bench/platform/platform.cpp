#include "bench/platform/platform.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cmath>
#include <new>

namespace noisefloor {

LaunchContext Platform::context() const {
  LaunchContext context;
  context.stream = stream_;
  context.device = &description_.info;
  return context;
}

double Platform::element(DType dtype, const void* data, std::int64_t index) {
  char bytes[sizeof(double)];
  download(bytes, static_cast<const char*>(data) + static_cast<std::size_t>(index) * size_of(dtype), size_of(dtype));
  return load_element(dtype, bytes, 0);
}

void throw_if_failed(const Status& status) {
  switch (status.code) {
    case StatusCode::ok:
      return;
    case StatusCode::out_of_memory:
      throw OutOfMemory(status.what);
    case StatusCode::cuda_error:
      throw DeviceError(status.cuda_error == 0  // a library's, which has its words in `what`
                            ? status.what
                            : fmt::format("{}: {}", status.what, cuda_error_text(status.cuda_error)),
                        false);
    default:
      throw std::runtime_error(fmt::format("{}: {}", to_string(status.code), status.what));
  }
}

Difference harness::merged(std::span<const ComparePart> parts) {
  Difference total;
  double squared_error = 0, squared = 0;
  for (const ComparePart& part : parts) {
    squared_error += part.squared_error;
    squared += part.squared;
    const bool worse = !(part.max_error <= total.max_error);
    if (total.all_finite && (worse || part.not_finite != 0)) total.worst = part.worst;
    if (worse) total.max_error = part.max_error;
    total.all_finite = total.all_finite && part.not_finite == 0;
  }
  total.l2_error = squared > 0 ? std::sqrt(squared_error / squared) : std::sqrt(squared_error);
  return total;
}

LargeMemory allocate_large(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20, kCacheLine = 64;
  const std::size_t grain = bytes < kHugePage ? kCacheLine : kHugePage;
  const std::size_t rounded = (bytes + grain - 1) / grain * grain;
  LargeMemory memory(static_cast<char*>(std::aligned_alloc(grain, rounded)));
  if (memory == nullptr) throw std::bad_alloc();
  // Advice only: fewer page faults and TLB misses.
  if (grain == kHugePage) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  return memory;
}

}  // namespace noisefloor
