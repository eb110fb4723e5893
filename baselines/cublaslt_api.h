// cuBLASLt, opened at run time: the functions that the baselines call, under their own names.
#pragma once

#include <cublasLt.h>

#include <string>

#include "baselines/baseline.h"

namespace noisefloor::cublaslt {

// Called here, and the function of the library.
#define NOISEFLOOR_CUBLASLT(X)                            \
  X(create, cublasLtCreate)                               \
  X(destroy, cublasLtDestroy)                             \
  X(version, cublasLtGetVersion)                          \
  X(status_string, cublasLtGetStatusString)               \
  X(matmul, cublasLtMatmul)                               \
  X(desc_create, cublasLtMatmulDescCreate)                \
  X(desc_destroy, cublasLtMatmulDescDestroy)              \
  X(desc_set, cublasLtMatmulDescSetAttribute)             \
  X(layout_create, cublasLtMatrixLayoutCreate)            \
  X(layout_set, cublasLtMatrixLayoutSetAttribute)         \
  X(layout_destroy, cublasLtMatrixLayoutDestroy)          \
  X(preference_create, cublasLtMatmulPreferenceCreate)    \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy)  \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute) \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic)            \
  X(algo_check, cublasLtMatmulAlgoCheck)                  \
  X(config_set, cublasLtMatmulAlgoConfigSetAttribute)     \
  X(config_get, cublasLtMatmulAlgoConfigGetAttribute)

struct Api {
  NOISEFLOOR_CUBLASLT(NOISEFLOOR_API_MEMBER)
};

#define NOISEFLOOR_TEXT(macro) NOISEFLOOR_TEXT_(macro)
#define NOISEFLOOR_TEXT_(text) #text

// Throws LibraryMissing; it is then opened at the next call.
inline const Api& api() {
  static const Api loaded = [] {
    // The major version of the headers: another one has another ABI.
    const DynamicLibrary library("libcublasLt.so." NOISEFLOOR_TEXT(CUBLAS_VER_MAJOR), NOISEFLOOR_CUDA_LIBRARY_DIR);
    Api api{};
    NOISEFLOOR_CUBLASLT(NOISEFLOOR_API_LOAD)
    return api;
  }();
  return loaded;
}

// Throws LibraryRefused with cuBLASLt's words.
inline void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw LibraryRefused(std::string(call) + ": " + api().status_string(status));
}

}  // namespace noisefloor::cublaslt
