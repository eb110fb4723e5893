// The contract of an op, typed: what a room declares of itself in <op>.h.
//
// Every kernel's file includes it, through compilers that read a header four times, so it includes little: fields,
// tensors and costs are declared here and defined in fields.h, tensor.h and cost.h, for the sources that need them. An
// op's choices: variant.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/status.h"
#include "kernels/core/variant.h"

namespace noisefloor {

class FieldVisitor;
class TensorVisitor;
struct TensorSpec;
struct Cost;

// An output element may differ from the reference by at most max_error * (|reference| + rms(reference)), and the whole
// output by a relative L2 norm of at most l2_error.
struct Tolerance {
  double max_error = 0;
  double l2_error = 0;
};

inline constexpr DType kFloatTypes[] = {DType::bf16, DType::fp16, DType::fp32};

// What an output may be off by that is rounded once, by u(dtype), where it is a sum of `k` products in fp32 behind an
// epilogue: a tensor core truncates its partial sum once per 16 products (2^-23 of its size), and an fp32 FMA chain of
// length k drifts by less than that. The epilogue (scale, bias, activation, residual) adds a few units, which the
// constant covers, with room for single outputs that cancel to near 0.
constexpr double product_sums_error(std::int64_t k) {
  constexpr double kEpilogueUnits = 32;
  return (static_cast<double>((k + 15) / 16) + kEpilogueUnits) * 0x1p-23;
}
constexpr Tolerance product_tolerance(DType dtype, std::int64_t k) {
  const double both = unit_roundoff(dtype) + product_sums_error(k);
  return {both, both};
}

// An op, typed. Rooms declare `extern const OpDefinition<Problem, Tensors> definition;` and fill it in <op>.cpp.
template <class P, class T>
struct OpDefinition {
  using Problem = P;
  using Tensors = T;
  using Way = noisefloor::Way<P, T>;
  using Variant = noisefloor::Variant<P, T>;
  using Launcher = typename Way::Launcher;
  // Values of some elements of the output of that name in double; the tensors lie in host memory, outputs are null.
  using Reference = void(const P&, DType, const T&, std::string_view output, std::span<const std::int64_t> elements,
                         std::span<double> values);
  using Variants = std::span<const Variant>();
  using FillTensor = void(const P&, DType, std::size_t tensor, void* data);

  const char* name;
  void (*fields)(P&, FieldVisitor&);
  void (*check)(const P&);  // throws InvalidInput on fields that clash
  void (*visit_tensors)(const P&, T&, TensorVisitor&);
  Cost (*cost_of)(const P&, DType, double tensor_bytes);  // all tensors' bytes are the compulsory ones of most ops
  Tolerance (*tolerance)(const P&, DType);
  Reference* reference;
  Variants* variants;  // best last
  FillTensor* fill_tensor = nullptr;

  std::span<const DType> dtypes() const { return kFloatTypes; }

  // Their bodies are in op.h, which whoever calls them includes.
  std::vector<TensorSpec> tensors(const P& problem, DType dtype) const;
  T bind(const P& problem, std::span<void* const> pointers) const;  // in the order of tensors()
  // For launchers whose loads are vectors: a tensor that the problem has must not be null, and lies at 16 bytes.
  Status check_pointers(const P& problem, T bound) const;
  Cost cost(const P& problem, DType dtype) const;
  void fill(const P& problem, DType dtype, std::size_t tensor, void* data) const;
};

}  // namespace noisefloor
