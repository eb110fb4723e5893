// What the GPU variants of attention and temporal_attention share. Device code only.
#pragma once

#include "kernels/core/status.h"
#include "kernels/device/vector.cuh"

namespace noisefloor::attention {

// Calls body(T{}) with the device type of a 16-bit dtype; returns what it returns.
template <class Body>
Status with_half_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::bf16:
      return body(__nv_bfloat16{});
    case DType::fp16:
      return body(__half{});
    default:
      return failure(StatusCode::unsupported_problem, "needs bf16 or fp16");
  }
}

// The same for every dtype of the ops.
template <class Body>
Status with_device_type(DType dtype, const Body& body) {
  return dtype == DType::fp32 ? body(float{}) : with_half_type(dtype, body);
}

}  // namespace noisefloor::attention
