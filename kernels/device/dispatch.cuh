// From what a launch is told to what a kernel is compiled for: the device type of a DType, the tile of a number.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/device/vector.cuh"

namespace noisefloor {

// Calls run(T{}) with the device type of `dtype`, for kernels on the 16-bit tensor pipes: bf16 or fp16.
template <class Run>
Status with_half_type(DType dtype, const Run& run, const char* needs = "needs bf16 or fp16") {
  switch (dtype) {
    case DType::bf16:
      return run(__nv_bfloat16{});
    case DType::fp16:
      return run(__half{});
    default:
      return failure(StatusCode::unsupported_problem, needs);
  }
}

// The same of fp32 too.
template <class Run>
Status with_type(DType dtype, const Run& run) {
  return dtype == DType::fp32 ? run(float{}) : with_half_type(dtype, run, "needs bf16, fp16 or fp32");
}

// Calls run.operator()<tile>(), of kCount tiles.
template <std::size_t kCount, class Run>
Status with_tile(int tile, const Run& run) {
  Status status = failure(StatusCode::invalid_argument, "no such tile");
  [&]<int... kTile>(std::integer_sequence<int, kTile...>) {
    (void)((tile == kTile ? (status = run.template operator()<kTile>(), true) : false) || ...);
  }
  (std::make_integer_sequence<int, static_cast<int>(kCount)>{});
  return status;
}

}  // namespace noisefloor
