// Rows of variants that this build has no launcher for: left out of the build, or not written yet.
#include <gtest/gtest.h>

#include "bench/measure/case_row.h"
#include "bench/measure/case_runner.h"
#include "kernels/catalogue.h"

namespace noisefloor {
namespace {

std::optional<SweepRow> row_of(std::optional<std::string> not_written) {
  const Op& op = *find_op("gemm");
  AnyVariant variant = op.variants.front();
  variant.built = false;
  variant.not_written = std::move(not_written);
  Case test_case;
  test_case.text = "m=1,n=1,k=1";
  test_case.problem = op.parse(test_case.text);
  SuiteEntry entry{&op, {}, nullptr};
  test_case.entry = &entry;
  test_case.implementation = implementation_of(variant);
  PlatformDescription host;
  host.is_host = true;
  return refused(test_case, host, "x86-64");
}

TEST(NotBuilt, SaysWhyInTheRow) {
  const auto left_out = row_of(std::nullopt), not_written = row_of("waits for the naive rung");
  ASSERT_TRUE(left_out && not_written);
  EXPECT_EQ(left_out->status, Outcome::not_built);
  EXPECT_EQ(left_out->reason.find("needs host; this build has "), 0u) << left_out->reason;
  EXPECT_EQ(not_written->status, Outcome::not_built);
  EXPECT_EQ(not_written->reason, "not written yet: waits for the naive rung");
}

}  // namespace
}  // namespace noisefloor
