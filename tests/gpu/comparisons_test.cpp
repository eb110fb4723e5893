// Tensors are compared on the GPU, as tests/bench/measure/verify_test.cpp has it on the host.
#include "tests/support/comparisons.h"

#include <gtest/gtest.h>

namespace noisefloor {
namespace {

TEST(Comparisons, AreThoseOfAPlainLoop) {
  const auto platform = make_cuda_platform(0);
  check_comparisons(*platform, [](const std::string& wrong) { ADD_FAILURE() << wrong; });
}

}  // namespace
}  // namespace noisefloor
