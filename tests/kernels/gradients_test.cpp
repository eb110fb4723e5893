// Backward ops against the forward ops that they belong to, oracle against oracle: a gradient is what central
// differences of the forward op say. And numbers worked out by hand, or that PyTorch's autograd gives.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/host_data.h"

namespace noisefloor {
namespace {

// The gradient of the forward op's NAME is dNAME in the backward op, other tensors have one name in both; `names` are
// those of the backward op of which that is not so.
struct Case {
  std::string forward, forward_problem, backward, backward_problem;
  std::map<std::string, std::string> names = {};
  double scale = 1, residual_scale = 1;  // gradients are scale times the slope, and x's have a residual
  std::map<std::string, std::vector<double>> recorded = {};  // gradients of inputs by `number`
};

double number(const std::string& tensor, std::int64_t element) {
  return static_cast<double>((37 * element + 11 * (tensor.front() + 2 * tensor.back())) % 23 - 11) / 8;
}

class Pair {
 public:
  explicit Pair(const Case& one)
      : one_(one),
        forward_(*find_op(one.forward), one.forward_problem, DType::fp32, 1),
        backward_(*find_op(one.backward), one.backward_problem, DType::fp32, 2) {
    // Multiples of 2^-10, so that a step from them is exact; not about 0, where relu has no slope.
    for (std::size_t i = 0; i < forward_.specs.size(); ++i)
      for (std::int64_t e = 0; forward_.specs[i].role == Role::in && e < forward_.specs[i].elements(); ++e) {
        if (!one.recorded.empty()) {
          forward_.set(i, e, number(forward_.specs[i].name, e));
          continue;
        }
        const double value = std::round(forward_.get(i, e) * 1024) / 1024;
        forward_.set(i, e, std::abs(value) < 0.125 ? 0.125 : value);
      }
    for (const TensorSpec& spec : forward_.specs)
      if (spec.role == Role::out && output_.empty()) output_ = spec.name;
    for (const TensorSpec& spec : backward_.specs) {
      if (spec.role != Role::in) continue;
      const std::string name = name_of(spec);
      if (is_gradient(name)) {
        output_ = name.substr(1);
        for (std::int64_t e = 0; !one.recorded.empty() && e < spec.elements(); ++e)
          backward_.set(backward_.index(spec.name), e, number(output_, e));
        weights_ = backward_.values(spec.name);
      } else if (forward_.has(name)) {
        const bool is_output = forward_.specs[forward_.index(name)].role == Role::out;
        backward_.set(spec.name, is_output ? forward_.reference(name) : forward_.values(name));
      }
    }
  }

  void check() {
    int gradients = 0;
    for (const TensorSpec& spec : backward_.specs)
      if (const std::string name = name_of(spec); spec.role == Role::out && is_gradient(name)) {
        check(spec.name, name.substr(1));
        ++gradients;
      }
    EXPECT_GT(gradients, 0);
  }

 private:
  std::string name_of(const TensorSpec& spec) const {
    const auto found = one_.names.find(spec.name);
    return found == one_.names.end() ? spec.name : found->second;
  }
  bool is_gradient(const std::string& name) const { return name.starts_with('d') && forward_.has(name.substr(1)); }

  void check(const std::string& gradient, const std::string& input) {
    constexpr double kStep = 0x1p-7;
    const std::vector<double> found = backward_.reference(gradient);
    const std::size_t tensor = forward_.index(input);
    ASSERT_EQ(static_cast<std::int64_t>(found.size()), forward_.specs[tensor].elements());
    if (!one_.recorded.empty()) {
      const std::vector<double>& wanted = one_.recorded.at(gradient);
      ASSERT_EQ(found.size(), wanted.size()) << gradient;
      for (std::size_t e = 0; e < found.size(); ++e)
        EXPECT_NEAR(found[e], wanted[e], 2e-6 * (1 + std::abs(wanted[e]))) << gradient << "[" << e << "]";
      return;
    }
    for (std::size_t e = 0; e < found.size(); e += 1 + found.size() / 24) {
      const auto element = static_cast<std::int64_t>(e);
      const double at = forward_.get(tensor, element);
      const auto sum_at = [&](double steps) {
        forward_.set(tensor, element, at + steps * kStep);
        const std::vector<double> y = forward_.reference(output_);
        return std::inner_product(y.begin(), y.end(), weights_.begin(), 0.0);
      };
      double wanted = one_.scale * (8 * (sum_at(1) - sum_at(-1)) - (sum_at(2) - sum_at(-2))) / (12 * kStep);
      forward_.set(tensor, element, at);
      if (input == "x" && backward_.has("residual")) wanted += one_.residual_scale * backward_.get("residual", element);
      EXPECT_NEAR(found[e], wanted, 2e-6 * (1 + std::abs(wanted))) << gradient << "[" << e << "]";
    }
  }

