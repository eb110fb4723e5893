// What tiled and ptx_sm90a share: a block's image and its tile of it, and what is written.
#pragma once

#include <algorithm>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/image_noise.h"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/training_batch/training_batch.h"

namespace noisefloor::training_batch {

inline constexpr std::uint32_t kMostThreads = 256, kVectors = 4;  // of a block, of a thread

struct Shared {
  Draw draw;
  Level level;
};

template <class T>
__device__ void write_label(const Recipe& r, const Tensors& t, const Shared& s, std::uint32_t image) {
  if (threadIdx.x == 0) t.level[image] = s.level.level;
  if (r.classes == 0) return;
  const float label = t.labels[s.draw.image];
  T* const row = static_cast<T*>(t.one_hot) + static_cast<std::int64_t>(image) * r.classes;
  for (int c = static_cast<int>(threadIdx.x); c < r.classes; c += static_cast<int>(blockDim.x))
    row[c] = from_float<T>(!s.draw.unlabelled && label == static_cast<float>(c) ? 1.0f : 0.0f);
}

// Four elements, from `at` on.
__device__ __forceinline__ void write_vector(const Tensors& t, const Level& level, std::int64_t at, float (&x0)[4],
                                             const Normal4& z) {
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = level.alpha * x0[i] + level.sigma * z.v[i];
  store_vector<float>(t.x0 + at, x0);
  store_vector<float>(t.x + at, x);
  if (t.noise) store_vector<float>(t.noise + at, z.v);
}

// Blocks of an image and their threads.
struct Tiles {
  std::uint32_t vectors, threads, of_image;

  explicit Tiles(const Problem& p)
      : vectors(static_cast<std::uint32_t>(p.elements() / 4)),
        threads(std::min(kMostThreads, (vectors + 31) / 32 * 32)),
        of_image((vectors + threads * kVectors - 1) / (threads * kVectors)) {}
};

}  // namespace noisefloor::training_batch
