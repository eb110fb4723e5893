// Signatures of launches: what changes them, and what does not.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <memory>

#include "bench/counters/counter_status.h"
#include "bench/counters/launch_signature.h"
#include "bench/platform/platform.h"
#include "kernels/device/launch.cuh"

namespace noisefloor {
namespace {

__global__ void scaled(float* x, float factor, int) {
  x[threadIdx.x] *= factor;
}
__global__ void shifted(float* x, float by, int) {
  x[threadIdx.x] += by;
}

class LaunchSignature : public testing::Test {
 protected:
  static constexpr int kThreads = 32;
  std::unique_ptr<CodeWatch> watch;
  std::unique_ptr<Platform> platform;
  float *one = nullptr, *two = nullptr;

  void SetUp() override {
    try {
      watch = watch_code();
    } catch (const CountersUnavailable& error) {
      GTEST_SKIP() << error.what();
    }
    platform = make_cuda_platform(0);
    one = static_cast<float*>(platform->allocate(4096));
    two = static_cast<float*>(platform->allocate(4096));
  }
  void TearDown() override {
    if (!platform) return;
    platform->release(one);
    platform->release(two);
  }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(platform->context().stream); }
  std::string of(const Launch& launch) { return watch->signature(platform->context().stream, launch); }
  static Launch both(Launch first, Launch second) {
    return [=] {
      throw_if_failed(first());
      return second();
    };
  }
  Launch scaling(float* x, float factor, int blocks = 1, std::size_t shared = 0) {
    return [=, this] {
      scaled<<<blocks, kThreads, shared, stream()>>>(x, factor, 3);
      return success();
    };
  }
};

// One test: a module's code is taken down where it is loaded, once a process.
TEST_F(LaunchSignature, IsOfAllThatRunsAndNotOfWhereTensorsLie) {
  const Launch shifting = [this] {
    shifted<<<1, kThreads, 0, stream()>>>(one, 2, 3);
    return success();
  };
  const std::string first = of(scaling(one, 2));
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(of(scaling(one, 2)), first);
  EXPECT_EQ(of(scaling(two, 2)), first) << "another address";
  EXPECT_NE(of(scaling(one, 3)), first) << "a scalar alone";
  EXPECT_NE(of(scaling(one, 2, 2)), first) << "a grid";
  EXPECT_NE(of(scaling(one, 2, 1, 64)), first) << "shared memory";
  EXPECT_NE(of(shifting), first) << "other code with the same arguments";
  EXPECT_NE(of(both(shifting, scaling(one, 2))), first) << "one more";
  const Launch clearing = [this] {
    (void)cudaMemsetAsync(two, 0, 64, stream());
    return success();
  };
  EXPECT_NE(of(both(clearing, scaling(one, 2))), first);
  const auto copying = [this](std::size_t bytes) -> Launch {
    return [=, this] {
      (void)cudaMemcpyAsync(two, one, bytes, cudaMemcpyDeviceToDevice, stream());
      return success();
    };
  };
  EXPECT_NE(of(both(copying(64), scaling(one, 2))), of(both(copying(128), scaling(one, 2)))) << "another copy";
  const auto launched = [this](bool programmatic) -> Launch {
    return [=, this] {
      return launch_kernel("scaled", scaled, {.block = kThreads, .programmatic = programmatic},
                           platform->context().stream, one, 2.0f, 3);
    };
  };
  if (platform->description().info.compute_capability >= 90) {
    EXPECT_NE(of(both(shifting, launched(true))), of(both(shifting, launched(false)))) << "another edge";
  }
  EXPECT_NE(of(both(scaling(one, 2), shifting)), of(both(shifting, scaling(one, 2))));
}

}  // namespace
}  // namespace noisefloor
