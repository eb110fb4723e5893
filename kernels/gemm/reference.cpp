// The oracle: every product and sum in double, one output element at a time.
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/core/exact.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::gemm {
namespace {

double activate(Activation act, double x) {
  switch (act) {
    case Activation::none:
    case Activation::geglu:  // gates two sums; see below
      return x;
    case Activation::silu:
      return exact::silu(x);
    case Activation::gelu:
      return exact::gelu(x);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

// Floats hold bf16, fp16 and fp32 exactly.
std::vector<float> row_of(const HostTensor& matrix, std::int64_t row, std::int64_t k) {
  std::vector<float> values(static_cast<std::size_t>(k));
  load_floats(matrix.dtype, matrix.data, row * k, k, values.data());
  return values;
}

}  // namespace

void reference(const Problem& problem, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor a{dtype, t.a}, b{dtype, t.b}, bias{dtype, t.bias};
  const HostTensor image_shift{dtype, t.image_shift}, residual{dtype, t.residual}, blend{dtype, t.blend};
  constexpr std::int64_t kElementsPerTask = 64;
  parallel_for(static_cast<std::int64_t>(elements.size()), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> a_row;
    std::int64_t held_row = -1;
    for (std::int64_t e = begin; e < end; ++e) {
      const std::int64_t element = elements[static_cast<std::size_t>(e)];
      const std::int64_t part = problem.part();
      const std::int64_t i = element / part % problem.m;
      const std::int64_t j = element / (part * problem.m) * part + element % part;
      if (i != held_row) {
        a_row = row_of(a, i, problem.k);
        held_row = i;
      }
      const auto linear = [&](std::int64_t column) {
        double sum = problem.scale * exact::dot(a_row, row_of(b, column, problem.k));
        if (bias) sum += bias[column];
        if (image_shift) sum += image_shift[i / problem.rows_per_image() * problem.n + column];
        return sum;
      };
      double value =
          problem.gated() ? linear(j) * exact::gelu(linear(problem.n + j)) : activate(problem.act, linear(j));
      if (residual) value += residual[element];
      if (blend) value += t.share[0] * (blend[element] - value);
      values[static_cast<std::size_t>(e)] = value;
    }
  });
}

}  // namespace noisefloor::gemm
