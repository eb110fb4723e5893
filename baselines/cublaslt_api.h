// cuBLASLt, opened at run time: the functions that the baselines call, under their own names.
#pragma once

#include <cublasLt.h>

#include "kernels/core/dynamic_library.h"

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

const Api& api();                                       // throws LibraryMissing
long version();                                         // throws LibraryMissing
void require(cublasStatus_t status, const char* call);  // throws LibraryRefused with cuBLASLt's words

}  // namespace noisefloor::cublaslt
