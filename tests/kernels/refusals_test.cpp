// What every op refuses: problems that make no sense, by a message with the field in it, and of each variant what it
// cannot run, by a reason.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/catalogue.h"
#include "kernels/core/listed.h"
#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

// "" where it is taken.
std::string message_of(const char* op, const std::string& text) {
  return refusal_of([&] { return find_op(op)->parse(text); });
}

// `words` are in what is said; nothing is said where there are none.
void expect_said(const std::string& said, const std::string& words) {
  if (words.empty()) {
    EXPECT_EQ(said, "");
  } else {
    EXPECT_NE(said.find(words), std::string::npos) << "said: '" << said << "', without: " << words;
  }
}

TEST(Refusals, OfProblemsNameFieldAndRange) {
  const struct {
    const char *op, *text, *words;
  } kTable[] = {
      {"gemm", "m=1,n=2", "field 'k' is missing"},
      {"gemm", "m=1,n=2,k=0", "field 'k' is 0, outside 1 to 16777216"},
      {"gemm", "m=1,n=2,k=x", "field 'k' is 'x', not a whole number from 1 to 16777216"},
      {"gemm", "m=1,n=2,k=99999999999999999999", "'99999999999999999999', not a whole number from 1 to 16777216"},
      {"gemm", "m=1,n=2,k=3,acct=silu", "unknown field 'acct'; did you mean 'act'?"},
      {"gemm", "m=1,n=2,k=3,act=silo", "not one of none, silu, gelu, gelu_tanh, geglu; did you mean 'silu'?"},
      {"gemm", "m=1,m=2,k=3", "field 'm' is given twice"},
      {"gemm", "m=1,n=2,k=3,", "ends with a comma"},
      {"gemm", "m", "expected field=value, got 'm'"},
      {"gemm", "m=1,n=2,k=3,scale=nan", "field 'scale' is 'nan', not a number from -1e+06 to 1e+06"},
      {"layernorm", "rows=1,channels=2,colour=3", "unknown field 'colour'; known: rows, channels, "},
      {"layernorm", "rows=5,channels=8,images=2", "images=2 does not divide rows=5"},
      {"gemm", "m=1,n=2,k=3,row_sums=1", "row_sums goes with layout=tn"},
      {"gemm", "m=1,n=2,k=3,layout=nn,act=silu", "act=none"},
      {"gemm", "m=1,n=8,k=3,to=fp32,part_columns=8", "part_columns=0"},
      {"attention_backward", "batch=1,heads=1,seq_q=4,seq_kv=5,dim=8,layout=packed_3hd", "seq_kv"},
      {"elementwise", "op=relu,channels=8,scale=2", "scale is for op=add"},
      {"elementwise", "op=add,channels=8,to=fp32", "to is for op=cast"},
      {"elementwise", "op=silo,channels=8", "did you mean 'silu'"},
      {"resample", "op=average_down2,h=3,w=2,channels=1", "takes even ones"},
      {"resample", "op=concat,h=1,w=1,channels=1", "skip_channels is 0"},
      {"resample", "op=split,h=1,w=1,channels=1", "skip_channels is 0"},
      {"resample", "op=split,h=1,w=1,channels=1,skip_channels=1,scale=2", "scale is for op=nearest_up2"},
      {"groupnorm_backward", "hw=4,channels=6,groups=4,n=1", "groups=4 does not divide channels=6"},
      {"groupnorm_backward", "hw=1,channels=6,groups=6,n=1", "2 and more"},
      {"groupnorm_backward", "hw=4,channels=6,groups=3,n=1,packed=1", "needs fusion=silu+ss"},
      {"groupnorm_backward", "hw=4,channels=6,groups=3,n=1,residual_scale=2", "needs residual=1"},
      {"layernorm_backward", "rows=4,channels=2,eps=1e-12", "eps=1e-12"},
      {"layernorm_backward", "rows=4,channels=1", "2 to 65536"},
      {"layernorm_backward", "rows=4,channels=8,residual_scale=2", "needs residual=1"},
      {"resample", "op=nearest_up2,h=1,w=1,channels=65537", "1 to 65536"},
      // Not one element more than 2^33, whatever the other fields are; nothing overflows on the way.
      {"resample", "op=concat,h=1,w=1,channels=4294967296,skip_channels=4294967296", ""},
      {"resample", "op=concat,n=2,h=1,w=1,channels=4294967296,skip_channels=1", "more than 2^33"},
      {"resample", "op=concat,n=65535,h=16384,w=16384,channels=4294967296,skip_channels=4294967296", "more than 2^33"},
      {"timestep_embedding", "batch=1,channels=3", "an even number"},
      {"timestep_embedding", "batch=1,channels=4,final_silu=1", "hidden from 1 on"},
      {"q_sample", "batch=1,elements=4,keep=1", "keep is for noise=drawn"},
      {"edm_precondition", "side=input,batch=1,elements=4,sigma_data=0", "0.001 to 1000"},
      {"attention", "batch=1,heads=1,seq_q=4,seq_kv=5,dim=8,layout=packed_3hd", "seq_kv"},
      {"attention", "batch=1,heads=1,seq_q=4,seq_kv=5,dim=513", "dim"},
      {"attention", "batch=1048576,heads=1024,seq_q=1048576,seq_kv=1,dim=256", "2^40"},
      {"temporal_attention", "batch=1,frames=33,hw=4,heads=1,dim=8", "frames"},
      {"temporal_attention", "batch=1048576,frames=32,hw=16777216,heads=1024,dim=256", "2^40"},
      {"groupnorm", "n=1,hw=4,channels=8,groups=4,fusion=silu,packed=1", "packed"},
      {"groupnorm", "n=1,hw=4,channels=8,groups=4,fusion=silu+ss,packed=2", "packed"},
      {"groupnorm", "n=1,hw=4,channels=10,groups=4", "groups=4 does not divide channels=10"},
      {"groupnorm", "n=1,hw=4,channels=8,groups=4,fusion=gelu", "fusion"},
      {"groupnorm", "n=32767,hw=1073741824,channels=65536,groups=1", "2^40"},
      {"groupnorm", "n=2,hw=5,channels=12,groups=4,skip_channels=12", "0 to 11"},
      {"groupnorm", "n=2,hw=5,channels=12,groups=4,skip_channels=-1", "skip_channels"},
      {"groupnorm", "n=2,hw=5,channels=12,groups=4,skip_channels=4,slab_stats=given", "slab_stats=none"},
      {"groupnorm", "n=2,hw=5,channels=12,groups=4,skip_channels=4,coefficients=1", "coefficients=0"},
      {"groupnorm", "n=1,hw=10,channels=8,groups=2,slab_stats=quarters", " "},
      {"groupnorm", "n=1,hw=10,channels=8,groups=2,skip_channels=4,fp32_affine=1", "skip_channels=0"},
      {"groupnorm", "n=2,hw=48,channels=12,groups=4,down_w=16", "down_w=16 must be even, 2 to hw / 2"},
      {"sampler_step", "batch=1,elements=4,solver=ddpm", "field noise"},
      {"sampler_step", "batch=1,elements=4,solver=ddpm,step=49", ""},
      {"sampler_step", "batch=1,elements=4,solver=ddim,noise=given", "field noise"},
      {"sampler_step", "batch=1,elements=4,solver=edm_euler,noise=drawn", "field noise"},
      {"sampler_step", "batch=1,elements=4,solver=ddim,schedule=karras", "field schedule"},
      {"sampler_step", "batch=1,elements=4,solver=dpmpp_2m,eta=1", "field eta"},
      {"sampler_step", "batch=1,elements=4,solver=ddim,half=second", "field half"},
      {"sampler_step", "batch=1,elements=4,solver=edm_heun,half=second,step=49", "field half"},
      {"sampler_step", "batch=1,elements=4,solver=ddim,steps=10,step=10", "0 to 9"},
      {"sampler_step", "batch=1,elements=4,solver=ddmi", "ddim"},
      {"sampler_step", "batch=65536,elements=1000000,solver=ddim", "2^33"},
  };
  for (const auto& [op, text, words] : kTable) {
    SCOPED_TRACE(std::string(op) + " " + text);
    expect_said(message_of(op, text), words);
  }
}

