// attention and temporal_attention on the host: the oracle against numbers worked out by hand and against itself
// through other layouts.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/temporal_attention/temporal_attention.h"
#include "tests/support/host_data.h"

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

TEST(attention, GivesTheNumbersWorkedOutByHand) {
  // One query (1, 2) against keys (0, 0) and (log(3), 0), scale 1: logits 0 and log(3), weights 1/4 and 3/4.
  const double key = std::log(3.0f), weight = std::exp(key) / (1 + std::exp(key));
  by_hand("attention", "batch=1,heads=1,seq_q=1,seq_kv=2,dim=2,scale=1,lse=1",
          {{"q", {1, 2}}, {"k", {0, 0, key, 0}}, {"v", {4, 8, -4, 0}}},
          {{"out", {4 - 8 * weight, 8 * (1 - weight)}}, {"lse", {std::log(1 + std::exp(key))}}});
  // Logits 4 / 2 and 0: without a scale it is one over the root of dim.
  by_hand("attention", "batch=1,heads=1,seq_q=1,seq_kv=2,dim=4,lse=1",
          {{"q", {1, 1, 1, 1}}, {"k", {2, 0, 1, 1, 1, -1, 2, -2}}}, {{"lse", {std::log(std::exp(2.0) + 1)}}});
  EXPECT_EQ(attention_op().print(attention_op().parse("batch=1,heads=1,seq_q=1,seq_kv=2,dim=4,scale=0,lse=0")),
            "batch=1,heads=1,seq_q=1,seq_kv=2,dim=4");
  // Logits 10000, -10000, 10000 neither overflow nor vanish.
  by_hand("attention", "batch=1,heads=1,seq_q=1,seq_kv=3,dim=1,scale=1000,lse=1",
          {{"q", {10}}, {"k", {1, -1, 1}}, {"v", {2, 100, 4}}}, {{"out", {3}}, {"lse", {10000 + std::log(2.0)}}});
}

// The three packed orders are the same numbers as separate tensors, put elsewhere.
TEST(attention, PackedLayoutsAreSeparateTensorsPutElsewhere) {
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
    EXPECT_EQ(packed.difference(), "") << layout;
  }
}

// A row whose largest logit meets values far out; random problems meet such a row once in thousands.
TEST(attention, HostStaysWithinTheToleranceWhereALargeLogitMeetsALargeValue) {
  HostData data(attention_op(), "batch=2,heads=4,seq_q=32,seq_kv=32,dim=256,layout=packed_3hd,lse=1", DType::fp32,
                412077876u);
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_EQ(data.difference(), "");
}

TEST(temporal_attention, IsAttentionAlongTheFramesOfEachPixel) {
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

}  // namespace
}  // namespace noisefloor::attention
