// One pair of the embedding, shared by every variant.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/core/philox.h"  // NOISEFLOOR_HD
#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {

// How frequency k comes about: exp(decay * k), or 2 pi freqs[k].
struct Frequencies {
  const float* freqs = nullptr;
  double decay = 0;
};

inline Frequencies frequencies(const Problem& p, const Tensors& t) {
  const auto last = static_cast<double>(p.endpoint ? p.half() - 1 : p.half());
  return {t.freqs, -std::log(p.max_period) / last};
}

// Angle k in turns per unit of t. Without freqs it reads no memory.
NOISEFLOOR_HD double turns_of(const Frequencies& f, std::int64_t k) {
  return f.freqs ? static_cast<double>(f.freqs[k]) : exp(f.decay * static_cast<double>(k)) / (2 * std::numbers::pi);
}

// turns_per_t: turns per unit of t; reduced in double, since fp32 has lost ten bits of an angle of a thousand.
NOISEFLOOR_HD void cos_sin(double turns_per_t, float t, float& cosine, float& sine) {
  double turns = static_cast<double>(t) * turns_per_t;
  turns -= rint(turns);
#ifdef __CUDA_ARCH__
  sincospif(static_cast<float>(2 * turns), &sine, &cosine);  // sinf and cosf carry a slow path for large angles
#else
  const auto angle = static_cast<float>(2 * std::numbers::pi * turns);
  cosine = cosf(angle);
  sine = sinf(angle);
#endif
}

}  // namespace noisefloor::timestep_embedding
