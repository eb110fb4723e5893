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

// Cosine and sine of angle k at `t`. The angle is made and brought to [-pi, pi] in double, since an angle of a thousand
// in fp32 has lost ten bits; what is left is a job for fp32.
NOISEFLOOR_HD void cos_sin(const Frequencies& f, float t, std::int64_t k, float& cosine, float& sine) {
  double turns = f.freqs ? static_cast<double>(t) * static_cast<double>(f.freqs[k])
                         : static_cast<double>(t) * exp(f.decay * static_cast<double>(k)) / (2 * std::numbers::pi);
  turns -= rint(turns);
  const auto angle = static_cast<float>(2 * std::numbers::pi * turns);
  cosine = cosf(angle);
  sine = sinf(angle);
}

}  // namespace noisefloor::timestep_embedding
