// attention and temporal_attention on the host: the oracle against numbers worked out by hand and against itself
// through other layouts, the host variant against the oracle on random problems.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/temporal_attention/temporal_attention.h"

namespace noisefloor::attention {
namespace {

const Op& attention_op() {
  static const Op value = make_op(definition);
  return value;
}
const Op& temporal_op() {
  static const Op value = make_op(temporal_attention::definition);
  return value;
}

// Tensors of a problem in host memory, inputs filled with normal numbers.
struct HostData {
  const Op* op;
  AnyProblem problem;
  DType dtype;
  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> storage;

  HostData(const Op& used, const std::string& text, DType type, unsigned seed)
      : op(&used), problem(used.parse(text)), dtype(type), specs(used.tensors(problem, type)) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    for (const TensorSpec& spec : specs) {
      auto& bytes = storage.emplace_back(spec.bytes(), std::byte{0xFF});
      if (spec.role != Role::in) continue;
      for (std::int64_t i = 0; i < spec.elements(); ++i) store_element(spec.dtype, bytes.data(), i, normal(engine));
    }
  }
  std::size_t first_output() const {
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (specs[i].role != Role::in) return i;
    return specs.size();
  }
  void set(std::size_t tensor, const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      store_element(specs[tensor].dtype, storage[tensor].data(), static_cast<std::int64_t>(i), values[i]);
  }
  std::vector<double> reference(std::size_t output, const std::vector<std::int64_t>& elements) const {
    std::vector<HostTensor> inputs;
    for (std::size_t i = 0; i < specs.size(); ++i)
      inputs.push_back({specs[i].dtype, specs[i].role == Role::in ? storage[i].data() : nullptr});
    std::vector<double> values(elements.size());
    op->reference(problem, dtype, inputs, output, elements, values);
    return values;
  }
  std::vector<double> reference(std::size_t output) const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(specs[output].elements()));
    std::iota(all.begin(), all.end(), 0);
    return reference(output, all);
  }
  Status run_host() {
    std::vector<void*> pointers;
    for (auto& bytes : storage) pointers.push_back(bytes.data());
    const DeviceInfo device{0, 2, 1 << 20, 0};
    return op->variants.front().launch(problem, dtype, pointers, {}, {nullptr, &device, false});
  }
  // The largest error over all outputs, in units of what the tolerance allows; NaN counts as infinite.
  double worst_error() const {
    const double allowed = op->tolerance(problem, dtype).max_error;
    double worst = 0;
    for (std::size_t output = first_output(); output < specs.size(); ++output) {
      const std::vector<double> expected = reference(output);
      double squares = 0;
      for (const double value : expected) squares += value * value;
      const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double actual = load_element(specs[output].dtype, storage[output].data(), static_cast<std::int64_t>(i));
        const double error = std::abs(actual - expected[i]) / (allowed * (std::abs(expected[i]) + rms) + 1e-300);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    }
    return worst;
  }
};

TEST(Attention, OracleGivesTheNumbersWorkedOutByHand) {
  // One query (1, 2) against keys (0, 0) and (ln 3, 0), scale 1: logits 0 and ln 3, weights 1/4 and 3/4.
  HostData data(attention_op(), "batch=1,heads=1,seq_q=1,seq_kv=2,dim=2,scale=1,lse=1", DType::fp32, 1);
  data.set(0, {1, 2});
  data.set(1, {0, 0, std::log(3.0), 0});
  data.set(2, {4, 8, -4, 0});
  const std::vector<double> out = data.reference(3);
  EXPECT_NEAR(out[0], 4 * 0.25 - 4 * 0.75, 1e-7);  // ln 3 is rounded to a float
  EXPECT_NEAR(out[1], 8 * 0.25, 1e-7);
  EXPECT_NEAR(data.reference(4)[0], std::log(4.0), 1e-7);
}