// Whatever the words are: what stands in front of each, and what makes no sense behind it.
TEST(Refusals, OfProblemsThatMakeNoSense) {
  const struct {
    const char *op, *common;
    std::vector<const char*> bad;
  } kTable[] = {
      {"gemm",
       "k=3,",
       {"m=16777216,n=16777216", "m=1,n=16,part_columns=4", "m=1,n=24,part_columns=16", "m=1,n=16,part_columns=32",
        "m=1,n=16,part_columns=8,residual=1", "m=1,n=16,part_columns=8,act=geglu", "m=1,n=2,image_shift=1,images=2",
        "m=1,n=2,image_shift=1,act=geglu", "m=1,n=2,blend=1", "m=6,n=2,images=3"}},
      {"conv2d",
       "n=1,h=4,w=4,cin=1,cout=1,",
       {"kernel=2,stride=1", "kernel=2,pad=1", "kernel=6", "stride=3", "kernel=1,upsample=1", "stride=2,upsample=1",
        "pad=0,upsample=1", "act=gelu", "upsample=1,side=1", "side_skip=1", "side=-1", "residual_upsample=1",
        "upsample=1,residual=1,residual_upsample=1"}},
      {"conv2d",
       "cin=1,cout=1,",
       {"n=1,h=2,w=4,kernel=3,pad=0", "n=0,h=4,w=4", "n=32767,h=1024,w=1024", "n=32767,h=256,w=256,side=513",
        "n=1,h=4,w=5,residual=1,residual_upsample=1", "n=1,h=3,w=4,residual=1,residual_upsample=1"}},
      {"conv2d_dgrad",
       "n=1,h=4,w=4,cin=1,cout=1,",
       {"kernel=2,stride=1", "stride=3", "kernel=1,upsample=1", "pad=0,upsample=1", "residual_scale=2", "scale=inf",
        "kernel=9,pad=1"}},
      {"conv2d_wgrad",
       "cin=1,cout=1,",
       {"n=1,h=2,w=4,kernel=3,pad=0", "n=0,h=4,w=4", "n=32767,h=1024,w=1024", "n=1,h=4,w=4,kernel=4,pad=0"}},
      {"conv3d_temporal", "cin=1,cout=1,", {"batch=1,frames=0,hw=3", "batch=32767,frames=4096,hw=1024"}},
      {"conv_transpose2d",
       "cin=1,cout=1,",
       {"n=1,h=2,w=3,kernel=3", "n=1,h=2,w=3,kernel=5", "n=1,h=0,w=3", "n=512,h=1024,w=1024"}},
      {"groupnorm",
       "n=2,hw=48,channels=12,groups=4,fusion=silu,down_w=",
       {"-2", "1", "3", "5", "10", "16", "48", "96", "6,coefficients=1", "6,skip_channels=4"}},
  };
  for (const auto& [op, common, all] : kTable)
    for (const char* bad : all) EXPECT_NE(message_of(op, std::string(common) + bad), "") << op << " " << common << bad;
  for (const char* good : {"2", "4", "6", "8", "12", "24", "6,slab_stats=given", "4,slab_stats=quarters"})
    EXPECT_EQ(message_of("groupnorm", std::string("n=2,hw=48,channels=12,groups=4,fusion=silu,down_w=") + good), "");
}

