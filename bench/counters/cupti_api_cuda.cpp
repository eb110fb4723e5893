#include "bench/counters/cupti_api.h"

#include <cuda.h>
#include <fmt/format.h>

namespace noisefloor {
namespace cupti {

const Api& api() {
  // A throw leaves it unset, so the next call says the same again.
  static const Api loaded = [] {
    try {
      // The toolkit's major version, which CUPTI shares: another one has another ABI.
      const DynamicLibrary library(fmt::format("libcupti.so.{}", CUDA_VERSION / 1000).c_str(),
                                   NOISEFLOOR_CUPTI_LIBRARY_DIR);
      Api api{};
      NOISEFLOOR_CUPTI(NOISEFLOOR_API_LOAD)
      return api;
    } catch (const LibraryMissing& error) {
      throw CountersUnavailable(CounterStatus::no_cupti, fmt::format("no CUPTI: {}", error.what()));
    }
  }();
  return loaded;
}

}  // namespace cupti

void check_cupti(CUptiResult result, const char* call) {
  if (result != CUPTI_SUCCESS) throw counters_unavailable(static_cast<int>(result), call);
}

}  // namespace noisefloor