  const Case& one_;
  HostData forward_, backward_;
  std::string output_;
  std::vector<double> weights_{1};  // of the output's elements; 1: of a loss
};

void expect_gradients(const Case& one) {
  SCOPED_TRACE(one.forward_problem + " / " + one.backward + " " + one.backward_problem);
  Pair(one).check();
}

TEST(Gradients, OfNorms) {
  for (const char* fusion : {"none", "silu", "silu+ss", "silu+ss,packed=1"}) {
    const std::string text = std::string("n=2,hw=12,channels=12,groups=3,fusion=") + fusion;
    const std::string forward = text + ",eps=0.001,stats=1";
    expect_gradients({"groupnorm", forward, "groupnorm_backward", text});
    expect_gradients(
        {"groupnorm", forward, "groupnorm_backward", text + ",residual=1,residual_scale=-0.5", {}, 1, -0.5});
  }
  for (const char* fields :
       {"", ",affine=0", ",fusion=scale_shift,images=3", ",fusion=scale_shift,images=3,affine=0"}) {
    const std::string text = std::string("rows=6,channels=40,eps=0.001") + fields;
    expect_gradients({"layernorm", text, "layernorm_backward", text});
    expect_gradients({"layernorm", text, "layernorm_backward", text + ",residual=1,residual_scale=3", {}, 1, 3});
  }
}

TEST(Gradients, OfConvolutions) {
  const std::map<std::string, std::string> weight{{"weight", "w"}}, shift{{"dshift", "dimage_shift"}};
  for (const std::string shape :
       {"n=2,h=5,w=4,cin=3,cout=2", "n=2,h=5,w=4,cin=1,cout=3,stride=2", "n=1,h=6,w=7,cin=3,cout=1,stride=2",
        "n=1,h=6,w=5,cin=2,cout=3,kernel=1", "n=1,h=5,w=6,cin=2,cout=3,kernel=1,stride=2",
        "n=2,h=3,w=4,cin=3,cout=2,upsample=1", "n=1,h=7,w=8,cin=2,cout=2,kernel=5,stride=2,pad=1",
        "n=1,h=3,w=4,cin=2,cout=2,pad=2", "n=1,h=3,w=4,cin=2,cout=2,kernel=1,pad=1,stride=2"}) {
    const std::string of_x = shape + ",scale=0.5,residual=1,residual_scale=-2", shifted = shape + ",image_shift=1";
    expect_gradients({"conv2d", shape, "conv2d_dgrad", of_x, weight, 0.5, -2});
    expect_gradients({"conv2d", shifted, "conv2d_wgrad", shifted + ",scale=3", shift, 3});
  }
  const std::string shape = "n=2,h=5,w=4,cin=3,cout=2,column=1", video = "batch=2,frames=5,hw=4,cin=3,cout=2";
  expect_gradients({"conv3d_temporal", video, "conv2d_dgrad", shape + ",scale=0.5,residual=1", weight, 0.5});
  expect_gradients({"conv3d_temporal", video + ",image_shift=1", "conv2d_wgrad", shape + ",image_shift=1", shift});
}

TEST(Gradients, OfAttention) {
  for (const std::string layout : {"separate", "packed_3hd", "packed_h3d", "packed_hd3"})
    for (const char* scale : {"0", "1.25"}) {
      const std::string problem = std::string("batch=2,heads=2,seq_q=3,dim=4,seq_kv=") +
                                  (layout == "separate" ? "5" : "3") + ",layout=" + layout + ",scale=" + scale;
      expect_gradients({"attention", problem + ",lse=1", "attention_backward", problem, {{"o", "out"}}});
    }
}

TEST(Gradients, OfLosses) {
  for (const char* more : {"", ",weight=edm,sigma_data=0.7"}) {
    const std::string problem = std::string("batch=3,elements=5") + more;
    expect_gradients({"mse_loss", problem, "mse_loss", problem});
    expect_gradients({"mse_loss", problem, "mse_loss", problem + ",scale=8", {}, 8});
  }
  expect_gradients({"edm_precondition", "side=output,batch=4,elements=6,sigma_data=0.3", "edm_precondition",
                    "side=gradient,batch=4,elements=6,sigma_data=0.3"});
}

TEST(Gradients, OfWhatMovesOrMapsElements) {
  const std::map<std::string, std::string> mapped{{"y", "dx"}}, names{{"x", "dy"}, {"y", "dx"}, {"skip", "dskip"}};
  for (const std::string op : {"channels=10,hw=2,op=silu", "channels=10,hw=2,op=relu", "channels=10,hw=2,op=geglu"})
    expect_gradients({"elementwise", op, "elementwise", op + "_backward", mapped});
  for (const auto& [forward, backward] :
       {std::pair("op=nearest_up2,n=2,h=3,w=4,channels=5", "op=average_down2,n=2,h=6,w=8,channels=5,scale=4"),
        {"op=average_down2,n=2,h=6,w=4,channels=5", "op=nearest_up2,n=2,h=3,w=2,channels=5,scale=0.25"},
        {"op=nearest_up2,h=3,w=4,channels=5,scale=0.3", "op=average_down2,h=6,w=8,channels=5,scale=1.2"},
        {"op=concat,n=2,h=3,w=2,channels=5,skip_channels=3", "op=split,n=2,h=3,w=2,channels=5,skip_channels=3"}})
    expect_gradients({"resample", forward, "resample", backward, names});
}

// Where PyTorch is, tests/python/test_gradients.py does so on random numbers.
TEST(Gradients, AreThoseOfPytorchsAutogradInFp64) {
  const auto expect = [](const std::string& forward, const std::string& backward, const std::string& problem,
                         std::map<std::string, std::vector<double>> gradients,
                         std::map<std::string, std::string> names = {}, const std::string& more = "") {
    expect_gradients({forward, problem + more, backward, problem, names, 1, 1, gradients});
  };
  const std::string conv = "n=1,h=3,w=3,cin=1,cout=2,stride=2";
  expect("conv2d", "conv2d_dgrad", conv,
         {{"dx", {-0.703125, 1.203125, -0.9375, 0.453125, -2.5, -0.015625, 1.34375, -2.96875, 1.109375}}},
         {{"weight", "w"}});
  expect("conv2d", "conv2d_wgrad", conv,
         {{"dw",
           {-0.234375, 2.1875, -0.46875, 0.953125, -1.046875, 0.484375, 0.375, -1.265625, 0.140625, 0.421875, -1.53125,
            0.1875, -0.25, -0.21875, -0.71875, -0.046875, 1.125, -0.28125}},
          {"dbias", {-0.5, 0.75}}});
  expect(
      "groupnorm", "groupnorm_backward", "n=1,hw=2,channels=4,groups=2,fusion=silu+ss",
      {{"dx", {-0.684828866, -1.32545152, -1.50478109, 0.218713832, 1.84145462, 0.168825767, 0.0765171648, 1.20955009}},
       {"dgamma", {-1.57308673, -0.20780704, -0.701245654, 0.105824951}},
       {"dbeta", {-1.03731009, -0.0561219834, 1.68444624, 0.869567131}},
       {"dscale", {1.05287518, -0.275309121, 1.16664028, 0.136060651}},
       {"dshift", {-0.754407341, -0.224487934, 0.842223122, 0.993791007}}},
      {}, ",eps=0.001,stats=1");
  expect("layernorm", "layernorm_backward", "rows=2,channels=4,eps=0.001,fusion=scale_shift,images=1",
         {{"dx",
           {-0.117911824, 0.459180056, -0.865796533, 0.524528301, 1.53611233, -0.766451628, -1.10556737, 0.33590667}},
          {"dgamma", {-0.954395156, -0.455469096, -1.32606053, -0.255973327}},
          {"dbeta", {-1.203125, -0.0625, 0.75, 0.875}},
          {"dscale", {0.43013196, -0.754688192, 0.836268915, -0.329108563}},
          {"dshift", {-0.875, -0.25, 0.375, 1}}});
  expect("attention", "attention_backward", "batch=1,heads=1,seq_q=2,seq_kv=3,dim=2",
         {{"dq", {-0.355496018, -0.355496018, -0.285573815, -0.285573815}},
          {"dk", {-0.467310185, 0.68972752, 0.194482453, -0.324597426, 0.272827732, -0.365130094}},
          {"dv", {-0.589056733, 0.411466544, -0.610379756, 0.517716595, -0.675563511, 0.695816862}}},
         {{"o", "out"}}, ",lse=1");
}

double product_of(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// <dgrad(dy), x> = <dy, conv(x)> = <wgrad(x, dy), w>, of the host variants at sizes at which they work in blocks.
TEST(Gradients, OfConvolutionsAreTheirAdjoints) {
  for (const std::string shape : {"n=3,h=17,w=12,cin=20,cout=33", "n=2,h=16,w=18,cin=33,cout=20,stride=2",
                                  "n=2,h=9,w=8,cin=17,cout=24,upsample=1", "n=5,h=7,w=9,cin=40,cout=30,kernel=1",
                                  "n=2,h=15,w=16,cin=8,cout=9,kernel=5,stride=2,pad=1"}) {
    SCOPED_TRACE(shape);
    HostData conv(*find_op("conv2d"), shape + ",bias=0", DType::fp32, 1),
        dgrad(*find_op("conv2d_dgrad"), shape, DType::fp32, 2),
        wgrad(*find_op("conv2d_wgrad"), shape + ",bias=0", DType::fp32, 3);
    const std::vector<double> x = conv.values("x"), w = conv.values("w"), dy = dgrad.values("dy");
    dgrad.set("weight", w), wgrad.set("x", x), wgrad.set("dy", dy);
    for (HostData* one : {&conv, &dgrad, &wgrad}) ASSERT_TRUE(one->run_host().ok());
    const std::vector<double> y = conv.values("y");
    const double wanted = product_of(dy, y), allowed = 1e-6 * std::sqrt(product_of(y, y) * product_of(dy, dy));
    EXPECT_NEAR(product_of(dgrad.values("dx"), x), wanted, allowed);
    EXPECT_NEAR(product_of(wgrad.values("dw"), w), wanted, allowed);
  }
}

// The op's tolerance lets a library round them to the dtype.
TEST(Gradients, OfParametersTheHostsAreSumsInFp32OfAnyDtype) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    HostData data(*find_op("conv2d_wgrad"), "n=40,h=8,w=8,cin=9,cout=30", dtype, 1);
    ASSERT_TRUE(data.run_host().ok());
    EXPECT_EQ(data.difference(1e-5), "");
  }
}

TEST(Gradients, OfActivationsAreTheNumbersWorkedOutByHand) {
  by_hand("elementwise", "op=relu_backward,channels=4", {{"x", {-1, 0, 2, 3}}, {"dy", {5, 6, 7, -8}}},
          {{"y", {0, 0, 7, -8}}});
  by_hand("elementwise", "op=silu_backward,channels=2", {{"x", {0, 80}}, {"dy", {6, 7}}}, {{"y", {3, 7}}});
  by_hand("elementwise", "op=gelu_backward,channels=4", {{"x", {0, 30, -30, 1}}, {"dy", {6, 7, 8, 1}}},
          {{"y", {3, 7, 0, 1.0833154705876864}}});
  by_hand("elementwise", "op=scale,channels=3,scale=-0.5", {{"x", {1, -2, 0}}}, {{"y", {-0.5, 1, 0}}});
}

}  // namespace
}  // namespace noisefloor
