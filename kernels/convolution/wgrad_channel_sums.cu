// What stands behind wgrad: parts of the pixels are added, and the gradients of the biases made: dy summed over each
// image, and these sums over all images, in fixed order.
//
// A block sums 32 channels of an image: 8 threads a channel each take every eighth pixel, and their sums are added in
// their order; dbias likewise, over the images.
//
// Bound: reading dy once. Requires: nothing. Numerics: fp32 sums of 1/8 of an image, then of 8; of images likewise.
// Source: original.
#include "kernels/convolution/gradient.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/product/add_parts.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kChannels = 32;  // of a block: neighbours in memory
constexpr int kLanes = 8;      // threads of a channel
constexpr int kThreads = kChannels * kLanes;

// `dshift` and `sums`: [images, cout], or null.
template <class From, class T>
__global__ void __launch_bounds__(kThreads)
    convolution_channel_sums(const From* __restrict__ dy, int pixels, int channels, float scale, T* __restrict__ dshift,
                             float* __restrict__ sums) {
  __shared__ float parts[kLanes][kChannels];
  const int groups = (channels + kChannels - 1) / kChannels;
  const std::int64_t image = blockIdx.x / groups;
  const int in_group = static_cast<int>(threadIdx.x) % kChannels, lane = static_cast<int>(threadIdx.x) / kChannels;
  const int channel = static_cast<int>(blockIdx.x % groups) * kChannels + in_group;
  float sum = 0;
  if (channel < channels) {
    const From* from = dy + (image * pixels + lane) * channels + channel;
#pragma unroll 16
    for (int pixel = lane; pixel < pixels; pixel += kLanes, from += std::int64_t{kLanes} * channels)
      sum += to_float(*from);
  }
  parts[lane][in_group] = sum;
  __syncthreads();
  if (lane > 0 || channel >= channels) return;
  for (int other = 1; other < kLanes; ++other) sum += parts[other][in_group];
  if (sums != nullptr) sums[image * channels + channel] = sum;
  if (dshift != nullptr) dshift[image * channels + channel] = from_float<T>(scale * sum);
}

}  // namespace

Status launch_channel_sums(const Convolution& c, DType dtype, const Wgrad& t, float scale, void* sums,
                           const LaunchContext& context) {
  if (t.dbias == nullptr && t.dshift == nullptr) return success();
  auto* const image_sums = static_cast<float*>(t.dbias != nullptr ? sums : nullptr);
  const auto groups = static_cast<unsigned>((c.cout + kChannels - 1) / kChannels);
  const unsigned blocks = static_cast<unsigned>(c.images) * groups;
  const Status status = with_type(dtype, [&]<class T>(T) {
    return launch_kernel("convolution_channel_sums", convolution_channel_sums<T, T>,
                         {.grid = blocks, .block = kThreads}, context.stream, static_cast<const T*>(t.dy),
                         static_cast<int>(c.phase_pixels()), c.cout, scale, static_cast<T*>(t.dshift), image_sums);
  });
  if (!status.ok() || t.dbias == nullptr) return status;
  // The images are the pixels of one.
  return launch_kernel("convolution_channel_sums", convolution_channel_sums<float, float>,
                       {.grid = groups, .block = kThreads}, context.stream, static_cast<const float*>(image_sums),
                       c.images, c.cout, scale, t.dbias, static_cast<float*>(nullptr));
}

Status finish_wgrad(const Convolution& c, DType dtype, const Wgrad& t, float scale, const WgradParts& parts,
                    void* workspace, const LaunchContext& context) {
  if (parts.parts > 1) {
    const Status status = product::launch_add_parts(parts.sums, parts.parts, c.cout * c.k(), 0, t.dw, nullptr, context);
    if (!status.ok()) return status;
  }
  return launch_channel_sums(c, dtype, t, scale, workspace, context);
}

}  // namespace noisefloor::convolution
