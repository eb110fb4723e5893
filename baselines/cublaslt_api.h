// cuBLASLt, opened at run time: the functions that the baselines call, under their own names.
#pragma once

#include <cublasLt.h>

#include "kernels/core/dynamic_library.h"

namespace noisefloor::cublaslt {

struct Api {
  decltype(::cublasLtCreate)* create;
  decltype(::cublasLtDestroy)* destroy;
  decltype(::cublasLtGetVersion)* version;
  decltype(::cublasLtGetStatusString)* status_string;
  decltype(::cublasLtMatmul)* matmul;
  decltype(::cublasLtMatmulDescCreate)* desc_create;
  decltype(::cublasLtMatmulDescDestroy)* desc_destroy;
  decltype(::cublasLtMatmulDescSetAttribute)* desc_set;
  decltype(::cublasLtMatrixLayoutCreate)* layout_create;
  decltype(::cublasLtMatrixLayoutDestroy)* layout_destroy;
  decltype(::cublasLtMatmulPreferenceCreate)* preference_create;
  decltype(::cublasLtMatmulPreferenceDestroy)* preference_destroy;
  decltype(::cublasLtMatmulPreferenceSetAttribute)* preference_set;
  decltype(::cublasLtMatmulAlgoGetHeuristic)* heuristic;
  decltype(::cublasLtMatmulAlgoCheck)* algo_check;
  decltype(::cublasLtMatmulAlgoConfigSetAttribute)* config_set;
  decltype(::cublasLtMatmulAlgoConfigGetAttribute)* config_get;
};

const Api& api();                                       // throws LibraryMissing
long version();                                         // throws LibraryMissing
void require(cublasStatus_t status, const char* call);  // throws LibraryRefused with cuBLASLt's words

}  // namespace noisefloor::cublaslt
