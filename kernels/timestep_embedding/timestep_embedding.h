// The embedding of a timestep or noise level, and the two-layer perceptron that networks put behind it.
//
//   angle[i, k] = t[i] f_k,  k < half = channels / 2
//     sinusoidal   f_k = max_period^(-k / half), or with endpoint max_period^(-k / (half - 1))
//     fourier      f_k = 2 pi freqs[k], a tensor of random numbers that is part of the weights
//   e[i] = [cos(angle[i]), sin(angle[i])], order sin_cos the other way round
//   y = e, or with hidden > 0  y = w2 silu(w1 e + b1) + b2, and silu of that with final_silu
//
// ADM, Stable Diffusion: cos_sin; DDPM: sin_cos with endpoint; EDM's DDPM++: sin_cos with endpoint, final_silu; EDM's
// NCSN++: fourier, final_silu. Sources: Vaswani et al., "Attention Is All You Need" (2017); Ho et al. (2020); Tancik et
// al., "Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains" (2020).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"

namespace noisefloor::timestep_embedding {

enum class Kind { sinusoidal, fourier };
enum class Order { cos_sin, sin_cos };

struct Problem {
  std::int64_t batch = 1;
  std::int64_t channels = 2;  // of the embedding; even
  timestep_embedding::Kind kind = timestep_embedding::Kind::sinusoidal;
  Order order = Order::cos_sin;
  bool endpoint = false;  // sinusoidal
  double max_period = 10000;
  std::int64_t hidden = 0;  // width of both layers; 0: no perceptron
  bool final_silu = false;

  std::int64_t half() const { return channels / 2; }
  bool perceptron() const { return hidden > 0; }
  std::int64_t width() const { return perceptron() ? hidden : channels; }  // of y
  bool fourier() const { return kind == timestep_embedding::Kind::fourier; }
};

// Device pointers (host pointers for the host variant), 16-byte aligned; T is the row's dtype. Null where the problem
// has no such tensor.
struct Tensors {
  const float* t = nullptr;      // fp32 [batch]
  const float* freqs = nullptr;  // fp32 [channels / 2], fourier
  const void* w1 = nullptr;      // T [hidden, channels]
  const void* b1 = nullptr;      // T [hidden]
  const void* w2 = nullptr;      // T [hidden, hidden]
  const void* b2 = nullptr;      // T [hidden]
  void* y = nullptr;             // T [batch, width()]
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;
// The embedding and the hidden layer in fp32, [batch, channels] and [batch, hidden]; none without a perceptron.
Definition::Variant::WorkspaceBytes layers_workspace_bytes;

inline constexpr std::int64_t kMaxPtxSharedBytes = 192 * 1024;  // ptx_sm90a: 8 rows of weights and of inputs

}  // namespace noisefloor::timestep_embedding
