// attention_backward's oracle against differences of attention's.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/slopes.h"

namespace noisefloor {
namespace {

TEST(AttentionBackward, IsTheSlopeOfAttention) {
  for (const std::string layout : {"separate", "packed_3hd", "packed_h3d", "packed_hd3"})
    for (const char* scale : {"0", "1.25"}) {
      SCOPED_TRACE(layout + " " + scale);
      const bool separate = layout == "separate";
      const std::string problem = std::string("batch=2,heads=2,seq_q=3,dim=4,seq_kv=") + (separate ? "5" : "3") +
                                  ",layout=" + layout + ",scale=" + scale;
      HostData forward(*find_op("attention"), problem + ",lse=1", DType::fp32, 1);
      HostData backward(*find_op("attention_backward"), problem, DType::fp32, 2);
      coarsen(forward);
      for (const std::string name : {"q", "k", "v", "qkv"})
        if (separate == (name != "qkv")) backward.set(name, values_of(forward, name));
      backward.set("o", forward.reference("out"));
      backward.set("lse", forward.reference("lse"));
      const std::vector<double> dout = values_of(backward, "dout");
      for (const std::string name : {"q", "k", "v", "qkv"})
        if (separate == (name != "qkv"))
          expect_slopes(forward, name, "out", dout, backward.reference("d" + name), 1e-6);
    }
}

// One key: its weight is 1, whatever it is, and its value's gradient all of them.
TEST(AttentionBackward, GivesTheNumbersWorkedOutByHand) {
  by_hand("attention_backward", "batch=1,heads=1,seq_q=2,seq_kv=1,dim=1,scale=1",
          {{"q", {2, 4}}, {"k", {0.5}}, {"v", {3}}, {"o", {3, 3}}, {"lse", {1, 2}}, {"dout", {5, -7}}},
          {{"dq", {0, 0}}, {"dk", {0}}, {"dv", {-2}}});
  // Two keys of weight 1 each; delta is 20, the value's gradients 10 and 30.
  by_hand("attention_backward", "batch=1,heads=1,seq_q=1,seq_kv=2,dim=1,scale=2",
          {{"q", {3}}, {"k", {0, 0}}, {"v", {1, 3}}, {"o", {2}}, {"lse", {0}}, {"dout", {10}}},
          {{"dq", {0}}, {"dk", {-60, 60}}, {"dv", {10, 10}}});
}

}  // namespace
}  // namespace noisefloor