TEST(Attention, ScaleZeroStandsForOneOverTheRootOfDim) {
  HostData data(attention_op(), "batch=1,heads=1,seq_q=1,seq_kv=2,dim=4,lse=1", DType::fp32, 1);
  data.set(0, {1, 1, 1, 1});
  data.set(1, {2, 0, 1, 1, 1, -1, 2, -2});  // logits 4 / 2 and 0
  EXPECT_NEAR(data.reference(4)[0], std::log(std::exp(2.0) + 1), 1e-12);
  EXPECT_EQ(attention_op().print(attention_op().parse("batch=1,heads=1,seq_q=1,seq_kv=2,dim=4,scale=0,lse=0")),
            "batch=1,heads=1,seq_q=1,seq_kv=2,dim=4");
}

TEST(Attention, HugeLogitsNeitherOverflowNorVanish) {
  HostData data(attention_op(), "batch=1,heads=1,seq_q=1,seq_kv=3,dim=1,scale=1000,lse=1", DType::fp32, 1);
  data.set(0, {10});
  data.set(1, {1, -1, 1});  // logits 10000, -10000, 10000
  data.set(2, {2, 100, 4});
  EXPECT_NEAR(data.reference(3)[0], 3, 1e-12);
  EXPECT_NEAR(data.reference(4)[0], 10000 + std::log(2.0), 1e-9);
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_LE(data.worst_error(), 1);
}

// The three packed orders are the same numbers as separate tensors, put elsewhere.
TEST(Attention, PackedLayoutsAreSeparateTensorsPutElsewhere) {
  const std::int64_t batch = 2, seq = 5, heads = 3, dim = 4;
  HostData separate(attention_op(), "batch=2,heads=3,seq_q=5,seq_kv=5,dim=4,lse=1", DType::bf16, 7);
  for (const std::string layout : {"packed_3hd", "packed_h3d", "packed_hd3"}) {
    HostData packed(attention_op(), "batch=2,heads=3,seq_q=5,seq_kv=5,dim=4,lse=1,layout=" + layout, DType::bf16, 8);
    for (std::int64_t token = 0; token < batch * seq; ++token)
      for (std::int64_t part = 0; part < 3; ++part)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t d = 0; d < dim; ++d) {
            std::int64_t place = (part * heads + h) * dim + d;
            if (layout == "packed_h3d") place = (h * 3 + part) * dim + d;
            if (layout == "packed_hd3") place = (h * dim + d) * 3 + part;
            const double value = load_element(DType::bf16, separate.storage[static_cast<std::size_t>(part)].data(),
                                              (token * heads + h) * dim + d);
            store_element(DType::bf16, packed.storage[0].data(), token * 3 * heads * dim + place, value);
          }
    EXPECT_EQ(packed.reference(1), separate.reference(3)) << layout;
    EXPECT_EQ(packed.reference(2), separate.reference(4)) << layout;
    ASSERT_TRUE(packed.run_host().ok());
    EXPECT_LE(packed.worst_error(), 1) << layout;
  }
}

TEST(Attention, OracleOfASubsetIsThatPartOfTheWhole) {
  const HostData data(attention_op(), "batch=2,heads=3,seq_q=7,seq_kv=9,dim=5,lse=1", DType::fp16, 2);
  for (const std::size_t output : {std::size_t{3}, std::size_t{4}}) {
    const std::vector<double> whole = data.reference(output);
    const std::vector<std::int64_t> elements{0, 1, 4, 5, 19, 20, 33, 41};
    const std::vector<double> part = data.reference(output, elements);
    for (std::size_t i = 0; i < elements.size(); ++i) EXPECT_EQ(part[i], whole[static_cast<std::size_t>(elements[i])]);
  }
}

