// What a status that a launch returned becomes.
#include <gtest/gtest.h>

#include "bench/platform/platform.h"

namespace noisefloor {
namespace {

std::string words_of(const Status& status) {
  try {
    throw_if_failed(status);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(FailedStatus, CarriesTheLibrarysOwnWords) {
  EXPECT_EQ(words_of(success()), "");
  EXPECT_EQ(words_of(failure(StatusCode::cuda_error, "cuDNN execute: CUDNN_STATUS_BAD_PARAM")),
            "cuDNN execute: CUDNN_STATUS_BAD_PARAM");
  constexpr int kIllegalAddress = 700;
  const std::string of_cuda = words_of({StatusCode::cuda_error, "cudaLaunchKernel", kIllegalAddress});
  EXPECT_TRUE(of_cuda.starts_with("cudaLaunchKernel: ") && of_cuda.size() > std::string("cudaLaunchKernel: ").size());
}

}  // namespace
}  // namespace noisefloor
