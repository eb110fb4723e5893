// timestep_embedding on the host: the embedding in fp32 into the workspace, then each layer with the rows of its
// weights on all cores. A row of weights is widened once, in chunks, and meets every image while it is in cache.
#include <algorithm>

#include "kernels/core/host_chunks.h"
#include "kernels/core/vector_math.h"
#include "kernels/timestep_embedding/element.h"
#include "kernels/timestep_embedding/timestep_embedding.h"

namespace noisefloor::timestep_embedding {
namespace {

// out[i, j] = act(sum_k w[j, k] in[i, k] + b[j]); finish(i, j, sum) stores.
template <class Finish>
void layer(DType dtype, const void* w, const void* b, std::int64_t batch, std::int64_t inputs, std::int64_t outputs,
           const float* in, const Finish& finish) {
  parallel_for(outputs, std::max<std::int64_t>(1, 65536 / (batch * inputs)), [&](std::int64_t begin, std::int64_t end) {
    float row[kHostChunk];
    constexpr std::int64_t kImages = 64;
    float sums[kImages];
    for (std::int64_t j = begin; j < end; ++j)
      for (std::int64_t first = 0; first < batch; first += kImages) {
        const std::int64_t images = std::min(kImages, batch - first);
        std::fill_n(sums, images, static_cast<float>(load_element(dtype, b, j)));
        for (std::int64_t k = 0; k < inputs; k += kHostChunk) {
          const std::int64_t count = std::min(kHostChunk, inputs - k);
          load_floats(dtype, w, j * inputs + k, count, row);
          for (std::int64_t i = 0; i < images; ++i) {
            const float* x = in + (first + i) * inputs + k;
            float sum = 0;
            for (std::int64_t c = 0; c < count; ++c) sum += row[c] * x[c];
            sums[i] += sum;
          }
        }
        for (std::int64_t i = 0; i < images; ++i) finish(first + i, j, sums[i]);
      }
  });
}

}  // namespace

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext&) {
  auto* embedding = static_cast<float*>(scratch.workspace);
  const Frequencies f = frequencies(p, t);
  const std::int64_t cos_at = p.order == Order::cos_sin ? 0 : p.half(), sin_at = p.half() - cos_at;
  parallel_for(p.batch, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t image = begin; image < end; ++image)
      for (std::int64_t k = 0; k < p.half(); ++k) {
        float pair[2];
        cos_sin(turns_of(f, k), t.t[image], pair[0], pair[1]);
        const std::int64_t places[2] = {image * p.channels + cos_at + k, image * p.channels + sin_at + k};
        for (int i = 0; i < 2; ++i) {
          if (p.perceptron())
            embedding[places[i]] = pair[i];
          else
            store_element(dtype, t.y, places[i], static_cast<double>(pair[i]));
        }
      }
  });
  if (!p.perceptron()) return success();
  float* hidden = embedding + p.batch * p.channels;
  layer(dtype, t.w1, t.b1, p.batch, p.channels, p.hidden, embedding,
        [&](std::int64_t i, std::int64_t j, float sum) { hidden[i * p.hidden + j] = vector_silu(sum); });
  layer(dtype, t.w2, t.b2, p.batch, p.hidden, p.hidden, hidden, [&](std::int64_t i, std::int64_t j, float sum) {
    store_element(dtype, t.y, i * p.hidden + j, static_cast<double>(p.final_silu ? vector_silu(sum) : sum));
  });
  return success();
}

}  // namespace noisefloor::timestep_embedding