TEST(Attention, HostAgreesWithTheOracleOnRandomProblems) {
  EXPECT_TRUE(rc::check([] {
    const auto layout = *rc::gen::element<std::string>("separate", "packed_3hd", "packed_h3d", "packed_hd3");
    const auto length = rc::gen::oneOf(rc::gen::inRange<int>(1, 9), rc::gen::inRange<int>(30, 140));
    // Several rows at least: the tolerance is relative to the outputs' rms, which a single sum near 0 does not have.
    const int seq_q = 2 + *length, seq_kv = layout == "separate" ? *length : seq_q;
    const std::string text =
        "batch=" + std::to_string(*rc::gen::inRange<int>(1, 3)) + ",heads=" + std::to_string(*rc::gen::inRange(3, 6)) +
        ",seq_q=" + std::to_string(seq_q) + ",seq_kv=" + std::to_string(seq_kv) +
        ",dim=" + std::to_string(*rc::gen::oneOf(rc::gen::inRange<int>(1, 70), rc::gen::just(256))) +
        ",layout=" + layout + ",lse=1";
    HostData data(attention_op(), text, *rc::gen::element(DType::bf16, DType::fp16, DType::fp32),
                  *rc::gen::arbitrary<unsigned>());
    RC_ASSERT(data.run_host().ok());
    RC_ASSERT(data.worst_error() <= 1);
  }));
}

// A row whose largest logit meets values far out: found by the test above, which meets such a row once in thousands.
TEST(Attention, HostStaysWithinTheToleranceWhereALargeLogitMeetsALargeValue) {
  HostData data(attention_op(), "batch=2,heads=4,seq_q=32,seq_kv=32,dim=256,layout=packed_3hd,lse=1", DType::fp32,
                412077876u);
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_LE(data.worst_error(), 1);
}

TEST(TemporalAttention, IsAttentionAlongTheFramesOfEachPixel) {
  const std::int64_t frames = 6, hw = 4, heads = 2, dim = 8;
  HostData video(temporal_op(), "batch=1,frames=6,hw=4,heads=2,dim=8", DType::fp32, 3);
  // The same tokens, permuted: a batch of pixels, a sequence of frames.
  HostData permuted(attention_op(), "batch=4,heads=2,seq_q=6,seq_kv=6,dim=8", DType::fp32, 4);
  const auto place = [&](std::int64_t frame, std::int64_t pixel, std::int64_t i, bool in_video) {
    return (in_video ? frame * hw + pixel : pixel * frames + frame) * heads * dim + i;
  };
  for (std::size_t tensor = 0; tensor < 3; ++tensor)
    for (std::int64_t f = 0; f < frames; ++f)
      for (std::int64_t p = 0; p < hw; ++p)
        for (std::int64_t i = 0; i < heads * dim; ++i)
          store_element(DType::fp32, permuted.storage[tensor].data(), place(f, p, i, false),
                        load_element(DType::fp32, video.storage[tensor].data(), place(f, p, i, true)));
  const std::vector<double> expected = permuted.reference(3), actual = video.reference(3);
  for (std::int64_t f = 0; f < frames; ++f)
    for (std::int64_t p = 0; p < hw; ++p)
      for (std::int64_t i = 0; i < heads * dim; ++i)
        EXPECT_EQ(actual[static_cast<std::size_t>(place(f, p, i, true))],
                  expected[static_cast<std::size_t>(place(f, p, i, false))]);
}

TEST(TemporalAttention, HostAgreesWithTheOracleOnRandomProblems) {
  EXPECT_TRUE(rc::check([] {
    const auto layout = *rc::gen::element<std::string>("separate", "packed_3hd", "packed_h3d", "packed_hd3");
    const std::string text = "batch=" + std::to_string(*rc::gen::inRange<int>(1, 3)) +
                             ",frames=" + std::to_string(*rc::gen::inRange<int>(1, 33)) +
                             ",hw=" + std::to_string(*rc::gen::inRange<int>(1, 20)) +
                             ",heads=" + std::to_string(*rc::gen::inRange<int>(1, 4)) +
                             ",dim=" + std::to_string(*rc::gen::inRange<int>(1, 80)) + ",layout=" + layout;
    HostData data(temporal_op(), text, *rc::gen::element(DType::bf16, DType::fp16, DType::fp32),
                  *rc::gen::arbitrary<unsigned>());
    RC_ASSERT(data.run_host().ok());
    RC_ASSERT(data.worst_error() <= 1);
  }));
}

TEST(Attention, AWrongElementIsOutsideTheTolerance) {
  HostData data(attention_op(), "batch=1,heads=2,seq_q=40,seq_kv=77,dim=40", DType::bf16, 5);
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_LE(data.worst_error(), 1);
  const double value = load_element(DType::bf16, data.storage[3].data(), 777);
  store_element(DType::bf16, data.storage[3].data(), 777, value + 0.05);
  EXPECT_GT(data.worst_error(), 1);
}

