// Runs the GPU tests, or says with exit code 77 that there is no device to run them on.
#include <cstdio>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (!testing::GTEST_FLAG(list_tests) && (error != cudaSuccess || devices == 0)) {
    std::printf("SKIPPED: the GPU tests need a CUDA device (%s)\n",
                error == cudaSuccess ? "none is there" : cudaGetErrorString(error));
    constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
