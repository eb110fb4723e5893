// What ptx_sm80_narrow takes, and how its rows lie in shared memory.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include "kernels/convolution/convolution.h"

namespace noisefloor::convolution {
namespace {

std::string why_not(const Convolution& c, DType dtype = DType::bf16) {
  const Support support = can_run_ptx_sm80_narrow(c, dtype);
  return support ? "" : support.reason;
}

TEST(ConvolutionNarrow, TakesFewChannelsUnderSeveralTaps) {
  EXPECT_EQ(why_not(plain(1, 64, 64, 3, 192, 3, 1, 1)), "");
  EXPECT_EQ(why_not(plain(1, 64, 64, 32, 1, 3, 2, 1)), "");
  EXPECT_EQ(why_not(plain(3, 5, 7, 11, 13, 5, 1, 2)), "");  // 25 taps, 275 terms
  EXPECT_EQ(why_not(upsampled_phases(2, 8, 8, 32, 16)), "");
  EXPECT_NE(why_not(plain(1, 64, 64, 33, 192, 3, 1, 1)).find("32 input channels"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 32, 192, 1, 1, 0)).find("several taps"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 12, 192, 5, 1, 2)).find("288 terms"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 1, 192, 6, 1, 2)).find("32 taps"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 3, 192, 3, 1, 1), DType::fp32).find("bf16"), std::string::npos);
  EXPECT_NE(why_not(plain(1 << 20, 64, 64, 3, 192, 3, 1, 1)).find("2^31"), std::string::npos);
  Convolution c = plain(1, 8, 8, 16, 16, 3, 1, 1);
  c.norm = Norm::affine;
  EXPECT_NE(why_not(c).find("norm"), std::string::npos);
}

// The eight rows that an ldmatrix reads together, 16 bytes each, in distinct banks; and a row has room for its terms.
RC_GTEST_PROP(ConvolutionNarrow, RowsOfAnyLengthLieInDifferentBanks, ()) {
  const auto terms = *rc::gen::inRange(2, kNarrowTerms + 1);
  const int bytes = narrow_row_bytes(terms);
  RC_ASSERT(narrow_steps(terms) * 16 >= terms && (narrow_steps(terms) - 1) * 16 < terms);
  RC_ASSERT(bytes >= narrow_steps(terms) * 32 && bytes % 16 == 0);
  std::set<int> banks;
  for (int row = 0; row < 8; ++row) banks.insert(row * bytes % 128);
  RC_ASSERT(banks.size() == 8u);
}

}  // namespace
}  // namespace noisefloor::convolution
