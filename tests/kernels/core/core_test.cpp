// The contract's own pieces: element types, fields, names, and what every op of the catalogue must satisfy.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <set>

#include "kernels/catalogue.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/test_problems.h"

namespace noisefloor {
namespace {

TEST(DTypes, EveryHalfRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (const float value = fp16_to_float(half); !std::isnan(value)) {
      ASSERT_EQ(float_to_fp16(value), half);
    }
    if (const float value = bf16_to_float(half); !std::isnan(value)) {
      ASSERT_EQ(float_to_bf16(value), half);
    }
  }
}

TEST(DTypes, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.00390625f), 0x3f80);     // 1 + 2^-8: half way, to even
  EXPECT_EQ(float_to_bf16(1.01171875f), 0x3f82);     // 1 + 3 * 2^-8: half way, to even
  EXPECT_EQ(float_to_fp16(1.00048828125f), 0x3c00);  // 1 + 2^-11
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);        // the largest that does not become infinity
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(0x1p-24f), 0x0001);  // the smallest subnormal
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0x0000);  // half of it, to even
  EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DTypes, BulkConversionAgreesWithSingle) {
  EXPECT_TRUE(rc::check("store_floats and load_floats do what the element functions do", [] {
    const auto raw = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-70000000, 70000000));
    std::vector<float> values;
    for (const int value : raw) values.push_back(static_cast<float>(value) * 1e-3f);
    const auto count = static_cast<std::int64_t>(values.size());
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      std::vector<char> bulk(values.size() * size_of(dtype) + 1), single(bulk.size());
      store_floats(dtype, bulk.data(), 0, count, values.data());
      for (std::int64_t i = 0; i < count; ++i)
        store_element(dtype, single.data(), i, values[static_cast<std::size_t>(i)]);
      RC_ASSERT(bulk == single);
      std::vector<float> back(values.size());
      load_floats(dtype, bulk.data(), 0, count, back.data());
      for (std::int64_t i = 0; i < count; ++i)
        RC_ASSERT(back[static_cast<std::size_t>(i)] == static_cast<float>(load_element(dtype, bulk.data(), i)));
    }
  }));
}

TEST(Names, DidYouMean) {
  const std::vector<std::string> ops = {"gemm", "groupnorm", "sampler_step"};
  EXPECT_EQ(did_you_mean("gruopnorm", ops), "; did you mean 'groupnorm'?");
  EXPECT_EQ(did_you_mean("gem", ops), "; did you mean 'gemm'?");
  EXPECT_EQ(did_you_mean("convolution", ops), "");
  EXPECT_EQ(did_you_mean("", ops), "");
}

TEST(Catalogue, EveryOpKeepsTheContract) {
  for (const ProblemEntry& entry : load_problems(test_problem_folder())) {
    SCOPED_TRACE(entry.op->name + " " + entry.text);
    EXPECT_EQ(entry.op->print(entry.op->parse(entry.text)), entry.text) << "the text is canonical";
    for (const DType dtype : entry.op->dtypes) {
      const Cost cost = entry.op->cost(entry.problem, dtype);
      const Tolerance tolerance = entry.op->tolerance(entry.problem, dtype);
      EXPECT_GT(cost.flops, 0);
      EXPECT_GT(tolerance.max_error, 0);
      EXPECT_LT(tolerance.max_error, 0.1);
      EXPECT_GT(tolerance.l2_error, 0);
      double bytes = 0;
      int outputs = 0;
      std::set<std::string> names;
      for (const TensorSpec& spec : entry.op->tensors(entry.problem, dtype)) {
        EXPECT_TRUE(names.insert(spec.name).second) << "tensor names are distinct: " << spec.name;
        EXPECT_GT(spec.elements(), 0);
        bytes += static_cast<double>(spec.bytes()) * (spec.role == Role::inout ? 2 : 1);
        outputs += spec.role != Role::in;
      }
      EXPECT_GT(outputs, 0);
      EXPECT_LE(cost.bytes, bytes) << "compulsory bytes are at most every tensor once";
    }
  }
}

