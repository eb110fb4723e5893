// What the GPU variants share: weighted squares, gradients beside them, and the mean.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/ordered_sums.cuh"
#include "kernels/mse_loss/mse_loss.h"

namespace noisefloor::mse_loss {

// What dy's factor is made of, but an image's weight.
inline float slope_of(const Problem& p) {
  return static_cast<float>(p.scale * 2 / static_cast<double>(p.total()));
}

// One weight, and a multiplication in place of a division, for the elements of a vector.
template <class T>
struct Errors : FlatInputs<2> {
  static constexpr int kUnroll = 4, kTerms = kVectorLanes<T>;
  const float* sigma;
  void* dy;
  Divider per_image;  // vectors
  float slope, sigma_data;

  Errors(const Problem& p, const Tensors& t)
      : FlatInputs<2>{{t.y, t.target}, vectors_of<T>(p.total())},
        sigma(t.sigma),
        dy(t.dy),
        per_image(static_cast<int>(vectors_of<T>(p.elements))),
        slope(slope_of(p)),
        sigma_data(static_cast<float>(p.sigma_data)) {}
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[2], float (&terms)[kTerms]) const {
    const float weight = sigma ? weight_of(__ldg(sigma + vector / per_image), sigma_data) : 1.0f;
    float y[kTerms], target[kTerms];
    unpack_vector<T>(bits[0], y);
    unpack_vector<T>(bits[1], target);
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
      const float difference = y[i] - target[i];
      terms[i] = weight * difference * difference;
      y[i] = slope * weight * difference;
    }
    store_stream<T>(dy, vector, y);
  }
};

struct Finish {
  double total;
  float* loss;

  Finish(const Problem& p, const Tensors& t) : total(static_cast<double>(p.total())), loss(t.loss) {}
  __device__ __forceinline__ void operator()(float sum) const { *loss = static_cast<float>(sum / total); }
};

}  // namespace noisefloor::mse_loss
