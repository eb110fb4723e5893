// The oracle: each formula in double, one element at a time.
#include "kernels/core/exact.h"
#include "kernels/core/tensor.h"
#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor a{dtype, t.a}, b{dtype, t.b}, c{dtype, t.c};
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    switch (p.op) {
      case Operation::silu_fma: {
        const std::int64_t at = p.broadcast ? i / (p.hw * p.channels) * p.channels + i % p.channels : i;
        values[e] = exact::silu(a[at] + b[i] * c[at]);
        break;
      }
      case Operation::add:
        values[e] = (a[i] + b[i]) * p.scale;
        break;
      case Operation::geglu: {
        const std::int64_t at = i / p.channels * 2 * p.channels + i % p.channels;
        values[e] = a[at] * exact::gelu(a[at + p.channels]);
        break;
      }
      case Operation::relu:
        values[e] = exact::relu(a[i]);
        break;
      case Operation::silu:
        values[e] = exact::silu(a[i]);
        break;
      case Operation::cast:
        values[e] = a[i];
        break;
      case Operation::nchw_to_nhwc: {
        const std::int64_t pixel = i / p.channels;  // of all images
        values[e] = a[(pixel / p.hw * p.channels + i % p.channels) * p.hw + pixel % p.hw];
        break;
      }
      case Operation::nhwc_to_nchw: {
        const std::int64_t plane = i / p.hw;  // of all images
        values[e] = a[(plane / p.channels * p.hw + i % p.hw) * p.channels + plane % p.channels];
        break;
      }
    }
  }
}

}  // namespace noisefloor::elementwise
