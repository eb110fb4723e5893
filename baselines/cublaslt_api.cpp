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
  library.load("cublasLtCreate", api.create);
  library.load("cublasLtDestroy", api.destroy);
  library.load("cublasLtGetVersion", api.version);
  library.load("cublasLtGetStatusString", api.status_string);
  library.load("cublasLtMatmul", api.matmul);
  library.load("cublasLtMatmulDescCreate", api.desc_create);
  library.load("cublasLtMatmulDescDestroy", api.desc_destroy);
  library.load("cublasLtMatmulDescSetAttribute", api.desc_set);
  library.load("cublasLtMatrixLayoutCreate", api.layout_create);
  library.load("cublasLtMatrixLayoutDestroy", api.layout_destroy);
  library.load("cublasLtMatmulPreferenceCreate", api.preference_create);
  library.load("cublasLtMatmulPreferenceDestroy", api.preference_destroy);
  library.load("cublasLtMatmulPreferenceSetAttribute", api.preference_set);
  library.load("cublasLtMatmulAlgoGetHeuristic", api.heuristic);
  library.load("cublasLtMatmulAlgoCheck", api.algo_check);
  library.load("cublasLtMatmulAlgoConfigSetAttribute", api.config_set);
  library.load("cublasLtMatmulAlgoConfigGetAttribute", api.config_get);
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
