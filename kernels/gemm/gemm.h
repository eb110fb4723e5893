// gemm: a linear layer, D[m,n] = act(scale * A[m,k] B[n,k]^T + bias[n] (+ image_shift[image of m, n])) (+
// residual[m,n]), or that blended with another tensor: (1 - share) * (...) + share * blend[m,n]. Its gradients are
// products of the same matrices in other layouts: of Y = X W^T, dX = dY W (nn) and dW = dY^T X (tn), with the bias's as
// the row sums of dY^T.
//
// Tensors are row-major in one dtype (bf16, fp16 or fp32; share and row_sums are fp32, and D may be), the k extent
// contiguous in A and B unless `layout` says otherwise; products are summed in fp32 (double in the reference), and
// everything up to the final rounding of D happens in fp32.
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"

namespace noisefloor::gemm {

// gelu is x * Phi(x) with the exact normal distribution function; gelu_tanh its tanh approximation (Hendrycks and
// Gimpel, arXiv:1606.08415). geglu is the gated form of Shazeer (arXiv:2002.05202) as diffusers computes it: B has 2n
// rows and bias 2n entries, the first n make the value and the last n the gate, and D = value * gelu(gate).
enum class Activation { none, silu, gelu, gelu_tanh, geglu };
// How A and B lie, t for transposed: [m, k] and [n, k]; [m, k] and [k, n]; [k, m] and [k, n].
enum class Layout { nt, nn, tn };
enum class Target { same, fp32 };  // D's type: the others', or fp32

// Several layers that share A may be one product: their rows of B and their biases one below the other, and D in parts
// of `part_columns`, each a matrix of its own. Rows are `images` images, one below the other, where each has a shift of
// its own.
struct Problem {
  std::int64_t m = 0;  // rows of A and D
  std::int64_t n = 0;  // columns of D
  std::int64_t k = 0;  // columns of A and B, the length of every sum
  Activation act = Activation::none;
  double scale = 1;               // of the product, before bias
  bool bias = true;               // whether a bias row is added before the activation
  bool residual = false;          // whether a tensor of D's shape is added after the activation
  std::int64_t part_columns = 0;  // 0: D is one matrix; else divides n, of 8 each, with neither residual nor gate
  bool image_shift = false;       // whether a row per image is added before the activation; not with a gate
  std::int64_t images = 1;        // of image_shift; divides m
  bool blend = false;             // whether the sum with a residual is blended with a tensor of D's shape
  Layout layout = Layout::nt;     // others, and an fp32 D: with bias and residual alone
  Target to = Target::same;
  bool row_sums = false;  // of layout tn: whether the sums over k of A, times scale, are an output too

  bool gated() const { return act == Activation::geglu; }
  std::int64_t b_rows() const { return gated() ? 2 * n : n; }
  std::int64_t part() const { return part_columns == 0 ? n : part_columns; }
  std::int64_t rows_per_image() const { return m / images; }
  std::int64_t parts() const { return part_columns == 0 ? 1 : n / part_columns; }
  DType output_dtype(DType dtype) const { return to == Target::fp32 ? DType::fp32 : dtype; }
  bool forward() const { return layout == Layout::nt && to == Target::same; }  // no gradient's product
};

// The arguments of a launch, of the problem's dtype, dense, 16-byte aligned, and not overlapping D. On the device
// for GPU variants, in host memory for `host`.
struct Tensors {
  const void* a = nullptr;            // [m, k]; layout tn: [k, m]
  const void* b = nullptr;            // [n, k]; geglu: [2n, k]; layouts nn and tn: [k, n]
  const void* bias = nullptr;         // [n]; geglu: [2n]; null without bias
  const void* image_shift = nullptr;  // [images, n]; null without image_shift
  const void* residual = nullptr;     // [m, n]; null without residual
  const void* blend = nullptr;        // [m, n]; null without blend
  const float* share = nullptr;       // of blend, [1]; null without blend
  void* d = nullptr;                  // [m, n]; in parts: [n / part_columns, m, part_columns]
  float* row_sums = nullptr;          // [m]; null without row_sums
};

// The op. A C++ program calls a row of variants() directly: ask row.can_run(problem, dtype), allocate
// row.workspace_bytes(problem, dtype, device) where the row has that function, then row.launch(problem, dtype, tensors,
// scratch, context). launch returns invalid_argument for a pointer that is null or not 16-byte aligned where the row
// needs it, and cuda_error with the runtime's code when the launch fails; it never synchronises.
using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// The row of ptx_sm90a, for 1x1 convolutions and their gradients, which are products.
const Definition::Variant& ptx_variant();

}  // namespace noisefloor::gemm
