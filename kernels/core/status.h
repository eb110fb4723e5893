// What a launcher says of itself: no exceptions, no allocation, so that it can be called while a CUDA graph is
// captured.
#pragma once

namespace noisefloor {

enum class StatusCode {
  ok,
  invalid_argument,
  unsupported_problem,
  unsupported_arch,
  not_built,
  out_of_memory,
  cuda_error
};

// `what` is a string literal naming the call that failed; `cuda_error` is the cudaError_t behind
// `StatusCode::cuda_error`.
struct [[nodiscard]] Status {
  StatusCode code = StatusCode::ok;
  const char* what = "";
  int cuda_error = 0;

  constexpr bool ok() const { return code == StatusCode::ok; }
};

constexpr Status success() {
  return {};
}
constexpr Status failure(StatusCode code, const char* what) {
  return {code, what, 0};
}

const char* to_string(StatusCode code);

}  // namespace noisefloor
