// elementwise's gradients: their oracles against differences of the forward ones', and numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/slopes.h"

namespace noisefloor {
namespace {

TEST(ElementwiseGradients, AreTheSlopesOfWhatTheyAreTheGradientsOf) {
  const struct {
    const char *backward, *forward, *problem, *input, *output;
  } kTable[] = {{"silu_backward", "elementwise", "op=silu,channels=40", "x", "y"},
                {"relu_backward", "elementwise", "op=relu,channels=40", "x", "y"},
                {"gelu_backward", "gemm", "act=gelu,m=40,n=1,k=1,bias=0", "a", "d"},
                {"geglu_backward", "elementwise", "op=geglu,channels=10,hw=2", "x", "y"}};
  for (const auto& [op, forward_op, problem, input, output] : kTable) {
    SCOPED_TRACE(op);
    HostData forward(*find_op(forward_op), problem, DType::fp32, 1);
    coarsen(forward);
    if (forward_op == std::string("gemm")) forward.set("b", {1});
    const auto elements = static_cast<std::int64_t>(values_of(forward, input).size());
    for (std::int64_t i = 0; i < elements; ++i)  // away from 0, where relu has no slope
      if (std::abs(forward.get(input, i)) < 0.125) forward.set(forward.index(input), i, 0.125);
    HostData backward(
        *find_op("elementwise"),
        std::string("op=") + op + (op == std::string("geglu_backward") ? ",channels=10,hw=2" : ",channels=40"),
        DType::fp32, 2);
    backward.set("x", values_of(forward, input));
    expect_slopes(forward, input, output, values_of(backward, "dy"), backward.reference("y"), 1e-6);
  }
}

TEST(ElementwiseGradients, GiveTheNumbersWorkedOutByHand) {
  by_hand("elementwise", "op=relu_backward,channels=4", {{"x", {-1, 0, 2, 3}}, {"dy", {5, 6, 7, -8}}},
          {{"y", {0, 0, 7, -8}}});
  by_hand("elementwise", "op=silu_backward,channels=2", {{"x", {0, 80}}, {"dy", {6, 7}}}, {{"y", {3, 7}}});
  by_hand("elementwise", "op=gelu_backward,channels=3", {{"x", {0, 30, -30}}, {"dy", {6, 7, 8}}}, {{"y", {3, 7, 0}}});
  // A row: values 2 and 3, gates 0 and 20.
  by_hand("elementwise", "op=geglu_backward,channels=2", {{"x", {2, 3, 0, 20}}, {"dy", {10, 100}}},
          {{"y", {0, 2000, 10, 300}}});
  by_hand("elementwise", "op=scale,channels=3,scale=-0.5", {{"x", {1, -2, 0}}}, {{"y", {-0.5, 1, 0}}});
}

}  // namespace
}  // namespace noisefloor
