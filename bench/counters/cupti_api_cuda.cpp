#include "bench/counters/cupti_api.h"

#include <cuda.h>
#include <fmt/format.h>

#include <string>

#include "bench/counters/counter_status.h"
#include "kernels/core/dynamic_library.h"

namespace noisefloor::cupti {
namespace {

Api load_api() {
  // The toolkit's major version, which CUPTI shares: another one has another ABI.
  const std::string name = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
  const DynamicLibrary library(name.c_str(), NOISEFLOOR_CUPTI_LIBRARY_DIR);
  Api api{};
  NOISEFLOOR_CUPTI(NOISEFLOOR_API_LOAD)
  return api;
}

}  // namespace

const Api& api() {
  // A throw leaves it unset, so the next call says the same again.
  static const Api loaded = [] {
    try {
      return load_api();
    } catch (const LibraryMissing& error) {
      throw CountersUnavailable(CounterStatus::no_cupti, fmt::format("no CUPTI: {}", error.what()));
    }
  }();
  return loaded;
}

}  // namespace noisefloor::cupti
