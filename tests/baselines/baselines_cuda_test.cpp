// What the vendors' baselines say without a device: which problems they refuse, and why.
#include <gtest/gtest.h>

#include <string>

#include "baselines/baseline.h"
#include "kernels/catalogue.h"
#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

const Baseline& baseline(const std::string& op) {
  for (const Baseline& row : baselines())
    if (op == row.op) return row;
  throw std::logic_error("no baseline of " + op);
}

std::string refusal(const std::string& op, const std::string& problem) {
  const Support support = baseline(op).can_run(find_op(op)->parse(problem), DType::bf16);
  return support ? "" : support.reason;
}

TEST(Baselines, NameOpsOfTheCatalogue) {
  ASSERT_FALSE(baselines().empty());
  for (const Baseline& row : baselines()) EXPECT_NE(find_op(row.op), nullptr) << row.op;
}

TEST(Baselines, CublasLtRunsWhatItsEpiloguesExpress) {
  EXPECT_EQ(refusal("gemm", "m=8,n=8,k=8"), "");
  EXPECT_EQ(refusal("gemm", "m=8,n=8,k=8,scale=0.5,bias=0,residual=1"), "");
  EXPECT_EQ(refusal("gemm", "m=8,n=8,k=8,act=gelu_tanh"), "");
  EXPECT_NE(refusal("gemm", "m=8,n=8,k=8,act=gelu").find("tanh"), std::string::npos);
  EXPECT_NE(refusal("gemm", "m=8,n=8,k=8,act=silu").find("SiLU"), std::string::npos);
  EXPECT_NE(refusal("gemm", "m=8,n=8,k=8,act=geglu").find("gated"), std::string::npos);
  EXPECT_NE(refusal("gemm", "m=8,n=8,k=8,act=gelu_tanh,residual=1").find("residual"), std::string::npos);
}

TEST(Baselines, CudnnSaysWhatItCannotExpress) {
  EXPECT_EQ(refusal("sampler_step", "batch=2,elements=4096,solver=ddpm,noise=given"), "");
  EXPECT_NE(refusal("sampler_step", "batch=2,elements=4096,solver=ddpm,noise=drawn").find("Philox"), std::string::npos);
  EXPECT_NE(refusal("sampler_step", "batch=1,elements=3,solver=ddim,guidance=2").find("aligned"), std::string::npos);
  EXPECT_EQ(refusal("attention", "batch=2,heads=8,seq_q=64,seq_kv=77,dim=40,lse=1"), "");
  EXPECT_NE(refusal("attention", "batch=2,heads=8,seq_q=64,seq_kv=77,dim=20").find("multiple of 8"), std::string::npos);
  EXPECT_NE(refusal("attention", "batch=2,heads=8,seq_q=64,seq_kv=64,dim=40,layout=packed_hd3").find("contiguous"),
            std::string::npos);
  EXPECT_EQ(refusal("temporal_attention", "batch=2,frames=14,hw=9,heads=5,dim=64,layout=packed_h3d"), "");
  EXPECT_NE(refusal("temporal_attention", "batch=2,frames=14,hw=9,heads=5,dim=64,layout=packed_3hd").find("far apart"),
            std::string::npos);
  EXPECT_NE(refusal("conv2d", "n=2,h=4,w=4,cin=8,cout=8,image_shift=1").find("per-image bias"), std::string::npos);
  EXPECT_EQ(refusal("conv2d_dgrad", "n=2,h=4,w=4,cin=8,cout=8,stride=2,scale=2,residual=1"), "");
  EXPECT_NE(refusal("conv2d_dgrad", "n=2,h=4,w=4,cin=8,cout=8,upsample=1").find("upsample"), std::string::npos);
  EXPECT_EQ(refusal("conv2d_wgrad", "n=2,h=4,w=4,cin=8,cout=8"), "");
  EXPECT_NE(refusal("conv2d_wgrad", "n=2,h=4,w=4,cin=8,cout=8,upsample=1").find("upsample"), std::string::npos);
  EXPECT_NE(refusal("conv2d_wgrad", "n=2,h=4,w=4,cin=8,cout=8,image_shift=1").find("image"), std::string::npos);
  EXPECT_NE(refusal("conv3d_temporal", "batch=2,frames=4,hw=16,cin=8,cout=8,image_shift=1").find("per-image bias"),
            std::string::npos);
  EXPECT_NE(refusal("groupnorm", "n=2,hw=64,channels=64,groups=32").find("groups"), std::string::npos);
}

// Whatever is missing on this machine (the library, or a device for it), the program hears of it by an exception.
TEST(Baselines, CreateFailsWithWords) {
  const auto problem = find_op("groupnorm")->parse("n=2,hw=64,channels=64,groups=32");
  expect_parts(
      refusal_of<LibraryRefused>([&] { return baseline("groupnorm").create(problem, DType::bf16, DeviceInfo{}, {}); }),
      {"cuDNN"});
}

}  // namespace
}  // namespace noisefloor
