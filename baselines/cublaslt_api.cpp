#include "baselines/cublaslt_api.h"

#include <string>

#include "baselines/baseline.h"

#define NOISEFLOOR_TEXT(macro) NOISEFLOOR_TEXT_(macro)
#define NOISEFLOOR_TEXT_(text) #text

namespace noisefloor::cublaslt {
namespace {

// The major version of the headers: another one has another ABI.
constexpr const char* kLibrary = "libcublasLt.so." NOISEFLOOR_TEXT(CUBLAS_VER_MAJOR);

Api load_api() {
  const DynamicLibrary library(kLibrary, NOISEFLOOR_CUDA_LIBRARY_DIR);
  Api api{};
  NOISEFLOOR_CUBLASLT(NOISEFLOOR_API_LOAD)
  return api;
}

}  // namespace

const Api& api() {
  static const Api loaded = load_api();  // a throw leaves it unset, so the next call says the same again
  return loaded;
}

long version() {
  return static_cast<long>(api().version());
}

void require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw LibraryRefused(std::string(call) + ": " + api().status_string(status));
}

}  // namespace noisefloor::cublaslt
