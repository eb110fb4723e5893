// The pointwise operations between the large ones of a diffusion network, the cast, and the change of layout at its
// ends. Activations are channels-last, [n, hw, channels], unless it says otherwise.
//
//   silu_fma        y = silu(a + b * c)       a and c as b, or with broadcast [n, channels], one row an image
//   add             y = (a + b) * scale       the residual; scale is 1, or EDM's sqrt(1/2)
//   geglu           y = v * gelu(g)           v is channels [0, channels) and g [channels, 2 channels) of a row of x
//   relu, silu      y = max(x, 0), y = x / (1 + exp(-x))
//   cast            y = x in dtype `to`
//   nchw_to_nhwc    y[n, hw, channels] from x[n, channels, hw]
//   nhwc_to_nchw    y[n, channels, hw] from x[n, hw, channels]
//   *_backward      y = dy f'(x), the gradient of x, from that of the forward's output; relu's at 0 is 0
//   geglu_backward  y has 2 channels a row, as x: dy gelu(g), then dy v gelu'(g)
//   scale           y = scale * x
//
// gelu(v) = v Phi(v), with the error function. Sources: Shazeer, "GLU Variants Improve Transformer" (2020); silu_fma
// with broadcast is the adaptive scale of Karras et al., "Elucidating the Design Space of Diffusion-Based Generative
// Models" (2022), as their networks write it: silu(addcmul(shift, norm, scale + 1)).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"

namespace noisefloor::elementwise {

enum class Operation {
  silu_fma,
  add,
  geglu,
  relu,
  silu,
  cast,
  nchw_to_nhwc,
  nhwc_to_nchw,
  silu_backward,
  relu_backward,
  gelu_backward,
  geglu_backward,
  scale
};
enum class Target { bf16, fp16, fp32 };

struct Problem {
  Operation op = Operation::silu;
  std::int64_t n = 1;         // images
  std::int64_t hw = 1;        // height * width, or tokens
  std::int64_t channels = 1;  // of y; geglu_backward: of dy
  bool broadcast = false;     // silu_fma
  double scale = 1;           // add, scale
  Target to = Target::bf16;   // cast

  std::int64_t total() const { return n * hw * channels; }  // elements of y; geglu_backward: of dy
  bool transposes() const { return op == Operation::nchw_to_nhwc || op == Operation::nhwc_to_nchw; }
  // No arithmetic: the variants that are about arithmetic do not apply.
  bool moves_data() const { return op == Operation::cast || transposes(); }
  bool is_backward() const { return op >= Operation::silu_backward && op <= Operation::geglu_backward; }
  // Whether rows of x are two halves.
  bool gated() const { return op == Operation::geglu || op == Operation::geglu_backward; }
  DType output_dtype(DType dtype) const;
};

// Device pointers (host pointers for the host variant), 16-byte aligned; T is the row's dtype. Null where the operation
// has no such tensor.
struct Tensors {
  const void* a = nullptr;  // T: a of silu_fma, as c, and of add, as b; else tensor x (geglu*: 2 channels a row)
  const void* b = nullptr;  // T [n, hw, channels]: silu_fma, add; tensor dy of *_backward
  const void* c = nullptr;  // T [n, hw, channels], broadcast [n, channels]: silu_fma
  void* y = nullptr;        // T (cast: `to`) [n, hw, channels]; nhwc_to_nchw: [n, channels, hw]; *_backward: as x
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

}  // namespace noisefloor::elementwise