TEST(Catalogue, ChoicesAreDistinctAndTheEstimatesIsFirst) {
  constexpr DeviceInfo kDevice{.compute_capability = 90, .sm_count = 132};
  std::set<std::string> offering;
  for (const ProblemEntry& entry : load_problems(test_problem_folder()))
    for (const ImplementationPtr& implementation : entry.entry->implementations) {
      const AnyVariant* const variant = implementation->variant();
      if (variant == nullptr || !variant->choices || !variant->can_run(entry.problem, DType::bf16)) continue;
      SCOPED_TRACE(entry.op->name + " " + variant->name + " " + entry.text);
      std::set<std::string> texts;
      for (const Choice& choice : variant->choices(entry.problem, DType::bf16, kDevice)) {
        EXPECT_TRUE(texts.insert(choice.text).second) << choice.text;
        EXPECT_EQ(choice.estimated, texts.size() == 1) << choice.text;
      }
      if (texts.empty()) continue;  // one way alone, as of convolutions that gather rows
      if (!variant->built) {
        const Status status = variant->launch(entry.problem, DType::bf16, {}, {}, {.choice = *texts.begin()});
        EXPECT_EQ(status.code, StatusCode::not_built);
      }
      offering.insert(entry.op->name + " " + variant->name);
    }
  std::set<std::string> schedules{"attention ptx_sm90a", "attention ptx_sm90a_wide", "gemm ptx_sm90a"};
  for (const char* op : {"groupnorm", "groupnorm_backward"})
    for (const char* variant : {" ptx_sm90a", " ptx_sm90a_grid"}) schedules.insert(std::string(op) + variant);
  for (const char* op : {"conv2d", "conv2d_dgrad", "conv3d_temporal", "conv_transpose2d"})
    for (const char* variant : {" ptx_sm90a", " ptx_sm90a_halo"}) schedules.insert(std::string(op) + variant);
  EXPECT_EQ(offering, schedules);
}

// What an op lacks of the variants that every op ships, and what it says of variants that are still to be written.
struct Shipped {
  std::vector<std::string> missing, excused;
};
Shipped shipped_of(std::span<const AnyVariant> variants) {
  Shipped shipped;
  for (const Kind kind : {Kind::host, Kind::naive, Kind::tiled, Kind::tensor_core, Kind::ptx}) {
    const auto row = std::find_if(variants.begin(), variants.end(), [&](const auto& v) { return v.kind == kind; });
    if (row == variants.end())
      shipped.missing.push_back(to_string(kind));
    else if (row->not_written && row->not_written->empty())
      shipped.missing.push_back(row->name);
    else if (row->not_written && !row->not_applicable)
      shipped.excused.push_back(row->name + ": " + *row->not_written);
  }
  return shipped;
}

// An op of which three variants are still to be written, one of them without a reason; and one is not there.
using Sketch = OpDefinition<gemm::Problem, gemm::Tensors>;
Status sketch_launch(const gemm::Problem&, DType, const gemm::Tensors&, const Scratch&, const LaunchContext&) {
  return success();
}
std::span<const Sketch::Variant> sketch_variants() {
  static constexpr Sketch::Variant kRows[] = {
      {kHost, sketch_launch},
      {kNaive, LeftOut()},
      {kTensorCoreSm80, not_written("")},
      {kPtxSm90a, not_written("waits for the naive variant")},
      {{"ptx_twice", Kind::ptx, Arch::sm90a}, not_applicable("one is enough")},
  };
  return kRows;
}
static_assert(!std::is_constructible_v<Sketch::Way, std::nullptr_t>, "a null launcher says nothing");

TEST(Catalogue, VariantsThatAreNotWrittenSayWhy) {
  Sketch sketch = gemm::definition;
  sketch.variants = sketch_variants;
  const Op op = make_op(sketch);
  const Shipped shipped = shipped_of(op.variants);
  EXPECT_EQ(shipped.missing, (std::vector<std::string>{"tiled", "tensor_core_sm80"}));
  EXPECT_EQ(shipped.excused, std::vector<std::string>{"ptx_sm90a: waits for the naive variant"});
  const AnyProblem problem = op.parse("m=1,n=1,k=1");
  const LaunchContext context;
  const auto launch = [&](std::size_t row) {
    return op.variants[row].launch(problem, DType::fp32, std::vector<void*>(4), {}, context);
  };
  EXPECT_TRUE(op.variants[0].built && launch(0).ok());
  EXPECT_FALSE(op.variants[1].built || op.variants[1].not_written) << "left out of this build, but written";
  EXPECT_EQ(launch(1).code, StatusCode::not_built);
  EXPECT_FALSE(op.variants[3].built);
  EXPECT_EQ(launch(3).code, StatusCode::not_built);
  EXPECT_STREQ(launch(3).what, "waits for the naive variant");
  EXPECT_EQ(why_not_written(op.variants[3]), "not written yet: waits for the naive variant");
  EXPECT_EQ(why_not_written(op.variants[4]), "not applicable: one is enough");
}