TEST(Attention, ProblemsThatMakeNoSenseAreRefused) {
  const auto message = [](const Op& op, const std::string& text) -> std::string {
    try {
      op.parse(text);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(attention_op(), "batch=1,heads=1,seq_q=4,seq_kv=5,dim=8,layout=packed_3hd").find("seq_kv"),
            std::string::npos);
  EXPECT_NE(message(attention_op(), "batch=1,heads=1,seq_q=4,seq_kv=5,dim=257").find("dim"), std::string::npos);
  EXPECT_NE(message(attention_op(), "batch=1048576,heads=1024,seq_q=1048576,seq_kv=1,dim=256").find("2^40"),
            std::string::npos);
  EXPECT_NE(message(temporal_op(), "batch=1,frames=33,hw=4,heads=1,dim=8").find("frames"), std::string::npos);
  EXPECT_NE(message(temporal_op(), "batch=1048576,frames=32,hw=16777216,heads=1024,dim=256").find("2^40"),
            std::string::npos);
}

std::string refusal(const Op& op, const std::string& variant, const std::string& text, DType dtype) {
  for (const AnyVariant& row : op.variants)
    if (row.name == variant) {
      const Support support = row.can_run(op.parse(text), dtype);
      return support ? "" : support.reason;
    }
  return "no variant " + variant;
}

TEST(Attention, RungsSayWhatTheyCannotRead) {
  const std::string plain = "batch=2,heads=3,seq_q=65,seq_kv=81,dim=40";
  const std::string interleaved = "batch=2,heads=3,seq_q=65,seq_kv=65,dim=40,layout=packed_hd3";
  for (const std::string variant : {"tensor_core_sm80", "ptx_sm90a"}) {
    EXPECT_EQ(refusal(attention_op(), variant, plain, DType::bf16), "");
    EXPECT_NE(refusal(attention_op(), variant, plain, DType::fp32).find("bf16"), std::string::npos);
    EXPECT_NE(refusal(attention_op(), variant, interleaved, DType::bf16).find("packed_3hd"), std::string::npos);
    EXPECT_NE(refusal(attention_op(), variant, "batch=1,heads=1,seq_q=1,seq_kv=1,dim=20", DType::fp16).find("8"),
              std::string::npos);
    EXPECT_NE(refusal(temporal_op(), variant, "batch=1,frames=3,hw=2,heads=1,dim=8,layout=packed_hd3", DType::bf16)
                  .find("packed_3hd"),
              std::string::npos);
  }
  EXPECT_NE(refusal(attention_op(), "ptx_sm90a_short", plain, DType::bf16).find("80"), std::string::npos);
  EXPECT_EQ(refusal(attention_op(), "ptx_sm90a_short", "batch=2,heads=3,seq_q=65,seq_kv=80,dim=40", DType::bf16), "");
  for (const std::string variant : {"host", "naive", "tiled"})
    EXPECT_EQ(refusal(attention_op(), variant, interleaved, DType::fp32), "");
}

TEST(Attention, CostCountsBothProductsAndEachTensorOnce) {
  const Cost cost =
      attention_op().cost(attention_op().parse("batch=2,heads=8,seq_q=4096,seq_kv=77,dim=40"), DType::bf16);
  EXPECT_EQ(cost.flops, 4.0 * 2 * 8 * 4096 * 77 * 40);
  EXPECT_EQ(cost.bytes, 2.0 * 2 * 8 * 40 * (2 * 4096 + 2 * 77));
  const Cost temporal =
      temporal_op().cost(temporal_op().parse("batch=2,frames=14,hw=9216,heads=5,dim=64"), DType::bf16);
  EXPECT_EQ(temporal.flops, 4.0 * 2 * 9216 * 5 * 14 * 14 * 64);
  EXPECT_EQ(temporal.bytes, 4 * 2.0 * 2 * 14 * 9216 * 5 * 64);
}

}  // namespace
}  // namespace noisefloor::attention
