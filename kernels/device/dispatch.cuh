// From a DType to the device type that a kernel is compiled for.
#pragma once

#include "kernels/core/status.h"
#include "kernels/device/vector.cuh"

namespace noisefloor {

// Calls run(T{}) with the device type of `dtype`: bf16, fp16 or fp32.
template <class Run>
Status with_type(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::bf16:
      return run(__nv_bfloat16{});
    case DType::fp16:
      return run(__half{});
    case DType::fp32:
      return run(float{});
    default:
      return failure(StatusCode::unsupported_problem, "needs bf16, fp16 or fp32");
  }
}

// The same for kernels on the 16-bit tensor pipes.
template <class Run>
Status with_half_type(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::bf16:
      return run(__nv_bfloat16{});
    case DType::fp16:
      return run(__half{});
    default:
      return failure(StatusCode::unsupported_problem, "needs bf16 or fp16");
  }
}

}  // namespace noisefloor
