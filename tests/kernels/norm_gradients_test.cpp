// Backward ops against the forward ops that they belong to, oracle against oracle: a gradient is what central
// differences of the forward op say, and the backward pass of a linear op is its adjoint.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/catalogue.h"
#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

double inner(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
std::vector<double> values_of(const HostData& data, std::size_t tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < data.specs[tensor].elements(); ++i) values.push_back(data.get(tensor, i));
  return values;
}

// The backward op's tensor "dNAME" is the gradient of the forward op's NAME. Inputs are multiples of 2^-12, and the
// step is 2^-6, so that all numbers are those of fp32 tensors; the difference of fourth order is off by some 2^-24
// / 30.
void expect_gradients(const char* forward_op, const std::string& forward_text, const std::string& backward_text) {
  SCOPED_TRACE(forward_text + " / " + backward_text);
  const std::string backward_op =
      forward_op == std::string("edm_precondition") ? forward_op : std::string(forward_op) + "_backward";
  HostData forward(*find_op(forward_op), forward_text, DType::fp32, 1);
  HostData backward(*find_op(backward_op), backward_text, DType::fp32, 2);
  std::size_t output = forward.specs.size();
  for (std::size_t i = 0; i < forward.specs.size(); ++i) {
    if (forward.specs[i].role == Role::out) {
      output = std::min(output, i);
      continue;
    }
    for (std::int64_t e = 0; e < forward.specs[i].elements(); ++e)
      forward.set(i, e, std::round(forward.get(i, e) * 4096) / 4096);
    for (std::size_t j = 0; j < backward.specs.size(); ++j)
      if (backward.specs[j].role == Role::in && backward.specs[j].name == std::string(forward.specs[i].name))
        backward.storage[j] = forward.storage[i];
  }
  const std::vector<double> dy = values_of(backward, backward.index(std::string("d") + forward.specs[output].name));
  std::vector<double> residual;
  double residual_scale = 0;
  for (const KeyValue& field : backward.op.values(backward.problem)) {
    if (field.key == "residual" && field.value == "1") residual = values_of(backward, backward.index("residual"));
    if (field.key == "residual_scale") residual_scale = std::stod(field.value);
  }

  int gradients = 0;
  for (std::size_t j = 0; j < backward.specs.size(); ++j) {
    if (backward.specs[j].role != Role::out) continue;
    ++gradients;
    const std::string name = std::string(backward.specs[j].name).substr(1);
    const std::size_t input = forward.index(name);
    const std::vector<double> found = backward.reference(j);
    ASSERT_EQ(static_cast<std::int64_t>(found.size()), forward.specs[input].elements());
    for (std::size_t e = 0; e < found.size(); e += 1 + found.size() / 24) {
      const auto at = static_cast<std::int64_t>(e);
      const double value = forward.get(input, at), step = 0x1p-6;
      const auto loss = [&](double steps) {
        forward.set(input, at, value + steps * step);
        return inner(forward.reference(output), dy);
      };
      double wanted = (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * step);
      forward.set(input, at, value);
      if (name == "x" && !residual.empty()) wanted += residual_scale * residual[e];
      EXPECT_NEAR(found[e], wanted, 2e-6 * (1 + std::abs(wanted))) << name << "[" << e << "]";
    }
  }
  EXPECT_GT(gradients, 0);
}

TEST(Gradients, OfNormsAreTheirCentralDifferences) {
  for (const char* fusion : {"none", "silu", "silu+ss", "silu+ss,packed=1"})
    for (const char* residual : {"", ",residual=1", ",residual=1,residual_scale=-0.5"}) {
      const std::string text = std::string("n=2,hw=12,channels=12,groups=3,eps=0.001,fusion=") + fusion;
      expect_gradients("groupnorm", text, text + residual);
    }
  for (const char* fields : {"", ",affine=0", ",fusion=scale_shift,images=3", ",fusion=scale_shift,images=3,affine=0"})
    for (const char* residual : {"", ",residual=1,residual_scale=3"}) {
      const std::string text = std::string("rows=6,channels=40,eps=0.001") + fields;
      expect_gradients("layernorm", text, text + residual);
    }
  expect_gradients("edm_precondition", "side=output,batch=4,elements=6,sigma_data=0.3",
                   "side=gradient,batch=4,elements=6,sigma_data=0.3");
}

// <op(x), y> of one problem and <x, op(y)> of the other, whose x is the first one's y.
void expect_adjoint(const char* forward_text, const char* backward_text) {
  SCOPED_TRACE(std::string(forward_text) + " / " + backward_text);
  const HostData forward(*find_op("resample"), forward_text, DType::fp32, 1);
  const HostData backward(*find_op("resample"), backward_text, DType::fp32, 2);
  double left = inner(forward.reference("y"), values_of(backward, 0)), right = 0;
  const std::vector<const char*> outputs = forward.specs.size() == 3 ? std::vector{"y", "skip"} : std::vector{"y"};
  for (std::size_t i = 0; i < outputs.size(); ++i)
    right += inner(values_of(forward, i), backward.reference(outputs[i]));
  EXPECT_NEAR(left, right, 1e-9 * (1 + std::abs(left)));
  EXPECT_GT(std::abs(left), 1e-3) << "which says little";
}

TEST(Gradients, OfResamplingAreItsAdjoint) {
  expect_adjoint("op=nearest_up2,n=2,h=3,w=4,channels=5", "op=average_down2,n=2,h=6,w=8,channels=5,scale=4");
  expect_adjoint("op=average_down2,n=2,h=6,w=4,channels=5", "op=nearest_up2,n=2,h=3,w=2,channels=5,scale=0.25");
  expect_adjoint("op=nearest_up2,h=3,w=4,channels=5,scale=0.3", "op=average_down2,h=6,w=8,channels=5,scale=1.2");
  expect_adjoint("op=concat,n=2,h=3,w=2,channels=5,skip_channels=3", "op=split,n=2,h=3,w=2,channels=5,skip_channels=3");
}

}  // namespace
}  // namespace noisefloor
