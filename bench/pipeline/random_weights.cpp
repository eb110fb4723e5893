#include <cmath>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/platform/fingerprint.h"

namespace noisefloor::pipeline {
namespace {

constexpr double kSpread = 0.1;  // of biases around 0, and of norms' gains around 1

}  // namespace

// The sum of what two tensors would be filled with, in fp32, as one weight.
void RandomWeights::fill_sum(Platform& platform, const Value& weight, void* data) const {
  std::vector<float> sum(static_cast<std::size_t>(weight.elements())), part(sum.size());
  const std::size_t bytes = sum.size() * sizeof(float);
  const Buffer buffer(platform, bytes);
  for (const std::string& name : {weight.source->name, weight.source->plus}) {
    Value one = weight;
    one.dtype = DType::fp32;
    one.source->name = name;
    one.source->plus.clear();
    fill(platform, one, buffer.data());
    platform.download(part.data(), buffer.data(), bytes);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  std::vector<char> rounded(weight.bytes());
  store_floats(weight.dtype, rounded.data(), 0, weight.elements(), sum.data());
  platform.upload(data, rounded.data(), rounded.size());
}

void RandomWeights::fill(Platform& platform, const Value& weight, void* data) const {
  const WeightSource& source = *weight.source;
  if (!source.plus.empty()) return fill_sum(platform, weight, data);
  double mean = 0, deviation = kSpread;
  if (source.layout == WeightSource::Layout::transposed && source.file.size() == 2) {
    deviation = 1;  // an embedding table: one of its rows is the result
  } else if (source.file.size() > 1) {
    const std::int64_t fan_in = weight.elements() / weight.shape.front();
    deviation = 1 / std::sqrt(static_cast<double>(fan_in));
  } else if (source.name.ends_with("weight")) {
    mean = 1;
  }
  if (source.share) deviation /= 2;  // a blend of equal parts
  if (source.sigmoid) mean = 0.5, deviation /= 4;
  // Each of its tensors has numbers of its own.
  const std::int64_t rows = source.rows == 0 ? source.all_rows() : source.rows, length = weight.elements() / rows;
  auto* to = static_cast<char*>(data);
  for (const WeightSource::Below& tensor : source.tensors()) {
    const std::int64_t elements = (source.below.empty() ? rows : tensor.rows) * length;
    platform.fill_normal(weight.dtype, to, elements, mean, deviation, Fingerprint().add(tensor.name).value());
    to += elements * static_cast<std::int64_t>(size_of(weight.dtype));
  }
}

}  // namespace noisefloor::pipeline