constexpr const char *kMoves = "not applicable: moving data has no arithmetic for tensor cores to do",
                     *kFast = "tiled,tensor_core_sm80,ptx_sm90a", *kHalf = "needs bf16 or fp16", *kAny = " ";

TEST(Refusals, OfVariantsSayWhatTheyNeed) {
  using enum DType;
  const struct {
    const char *op, *variants, *text;
    DType dtype;
    const char* words;  // kAny: whatever they are
  } kTable[] = {
      {"elementwise", "tensor_core_sm80", "op=cast,channels=8", bf16, kMoves},
      {"elementwise", "tensor_core_sm80", "op=nchw_to_nhwc,hw=8,channels=8", bf16, kMoves},
      {"elementwise", "tensor_core_sm80", "op=silu_fma,channels=8", bf16, "not applicable"},
      {"elementwise", "ptx_sm90a", "op=geglu,hw=2,channels=8", bf16, "in the order of y"},
      {"elementwise", "tiled", "op=nchw_to_nhwc,hw=7,channels=3", bf16, ""},
      {"elementwise", "ptx_sm90a", "op=nchw_to_nhwc,hw=7,channels=8", bf16, kAny},
      {"elementwise", "tiled", "op=geglu,hw=2,channels=4", bf16, kAny},  // 8 bytes a half row
      {"elementwise", "tiled", "op=geglu,hw=2,channels=4", fp32, ""},
      {"resample", "tensor_core_sm80", "op=nearest_up2,h=2,w=2,channels=8", bf16, kMoves},
      {"resample", "tensor_core_sm80", "op=average_down2,h=2,w=2,channels=8", bf16, ""},
      {"resample", "ptx_sm90a", "op=average_down2,h=2,w=2,channels=8", bf16, "tiled"},
      {"resample", "ptx_sm90a", "op=concat,h=2,w=2,channels=8,skip_channels=8", bf16, ""},
      {"resample", "tensor_core_sm80", "op=average_down2,h=2,w=2,channels=8,scale=4", bf16, ""},
      {"resample", "tensor_core_sm80", "op=split,h=2,w=2,channels=8,skip_channels=8", bf16, kMoves},
      {"resample", "ptx_sm90a", "op=nearest_up2,h=2,w=2,channels=8,scale=0.25", bf16, ""},
      {"resample", "ptx_sm90a", "op=split,h=2,w=2,channels=8,skip_channels=8", bf16, ""},
      {"resample", "naive,tiled", "op=split,h=2,w=2,channels=8,skip_channels=8", bf16, ""},
      {"edm_precondition", "tensor_core_sm80,tiled,ptx_sm90a", "side=gradient,batch=2,elements=8", bf16, ""},
      {"groupnorm_backward", "naive,tiled", "n=1,hw=3,channels=7,groups=7", fp16, ""},
      {"conv2d_dgrad", "ptx_sm80_narrow", "n=1,h=8,w=8,cin=64,cout=3", bf16, ""},
      {"conv2d_dgrad", "ptx_sm80_narrow", "n=1,h=8,w=8,cin=3,cout=33", bf16, "needs cout to be at most 32"},
      {"conv2d_dgrad", "ptx_sm80_narrow", "n=1,h=8,w=8,cin=64,cout=3,kernel=1", bf16, "several taps"},
      {"conv2d_dgrad", "ptx_sm80_narrow", "n=1,h=8,w=8,cin=64,cout=3,upsample=1", bf16, "no upsample"},
      {"layernorm_backward", "tiled", "rows=2,channels=8192,residual=1", bf16, ""},
      {"layernorm_backward", "tiled", "rows=2,channels=8200", bf16, kAny},
      {"layernorm_backward", "tiled", "rows=2,channels=7", fp32, "multiple of 16 bytes"},
      {"sampler_step", "tensor_core_sm80", "batch=1,elements=8,solver=ddim", fp16, "needs bf16"},
      {"sampler_step", kFast, "batch=1,elements=8,solver=ddim", bf16, ""},
      {"resample", "tiled", "op=concat,h=1,w=1,channels=786432,skip_channels=786432", fp32, ""},
      {"resample", "tiled", "op=concat,h=1,w=1,channels=4294967296,skip_channels=4294967296", fp32, kAny},
      {"q_sample", kFast, "batch=2,elements=8", bf16, ""},
      {"q_sample", kFast, "batch=2,elements=9", bf16, "needs rows that are a multiple of 16 bytes long"},
      {"layernorm", kFast, "rows=2,channels=320", fp16, ""},
      {"layernorm", kFast, "rows=2,channels=320,residual=1", fp16, ""},
      {"layernorm", "tiled,ptx_sm90a", "rows=2,channels=65536", bf16, kAny},
      {"layernorm", kFast, "rows=2,channels=32768", bf16, ""},
      {"timestep_embedding", "tensor_core_sm80", "batch=1,channels=16", bf16, kAny},
      {"timestep_embedding", "tiled,ptx_sm90a", "batch=5,channels=34", bf16, ""},
      {"timestep_embedding", "tiled,ptx_sm90a", "batch=5,channels=34,hidden=64", bf16, kAny},
      {"timestep_embedding", "tiled,ptx_sm90a", "batch=5,channels=32,hidden=33", bf16, kAny},
      {"attention", "tensor_core_sm80,ptx_sm90a", "batch=2,heads=3,seq_q=65,seq_kv=81,dim=40", bf16, ""},
      {"attention", "tensor_core_sm80,ptx_sm90a", "batch=2,heads=3,seq_q=65,seq_kv=81,dim=40", fp32, kHalf},
      {"attention", "tensor_core_sm80,ptx_sm90a", "batch=2,heads=3,seq_q=65,seq_kv=65,dim=40,layout=packed_hd3", bf16,
       "packed_3hd"},
      {"attention", "tensor_core_sm80,ptx_sm90a", "batch=1,heads=1,seq_q=1,seq_kv=1,dim=20", fp16, "8"},
      {"attention", "host,naive,tiled", "batch=2,heads=3,seq_q=65,seq_kv=65,dim=40,layout=packed_hd3", fp32, ""},
      {"attention", "ptx_sm90a", "batch=1,heads=1,seq_q=9,seq_kv=9,dim=264", bf16, "256"},
      {"attention", "ptx_sm90a_short", "batch=2,heads=3,seq_q=65,seq_kv=81,dim=40", bf16, "80"},
      {"attention", "ptx_sm90a_short", "batch=2,heads=3,seq_q=65,seq_kv=80,dim=40", bf16, ""},
      {"attention", "ptx_sm90a_wide", "batch=1,heads=1,seq_q=4096,seq_kv=4096,dim=256", bf16, "above 256"},
      {"attention", "ptx_sm90a_wide", "batch=1,heads=1,seq_q=9,seq_kv=9,dim=512,layout=packed_3hd", bf16, ""},
      {"attention", "ptx_sm90a_wide", "batch=1,heads=1,seq_q=1,seq_kv=3,dim=264", fp16, ""},
      {"attention", "ptx_sm90a_wide", "batch=1,heads=1,seq_q=1,seq_kv=3,dim=260", fp16, "8"},
      {"attention", "ptx_sm90a_wide", "batch=1,heads=1,seq_q=9,seq_kv=9,dim=512", fp32, kHalf},
      {"attention", "ptx_sm90a_wide", "batch=1,heads=1,seq_q=9,seq_kv=9,dim=512,layout=packed_hd3", bf16, "packed_3hd"},
      {"attention", "ptx_sm90a_wide", "batch=1048576,heads=1024,seq_q=1,seq_kv=1,dim=264", bf16, "2^30"},
      {"temporal_attention", "tensor_core_sm80,ptx_sm90a", "batch=1,frames=3,hw=2,heads=1,dim=8,layout=packed_hd3",
       bf16, "packed_3hd"},
      {"groupnorm", "host,naive,tiled,tensor_core_sm80,ptx_sm90a,ptx_sm90a_grid", "n=1,hw=64,channels=192,groups=32",
       bf16, ""},
      {"groupnorm", "tiled", "n=1,hw=5,channels=7,groups=7", fp32, ""},
      {"groupnorm", "tensor_core_sm80,ptx_sm90a,ptx_sm90a_grid", "n=1,hw=64,channels=192,groups=32", fp32, kHalf},
      {"groupnorm", "tensor_core_sm80", "n=1,hw=5,channels=24,groups=8", bf16, kAny},
      {"groupnorm", "ptx_sm90a", "n=1,hw=5,channels=20,groups=4", bf16, kAny},
      {"groupnorm", "ptx_sm90a", "n=2,hw=129024,channels=320,groups=32", bf16, kAny},
      {"groupnorm", "ptx_sm90a_grid", "n=2,hw=129024,channels=320,groups=32", bf16, ""},
      {"groupnorm", "ptx_sm90a_grid", "n=1,hw=4000000,channels=320,groups=32", bf16, ""},
      {"groupnorm", "ptx_sm90a_grid", "n=1,hw=170000000,channels=32,groups=32", bf16, kAny},
      {"groupnorm_backward", "ptx_sm90a_grid", "n=1,hw=170000000,channels=32,groups=32", bf16, kAny},
      {"groupnorm", "ptx_sm90a", "n=2,hw=16384,channels=640,groups=32", bf16, "see ptx_sm90a_grid"},
      {"groupnorm", "ptx_sm90a", "n=2,hw=16384,channels=640,groups=32,skip_channels=320", bf16, ""},
      {"groupnorm", "ptx_sm90a_grid", "n=2049,hw=4,channels=320,groups=32", bf16, "needs n * groups <= 2^16"},
      // Coefficients alone: of given statistics everywhere but in the grid's kernel, else where a second pass is left
      // out.
      {"groupnorm", "host,naive,tiled,tensor_core_sm80", "n=1,hw=64,channels=192,groups=32,coefficients=1", bf16, ""},
      {"groupnorm", "ptx_sm90a,ptx_sm90a_grid", "n=1,hw=64,channels=192,groups=32,coefficients=1", bf16, kAny},
      {"groupnorm", "host,naive,tiled,tensor_core_sm80,ptx_sm90a",
       "n=1,hw=64,channels=192,groups=32,coefficients=1,slab_stats=given", bf16, ""},
      {"groupnorm", "ptx_sm90a", "n=1,hw=64,channels=192,groups=32,coefficients=1,slab_stats=given", fp32, kHalf},
      {"groupnorm", "ptx_sm90a", "n=1,hw=64,channels=13,groups=13,coefficients=1,slab_stats=given", bf16, kAny},
      {"groupnorm", "ptx_sm90a", "n=1,hw=64,channels=32,groups=32,coefficients=1,slab_stats=given", bf16, kAny},
      {"groupnorm", "ptx_sm90a", "n=1,hw=64,channels=30,groups=5,coefficients=1,slab_stats=given", bf16, kAny},
      {"groupnorm", "ptx_sm90a", "n=1,hw=64,channels=320,groups=2,coefficients=1,slab_stats=given", bf16, kAny},
      // Two tensors: the definition's variants and ptx_sm90a, which reads 16 bytes of one of them.
      {"groupnorm", "host,naive,ptx_sm90a", "n=1,hw=64,channels=192,groups=32,skip_channels=64", bf16, ""},
      {"groupnorm", "tiled,tensor_core_sm80,ptx_sm90a_grid", "n=1,hw=64,channels=192,groups=32,skip_channels=64", bf16,
       "needs skip_channels=0"},
      {"groupnorm", "ptx_sm90a", "n=1,hw=64,channels=192,groups=32,skip_channels=60", bf16,
       "needs skip_channels divisible by 8"},
      {"groupnorm", "naive", "n=1,hw=64,channels=192,groups=32,skip_channels=61", fp32, ""},
      // Halved: wherever rows can be taken by fours.
      {"groupnorm", "host,naive,tiled,tensor_core_sm80,ptx_sm90a", "n=1,hw=64,channels=192,groups=32,down_w=8", bf16,
       ""},
      {"groupnorm", "ptx_sm90a_grid", "n=1,hw=64,channels=192,groups=32,down_w=8", bf16, "needs down_w=0"},
      {"groupnorm", "tensor_core_sm80,ptx_sm90a", "n=1,hw=64,channels=192,groups=32,down_w=8,slab_stats=given", bf16,
       kAny},
      {"groupnorm", "tiled", "n=1,hw=64,channels=192,groups=32,down_w=8,slab_stats=given", bf16, ""},
      // Offsets of scale and shift are 32 bits wide there.
      {"groupnorm", "ptx_sm90a", "n=32767,hw=1,channels=65536,groups=64,fusion=silu+ss", bf16, ""},
      {"groupnorm", "ptx_sm90a", "n=32767,hw=1,channels=65536,groups=64,fusion=silu+ss,packed=1", bf16,
       "needs 2 * n * channels < 2^31"},
      {"gemm", "host,naive,tiled", "m=1,n=1,k=1", fp32, ""},
      {"gemm", "host,naive,tiled,tensor_core_sm75", "m=1,n=1,k=8", fp16, ""},
      {"gemm", "host,naive,tiled,tensor_core_sm80", "m=1,n=1,k=8", bf16, ""},
      {"gemm", "tensor_core_sm75", "m=1,n=1,k=8", bf16, kAny},
      {"gemm", "tensor_core_sm80", "m=1,n=1,k=12", bf16, kAny},
      {"gemm", "tensor_core_sm80", "m=1,n=1,k=8", fp32, kAny},
      {"gemm", "naive", "m=16777216,n=65536,k=1", bf16, kAny},  // 2^32 tiles of 16x16
      {"conv2d", "host,naive", "n=1,h=3,w=3,cin=1,cout=1,kernel=7,pad=3,stride=2,stats=1", bf16, ""},
      {"conv2d", "host,naive", "n=1,h=3,w=3,cin=1,cout=1,kernel=7,pad=3,stride=2,stats=1", fp16, ""},
      {"conv2d", "host,naive", "n=1,h=3,w=3,cin=1,cout=1,kernel=7,pad=3,stride=2,stats=1", fp32, ""},
      // A second source, a residual of half the size, a norm in front: by name where a variant has none.
      {"conv2d", "host,naive,ptx_sm90a,ptx_sm90a_halo", "n=1,h=8,w=8,cin=64,cout=64,side=64,side_skip=8", bf16, ""},
      {"conv2d", "tiled,tensor_core_sm80", "n=1,h=8,w=8,cin=64,cout=64,side=64,side_skip=8", bf16, "second source"},
      {"conv2d", "ptx_sm80_narrow", "n=1,h=8,w=8,cin=16,cout=64,side=64", bf16, "second source"},
      {"conv2d", "ptx_sm90a_pointwise", "n=1,h=8,w=8,cin=64,cout=64,kernel=1,side=64", bf16, "second source"},
      {"conv2d", "ptx_sm90a", "n=1,h=8,w=8,cin=64,cout=64,side=64,stride=2,stats=1", bf16, ""},
      {"conv2d", "ptx_sm90a_halo", "n=1,h=8,w=8,cin=64,cout=64,side=64,stats=1,patches=1", bf16, ""},
      {"conv2d", "ptx_sm90a", "n=1,h=8,w=8,cin=64,cout=64,side=12", bf16, "side and side_skip to be multiples of 8"},
      {"conv2d", "ptx_sm90a", "n=1,h=8,w=8,cin=64,cout=64,side=8,side_skip=4", bf16, "multiples of 8"},
      {"conv2d", "ptx_sm90a", "n=1,h=8,w=8,cin=3,cout=64,side=8", bf16, "cin to be a multiple of 8"},
      {"conv2d", "ptx_sm90a_halo", "n=1,h=8,w=8,cin=64,cout=64,side=8,norm=affine", bf16, "norms no input"},
      {"conv2d", "host,naive,tiled,ptx_sm90a_halo", "n=1,h=8,w=8,cin=64,cout=64,residual=1,residual_upsample=1", bf16,
       ""},
      {"conv2d", "tensor_core_sm80,ptx_sm90a", "n=1,h=8,w=8,cin=64,cout=64,residual=1,residual_upsample=1", bf16,
       "no residual of half"},
      {"conv2d", "ptx_sm80_narrow", "n=1,h=8,w=8,cin=16,cout=64,residual=1,residual_upsample=1", bf16,
       "no residual of half"},
      {"conv2d", "ptx_sm90a_pointwise", "n=1,h=8,w=8,cin=64,cout=64,kernel=1,residual=1,residual_upsample=1", bf16,
       "no residual of half"},
      {"conv2d", "ptx_sm80_narrow", "n=1,h=8,w=8,cin=16,cout=64,residual=1", bf16, ""},
      {"conv2d", "ptx_sm90a_pointwise", "n=1,h=8,w=8,cin=64,cout=64,kernel=1,residual=1", bf16, ""},
      {"conv2d", "ptx_sm90a_pointwise", "n=2,h=3,w=5,cin=16,cout=24,kernel=1,image_shift=1,act=silu,bias=0", fp16, ""},
      {"conv2d", "ptx_sm90a_pointwise", "n=2,h=3,w=5,cin=16,cout=24,kernel=1", fp32, kAny},
      {"conv2d", "ptx_sm90a_pointwise", "n=2,h=3,w=5,cin=12,cout=24,kernel=1", bf16, kAny},
      {"conv2d", "ptx_sm90a_pointwise", "n=2,h=3,w=5,cin=16,cout=24", bf16, kAny},
      {"conv2d", "ptx_sm90a_pointwise", "n=2,h=3,w=5,cin=16,cout=24,kernel=1,stride=2", bf16, kAny},
      {"conv2d", "host,naive,tiled,ptx_sm90a_halo", "n=1,h=8,w=8,cin=64,cout=64,norm=affine+silu", bf16, ""},
      {"conv2d", "tensor_core_sm80,ptx_sm80_narrow,ptx_sm90a", "n=1,h=8,w=8,cin=64,cout=64,norm=affine+silu", bf16,
       "no norm of the input"},
  };
  for (const auto& [op, variants, text, dtype, words] : kTable)
    for (const std::string& variant : split_list(variants)) {
      SCOPED_TRACE(std::string(op) + " " + variant + " " + text + " " + to_string(dtype));
      const auto row = std::ranges::find(find_op(op)->variants, variant, &AnyVariant::name);
      ASSERT_NE(row, find_op(op)->variants.end());
      const Support support = row->can_run(find_op(op)->parse(text), dtype);
      expect_said(support ? "" : support.reason, words);
    }
}

}  // namespace
}  // namespace noisefloor
