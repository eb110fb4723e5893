// Runs the GPU tests, or says with exit code 77 that there is no device to run them on. NOISEFLOOR_TEST_FILTER, from
// `scripts/test --filter RE`, keeps to those whose names match the (POSIX extended) regular expression.
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "bench/platform/platform.h"

namespace {

// Google Test's own filter knows wildcards alone, so that it gets the names one by one.
std::string names_that_match(const char* filter) {
  const std::regex wanted(filter, std::regex::extended);
  std::string names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = std::string(suite.name()) + "." + suite.GetTestInfo(j)->name();
      if (std::regex_search("gpu." + name, wanted)) names += name + ":";
    }
  }
  return names.empty() ? "-*" : names;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* filter = std::getenv("NOISEFLOOR_TEST_FILTER")) {
    try {
      testing::GTEST_FLAG(filter) = names_that_match(filter);
    } catch (const std::regex_error& error) {
      std::fprintf(stderr, "NOISEFLOOR_TEST_FILTER '%s': %s\n", filter, error.what());
      return 2;
    }
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (!testing::GTEST_FLAG(list_tests) && (error != cudaSuccess || devices == 0)) {
    std::printf("SKIPPED: the GPU tests need a CUDA device (%s)\n",
                error == cudaSuccess ? "none is there" : cudaGetErrorString(error));
    constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt
    return kSkipped;
  }
  std::string why;
  if (!testing::GTEST_FLAG(list_tests))
    if (const auto gpus = noisefloor::list_cuda_devices(why); !gpus.front().unserved.empty()) {
      std::fprintf(stderr, "%s\n", gpus.front().unserved.c_str());
      return 2;
    }
  return RUN_ALL_TESTS();
}
