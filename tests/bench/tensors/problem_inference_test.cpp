// Problems found from the shapes of tensors, for every op and problem of the tests.
#include "bench/tensors/problem_inference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "bench/measure/fixture.h"
#include "bench/sweep/suite.h"
#include "bench/tensors/user_tensors.h"
#include "kernels/catalogue.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

KnownShapes shapes_of(const Op& op, const AnyProblem& problem) {
  KnownShapes shapes;
  for (const TensorSpec& spec : op.tensors(problem, op.dtypes.front()))
    if (spec.role != Role::out) shapes[spec.name] = spec.shape;
  return shapes;
}

std::string inferred(const std::string& op_name, const std::string& fields, const KnownShapes& shapes) {
  const Op& op = *find_op(op_name);
  try {
    return op.print(infer_problem(op, split_problem_text(fields), shapes));
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

void says(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << text;
}

TEST(ProblemInference, FindsWhatTheShapesSay) {
  EXPECT_EQ(inferred("gemm", "", {{"a", {{5, 3}}}, {"b", {{7, 3}}}, {"bias", {{7}}}}), "m=5,n=7,k=3");
  EXPECT_EQ(inferred("gemm", "", {{"a", {{5, 5}}}, {"b", {{5, 5}}}}), "m=5,n=5,k=5,bias=0");
  EXPECT_EQ(inferred("gemm", "", {{"a", {{6, 3}}}, {"b", {{7, 3}}}, {"image_shift", {{2, 7}}}}),
            "m=6,n=7,k=3,bias=0,image_shift=1,images=2");
  EXPECT_EQ(inferred("gemm", "",
                     {{"a", {{6, 3}}}, {"b", {{7, 3}}}, {"residual", {{6, 7}}}, {"blend", {{6, 7}}}, {"share", {{1}}}}),
            "m=6,n=7,k=3,bias=0,residual=1,blend=1");
  EXPECT_EQ(inferred("gemm", "act=geglu,scale=0.5", {{"a", {{5, 3}}}, {"b", {{8, 3}}}, {"bias", {{8}}}}),
            "m=5,n=4,k=3,act=geglu,scale=0.5");
  EXPECT_EQ(
      inferred("groupnorm", "groups=32",
               {{"x", {{2, 16, 96}}}, {"gamma", {{96}}}, {"beta", {{96}}}, {"scale", {{2, 96}}}, {"shift", {{2, 96}}}}),
      "n=2,hw=16,channels=96,groups=32,fusion=silu+ss");
  EXPECT_EQ(inferred("groupnorm", "groups=32",
                     {{"x", {{2, 16, 96}}}, {"gamma", {{96}}}, {"beta", {{96}}}, {"scale_shift", {{2, 192}}}}),
            "n=2,hw=16,channels=96,groups=32,fusion=silu+ss,packed=1");
  EXPECT_EQ(inferred("groupnorm", "groups=32",
                     {{"x", {{2, 16, 61}}}, {"skip", {{2, 16, 35}}}, {"gamma", {{96}}}, {"beta", {{96}}}}),
            "n=2,hw=16,channels=96,groups=32,skip_channels=35");
  EXPECT_EQ(
      inferred("groupnorm", "groups=32,down_w=16", {{"x", {{3, 256, 576}}}, {"gamma", {{576}}}, {"beta", {{576}}}}),
      "n=3,hw=256,channels=576,groups=32,down_w=16");
  EXPECT_EQ(inferred("sampler_step", "solver=ddim",
                     {{"x", {{3, 40}}}, {"model_output", {{3, 40}}}, {"coefficients", {{20, 12}}}}),
            "batch=3,elements=40,solver=ddim,steps=20");
}

TEST(ProblemInference, FindsAnySetOfOptionalInputs) {
  KnownShapes shapes = {{"x", {{2, 9, 10, 6}}}, {"w", {{7, 3, 3, 6}}},     {"scale", {{7}}},
                        {"shift", {{7}}},       {"image_shift", {{2, 7}}}, {"residual", {{2, 9, 10, 7}}}};
  EXPECT_EQ(inferred("conv2d", "", shapes), "n=2,h=9,w=10,cin=6,cout=7,bias=0,affine=1,image_shift=1,residual=1");
  shapes["residual"] = {{2, 5, 5, 7}};
  EXPECT_EQ(inferred("conv2d", "", shapes),
            "n=2,h=9,w=10,cin=6,cout=7,stride=2,bias=0,affine=1,image_shift=1,residual=1");
  shapes["residual"] = {{2, 18, 20, 7}};
  EXPECT_EQ(inferred("conv2d", "", shapes),
            "n=2,h=9,w=10,cin=6,cout=7,upsample=1,bias=0,affine=1,image_shift=1,residual=1");
  shapes["residual"] = {{2, 9, 10, 7}}, shapes["x"] = {{2, 18, 20, 6}};
  EXPECT_EQ(inferred("conv2d", "stride=1", shapes),
            "n=2,h=18,w=20,cin=6,cout=7,bias=0,affine=1,image_shift=1,residual=1,residual_upsample=1");
  EXPECT_EQ(inferred("conv2d", "residual_upsample=0", shapes),
            "n=2,h=18,w=20,cin=6,cout=7,stride=2,bias=0,affine=1,image_shift=1,residual=1");
  const KnownShapes side = {
      {"x", {{2, 9, 10, 6}}}, {"w", {{7, 3, 3, 6}}}, {"side", {{2, 9, 10, 4}}}, {"w_side", {{7, 4}}}};
  EXPECT_EQ(inferred("conv2d", "", side), "n=2,h=9,w=10,cin=6,cout=7,bias=0,side=4");
  KnownShapes both = side;
  both["side_skip"] = {{2, 9, 10, 3}}, both["w_side"] = {{7, 7}};
  EXPECT_EQ(inferred("conv2d", "", both), "n=2,h=9,w=10,cin=6,cout=7,bias=0,side=4,side_skip=3");
  EXPECT_EQ(inferred("resample", "op=concat", {{"x", {{2, 3, 4, 5}}}, {"skip", {{2, 3, 4, 77}}}}),
            "op=concat,n=2,h=3,w=4,channels=5,skip_channels=77");
  EXPECT_EQ(inferred("resample", "", {{"x", {{2, 3, 4, 5}}}, {"skip", {{2, 3, 4, 77}}}}),
            "op=concat,n=2,h=3,w=4,channels=5,skip_channels=77");
  EXPECT_EQ(
      inferred("layernorm", "", {{"x", {{12, 8}}}, {"residual", {{12, 8}}}, {"scale", {{3, 8}}}, {"shift", {{3, 8}}}}),
      "rows=12,channels=8,images=3,fusion=scale_shift,residual=1,affine=0");
  EXPECT_EQ(inferred("elementwise", "", {{"a", {{2, 5}}}, {"b", {{2, 3, 5}}}, {"c", {{2, 5}}}}),
            "op=silu_fma,n=2,hw=3,channels=5,broadcast=1");
  EXPECT_EQ(
      inferred("timestep_embedding", "",
               {{"t", {{3}}}, {"freqs", {{4}}}, {"w1", {{6, 8}}}, {"b1", {{6}}}, {"w2", {{6, 6}}}, {"b2", {{6}}}}),
      "batch=3,channels=8,kind=fourier,hidden=6");
  EXPECT_EQ(inferred("attention", "", {{"qkv", {{2, 77, 4, 3, 8}}}}),
            "batch=2,heads=4,seq_q=77,seq_kv=77,dim=8,layout=packed_h3d");
}

TEST(ProblemInference, AsksForWhatNoShapeSays) {
  const std::vector<std::int64_t> latents = {3, 40};
  KnownShapes step = {{"x", latents}, {"model_output", {{2, 3, 40}}}, {"coefficients", {{50, 12}}}};
  says(inferred("sampler_step", "solver=ddim", step), "give --problem its guidance (0 to 100, but not 0)");
  EXPECT_EQ(inferred("sampler_step", "solver=ddim,guidance=3", step), "batch=3,elements=40,solver=ddim,guidance=3");
  EXPECT_EQ(inferred("sampler_step", "solver=ddim,guidance=1e-310", step),  // below what std::stod takes
            "batch=3,elements=40,solver=ddim,guidance=1e-310");
  step["previous_frame"] = latents;
  says(inferred("sampler_step", "solver=ddim,guidance=3", step), "give --problem its blend");
  // A padding of 5 gives a square image of 8 x 8 the residual of an upsampled one.
  const KnownShapes square = {{"x", {{2, 8, 8, 6}}}, {"w", {{7, 3, 3, 6}}}, {"residual", {{2, 16, 16, 7}}}};
  says(inferred("conv2d", "", square), "give --problem its pad (1, 5), upsample (0, 1)");
  EXPECT_EQ(inferred("conv2d", "upsample=1", square), "n=2,h=8,w=8,cin=6,cout=7,upsample=1,bias=0,residual=1");
  EXPECT_EQ(inferred("conv2d", "pad=5", square), "n=2,h=8,w=8,cin=6,cout=7,pad=5,bias=0,residual=1");
  // An axis of 3 is the packed one, or that of the heads.
  says(inferred("attention", "", {{"qkv", {{2, 7, 3, 3, 8}}}}), "layout (packed_3hd, packed_h3d)");
}

TEST(ProblemInference, NamesTheFieldThatClashes) {
  const KnownShapes product = {{"a", {{5, 3}}}, {"b", {{7, 3}}}, {"bias", {{7}}}};
  says(inferred("gemm", "m=6", product), "'a' is [5, 3], there [6, 3] (m=6); m=6 clashes with them, m=5 would fit");
  says(inferred("gemm", "bias=0,k=3", product),
       "'bias' is not one of its inputs; bias=0 clashes with them, bias=1 would fit");
  says(inferred("sampler_step", "solver=ddim,guidance=0",
                {{"x", {{3, 40}}}, {"model_output", {{2, 3, 40}}}, {"coefficients", {{50, 12}}}}),
       "'model_output' is [2, 3, 40], there [3, 40]; guidance=0 clashes with them, another would fit");
  says(inferred("gemm", "", {{"a", {{5, 3}}}, {"b", {{7, 4}}}}), "there [7, 3] (k=3)");
  says(inferred("resample", "op=concat", {{"x", {{2, 3, 4, 5}}}}), "its 'skip' [2, 3, 4, 1] is missing");
  // What would fit by the fewest fields comes before what fits too.
  says(inferred("conv2d", "", {{"x", {{2, 9, 10, 6}}}, {"w", {{7, 3, 3, 6}}}, {"residual", {{2, 9, 11, 7}}}}),
       "'residual' is [2, 9, 11, 7], there [2, 9, 10, 7]");
  // Values that nobody gave are no reason.
  says(inferred("sampler_step", "solver=ddim",
                {{"x", {{3, 40}}}, {"model_output", {{3, 40}}}, {"history", {{3, 40}}}, {"coefficients", {{50, 12}}}}),
       "'history' is not one of its inputs");
  // A reason comes with the tensors that lead to it.
  const std::string reason = inferred("gemm", "", {{"a", {{6, 3}}}, {"b", {{7, 3}}}, {"image_shift", {{4, 7}}}});
  says(reason, "'image_shift' is [4, 7], there [1, 7]");
  says(reason, "images=4 does not divide m=6");
  // Which of them is the odd one is not said by the order.
  says(inferred("groupnorm", "groups=4", {{"x", {{2, 6, 31}}}, {"gamma", {{32}}}, {"beta", {{32}}}}),
       "'x' is [2, 6, 31], there [2, 6, 32] (channels=32");
}

// Problems of real networks: the tensors and the fields that shapes do not say lead back, in bounded time.
TEST(ProblemInference, EveryShippedProblemIsFoundFast) {
  for (const ProblemEntry& entry : load_problems(default_problem_folder())) {
    const Op* op = find_op(entry.op->name);
    if (op == nullptr) continue;  // whole networks
    SCOPED_TRACE(op->name + " " + entry.text);
    const KnownShapes shapes = shapes_of(*op, entry.problem);
    EXPECT_EQ(inferred(op->name, entry.text, shapes), entry.text);
    // With nothing said: the problem, one of the same tensors that is as simple, or a question. Never another failure.
    const std::string found = inferred(op->name, "", shapes);
    if (found.find("give --problem") != std::string::npos) continue;
    try {
      EXPECT_EQ(shapes_of(*op, op->parse(found)), shapes) << found;
    } catch (const InvalidInput&) {
      ADD_FAILURE() << found;
    }
  }
}

TEST(ProblemInference, EndsWhateverTheTensorsAre) {
  // As many extents and tensors as are let in, none of which fits.
  KnownShapes shapes;
  std::int64_t extent = 2;
  for (const char* name : {"x", "w", "bias", "scale", "shift", "image_shift", "residual", "model_output", "q", "k", "v",
                           "qkv", "a", "b", "c", "coefficients"})
    for (int i = 0; i < 5; ++i) {
      if (!shapes[name]) shapes[name].emplace();
      shapes[name]->push_back(extent += 7);
    }
  for (const Op& op : catalogue()) EXPECT_NE(inferred(op.name, "", shapes), "") << op.name;
}

TEST(ProblemInference, RefusesWhatTheyDoNotSay) {
  const KnownShapes norm = {{"x", {{2, 16, 96}}}, {"gamma", {{96}}}, {"beta", {{96}}}};
  says(inferred("groupnorm", "", norm), "give --problem its groups");
  says(inferred("groupnorm", "groups=5", norm), "groups=5 does not divide");
  says(inferred("groupnorm", "group=5", norm), "did you mean 'groups'");
  says(inferred("groupnorm", "groups=32",
                {{"x", {{2, 16, 96}}}, {"gamma", {{96}}}, {"beta", {{96}}}, {"scale_shift", {{2, 96}}}}),
       "'scale_shift' is [2, 96], there [2, 192]");
  const KnownShapes step = {{"x", {{3, 40}}}, {"model_output", {{3, 40}}}, {"coefficients", {{50, 12}}}};
  says(inferred("sampler_step", "", step), "give --problem its");
  says(inferred("sampler_step", "", step), "solver (ddim, ");
  says(inferred("gemm", "m=6", {{"a", {{5, 3}}}, {"b", {{7, 3}}}, {"bias", {{7}}}}), "'a' is [5, 3], there [6, 3]");
  says(inferred("gemm", "", {{"a", {{5, 3}}}, {"bias", {{7}}}}), "its 'b' [7, 3] is missing (--random b makes it)");
  says(inferred("gemm", "", {{"a", {{5, 3}}}, {"b", {{7, 3}}}, {"c", {{7}}}}), "'c' is not one of its inputs");
  says(inferred("gemm", "", {{"a", {{5, 3, 1}}}, {"b", {{7, 3}}}}), "'a' is [5, 3, 1], there");
  says(inferred("gemm", "", {{"a", {{0, 3}}}, {"b", {{7, 3}}}}), "'a' is [0, 3], there");
  says(inferred("gemm", "", {{"a", {{std::int64_t{1} << 62, 3}}}, {"b", {{7, 3}}}}), "'a' is [4611686018427387904, 3]");
  says(inferred("gemm", "", {}), "its inputs are a [m, k]");
}

// A tensor of unknown shape (--random) takes the shape that the others leave it.
TEST(ProblemInference, LeavesTensorsToTheHarness) {
  EXPECT_EQ(inferred("gemm", "", {{"a", {{5, 3}}}, {"b", {{7, 3}}}, {"bias", std::nullopt}}), "m=5,n=7,k=3");
  EXPECT_NE(inferred("gemm", "", {{"a", {{5, 3}}}, {"b", std::nullopt}}).find("give --problem its n"),
            std::string::npos);
}

TEST(UserTensors, AreTheInputsOfTheFixture) {
  const TemporaryFolder folder;
  const std::string path = folder / "in.safetensors";
  const Op& op = *find_op("gemm");
  const auto host = make_host_platform();
  Fixture made(*host, *suite().find("gemm"), op.parse("m=5,n=7,k=3"), DType::bf16, 9);
  const auto inputs = made.host_tensors();
  std::vector<FileTensor> tensors;
  for (std::size_t i = 0; i < made.specs().size(); ++i)
    if (made.specs()[i].role == Role::in)
      tensors.push_back({made.specs()[i].name,
                         "BF16",
                         made.specs()[i].shape,
                         {static_cast<const std::byte*>(inputs[i].data), made.specs()[i].bytes()}});
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  const UserTensors user = bind_user_tensors(op, file, path, {}, std::nullopt, {});
  EXPECT_EQ(op.print(user.problem), "m=5,n=7,k=3");
  EXPECT_EQ(user.dtype, DType::bf16);
  Fixture fixture(*host, *suite().find("gemm"), user.problem, user.dtype, 1, user.given);
  for (std::size_t i = 0; i + 1 < fixture.specs().size(); ++i)
    EXPECT_EQ(std::memcmp(fixture.pointers()[i], made.pointers()[i], fixture.specs()[i].bytes()), 0);

  std::vector<std::uint16_t> spoilt(15, 0x3f80);
  spoilt[11] = 0x7fc0;  // a NaN
  tensors[0].data = std::as_bytes(std::span(spoilt));
  write_safetensors(path, tensors);
  try {
    bind_user_tensors(op, SafetensorsFile(path), path, {}, std::nullopt, {});
    FAIL() << "NaN was accepted";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("tensor 'a': element 11 is nan"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace noisefloor