TEST(Catalogue, EveryOpShipsEveryKind) {
  for (const Op& op : catalogue()) {
    std::set<std::string> names;
    for (const AnyVariant& variant : op.variants)
      EXPECT_TRUE(names.insert(variant.name).second) << op.name << " has two variants named " << variant.name;
    const Shipped shipped = shipped_of(op.variants);
    EXPECT_EQ(shipped.missing, std::vector<std::string>())
        << op.name << ": a variant to be written is not_written(\"why\")";
    for (const std::string& variant : shipped.excused) std::cout << op.name << " has yet to write " << variant << "\n";
  }
}

TEST(Dtypes, TheLargestMagnitudeIsThatOfAnyElementAndInfiniteWhereOneIsNotFinite) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
    std::vector<double> storage(37);
    const auto set = [&](std::int64_t at, double value) { store_element(dtype, storage.data(), at, value); };
    const auto largest = [&](std::int64_t count) { return largest_magnitude(dtype, storage.data(), count); };
    EXPECT_EQ(largest(0), 0) << to_string(dtype);
    for (std::int64_t i = 0; i < 37; ++i) set(i, 0.25 * static_cast<double>(i % 5) - 0.5);
    EXPECT_EQ(largest(37), 0.5);
    set(36, -3);
    EXPECT_EQ(largest(36), 0.5);
    EXPECT_EQ(largest(37), 3);
    for (const double value : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN()}) {
      set(11, value);
      EXPECT_EQ(largest(37), std::numeric_limits<double>::infinity());
    }
  }
}

TEST(Architectures, GatesAreWhatTheyAreNamed) {
  EXPECT_TRUE(runs_on(Arch::host, 0));
  EXPECT_FALSE(runs_on(Arch::host, 90));
  EXPECT_FALSE(runs_on(Arch::any_gpu, 0));
  EXPECT_TRUE(runs_on(Arch::sm75, 75));
  EXPECT_FALSE(runs_on(Arch::sm80, 75));
  EXPECT_TRUE(runs_on(Arch::sm80, 120));
  EXPECT_TRUE(runs_on(Arch::sm90a, 90));
  EXPECT_FALSE(runs_on(Arch::sm90a, 100)) << "wgmma is not forward compatible";
}

// A convolution of 1x1 is a product of pixels. "": it stays one. That its cost is the same tests/bench/sweep shows of
// all shipped layers.
TEST(HandedOn, AConvolutionOf1x1IsAProductOfPixels) {
  for (const auto& [convolution, product] :
       {std::pair{"n=2,h=16,w=8,cin=960,cout=576,kernel=1", "m=256,n=576,k=960"},
        {"n=1,h=16,w=16,cin=576,cout=64,kernel=1,residual=1", "m=256,n=64,k=576,residual=1"},
        {"n=3,h=5,w=7,cin=24,cout=40,kernel=1,image_shift=1", "m=105,n=40,k=24,image_shift=1,images=3"},
        {"n=1,h=16,w=16,cin=576,cout=576", ""},
        {"n=1,h=16,w=16,cin=4,cout=576,kernel=1", ""},
        {"n=1,h=16,w=16,cin=576,cout=576,kernel=1,stats=1", ""}}) {
    const auto handed = handed_on("conv2d", find_op("conv2d")->parse(convolution), DType::bf16);
    EXPECT_EQ(handed ? handed->op + " " + handed->text : "", *product ? std::string("gemm ") + product : "");
  }
  EXPECT_FALSE(handed_on("gemm", find_op("gemm")->parse("m=8,n=8,k=8"), DType::bf16));
}

}  // namespace
}  // namespace noisefloor
