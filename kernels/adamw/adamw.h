// adamw: a step of AdamW over all parameters at once (Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled
// Weight Decay Regularization", 2019), with a moving average of the parameters and their working copy:
//
//   g = grad_scale g;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - rate (decay p + correct1 m / (sqrt(correct2 v) + eps))
//   ema = keep ema + (1 - keep) p;  copy = p, rounded
//
// Everything is read and written once: 38 bytes a parameter with ema and a copy of 16 bits. The four numbers of a step
// lie in memory, since a recorded step is replayed: rate, correct1 = 1 / (1 - beta1^t), correct2 = 1 / (1 - beta2^t),
// keep.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/core/philox.h"  // NOISEFLOOR_HD

namespace noisefloor::adamw {

struct Problem {
  std::int64_t elements = 1;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double decay = 0;
  bool ema = false;
  bool copy = false;
};

// T is the row's dtype, the working copy's alone. Null where the problem has no such tensor.
struct Tensors {
  float* p = nullptr;  // [elements], as all others but:
  float* m = nullptr;
  float* v = nullptr;
  float* ema = nullptr;
  const float* g = nullptr;
  const float* step = nullptr;        // [4]
  const float* grad_scale = nullptr;  // [1]
  void* copy = nullptr;               // T [elements]
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_ptx_sm90a;

// What is the same for every parameter, in fp32.
struct Constants {
  float beta1, rest1, beta2, rest2, eps, decay;
};
inline Constants constants_of(const Problem& p) {
  return {static_cast<float>(p.beta1),     static_cast<float>(1 - p.beta1), static_cast<float>(p.beta2),
          static_cast<float>(1 - p.beta2), static_cast<float>(p.eps),       static_cast<float>(p.decay)};
}
struct Step {
  float rate, correct1, correct2, keep, grad_scale;
};

// One parameter's; without an average `ema` is what nobody reads.
NOISEFLOOR_HD void update(const Constants& c, const Step& s, float gradient, float& p, float& m, float& v, float& ema) {
  const float g = s.grad_scale * gradient;
  m = c.beta1 * m + c.rest1 * g;
  v = c.beta2 * v + c.rest2 * (g * g);
#if defined(__CUDA_ARCH__)
  const float root = sqrtf(s.correct2 * v);
#else
  const float root = std::sqrt(s.correct2 * v);
#endif
  p -= s.rate * (c.decay * p + s.correct1 * m / (root + c.eps));
  ema = s.keep * ema + (1 - s.keep) * p;
}

}  // namespace noisefloor::adamw
