// The statistics that conv2d leaves, in groupnorm's hands: on the host, the norm of the convolution's output is the
// same whether groupnorm computes the statistics or is given them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"
#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

// The convolution, and what groupnorm makes of its output.
void expect_same_norm(const std::string& convolution, const std::string& norm, const std::string& slab_stats) {
  SCOPED_TRACE(convolution);
  const Op conv2d_op = make_op(conv2d::definition);
  const Op groupnorm_op = make_op(groupnorm::definition);
  HostData conv(conv2d_op, conv2d_op.parse(convolution), DType::fp32, 1);
  ASSERT_TRUE(conv.run_host().ok());

  HostData plain(groupnorm_op, groupnorm_op.parse(norm), DType::fp32, 2);
  HostData given(groupnorm_op, groupnorm_op.parse(norm + ",slab_stats=" + slab_stats), DType::fp32, 2);
  const auto copy = [](const HostData& from, const char* name, HostData& to, const char* as) {
    const auto& bytes = from.storage[from.index(name)];
    auto& target = to.storage[to.index(as)];
    ASSERT_EQ(bytes.size(), target.size()) << as;
    std::memcpy(target.data(), bytes.data(), bytes.size());
  };
  for (HostData* data : {&plain, &given}) {
    copy(conv, "y", *data, "x");
    copy(plain, "gamma", *data, "gamma");
    copy(plain, "beta", *data, "beta");
  }
  copy(conv, "mean", given, "slab_mean");
  copy(conv, "m2", given, "slab_m2");
  ASSERT_TRUE(given.run_host().ok());
  const std::vector<double> expected = plain.reference("y");
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(given.get("y", static_cast<std::int64_t>(i)), expected[i], 2e-5) << i;
}

TEST(conv2d_statistics, AreThoseThatGroupnormTakes) {
  expect_same_norm("n=2,h=9,w=9,cin=5,cout=12,image_shift=1,stats=1", "n=2,hw=81,channels=12,groups=4", "given");
  expect_same_norm("n=1,h=16,w=16,cin=3,cout=6,stride=2,act=silu,stats=1", "n=1,hw=64,channels=6,groups=3", "given");
  expect_same_norm("n=2,h=9,w=5,cin=7,cout=8,upsample=1,stats=1", "n=2,hw=180,channels=8,groups=2", "quarters");
}

// Statistics of other data give another norm: the test above can fail.
TEST(conv2d_statistics, AreUsed) {
  const Op op = make_op(groupnorm::definition);
  HostData data(op, op.parse("n=1,hw=100,channels=8,groups=2,slab_stats=given"), DType::fp32, 3);
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_EQ(data.difference(), "");
  data.set("slab_mean", std::vector<double>(16, 100));
  EXPECT_NE(data.difference(), "");
}

}  // namespace
}  // namespace noisefloor
