// The kernels whose constants can be fitted.
#include <fmt/format.h>

#include "bench/fit/timings.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/convolution/halo.h"
#include "kernels/convolution/schedule.h"
#include "kernels/gemm/schedule.h"

namespace noisefloor::fit {
namespace {

using Use = std::function<void(const product::Sm90aModel&)>;

void with_gemm(const AnyProblem& problem, const Use& use) {
  use(gemm::model_of(problem.as<gemm::Problem>()));
}

template <product::Sm90aModel (*model_of)(const convolution::Convolution&)>
void with_convolution(const AnyProblem& problem, const Use& use) {
  const auto convolution = conv2d::describe(problem.as<conv2d::Problem>(), conv2d::Form::phased);
  use(model_of(convolution));
}

}  // namespace

product::Sm90aKernel FittedKernel::present() const {
  product::Sm90aKernel kernel;
  with_model(name == "gemm" ? AnyProblem(gemm::Problem{}) : AnyProblem(conv2d::Problem{}),
             [&](const product::Sm90aModel& model) { kernel = model.kernel; });
  return kernel;
}

const std::vector<FittedKernel>& fitted_kernels() {
  static const std::vector<FittedKernel> all = {
      {"gemm", make_op(gemm::definition), "ptx_sm90a", "kernels/gemm/schedule.cpp", false, with_gemm},
      {"im2col", make_op(conv2d::definition), "ptx_sm90a", "kernels/convolution/schedule.cpp", true,
       with_convolution<convolution::im2col_model_of>},
      {"halo", make_op(conv2d::definition), "ptx_sm90a_halo", "kernels/convolution/halo.cpp", false,
       with_convolution<convolution::halo_model_of>},
  };
  return all;
}

const FittedKernel& require_kernel(std::string_view name) {
  for (const FittedKernel& kernel : fitted_kernels())
    if (kernel.name == name) return kernel;
  throw InvalidInput(fmt::format("there is no kernel '{}' to fit; these are: gemm, im2col, halo", name));
}

}  // namespace noisefloor::fit
