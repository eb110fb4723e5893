// What goes into a network: latents and labels as it takes them, and numbers for timing and verification.

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <stdexcept>

#include "kernels/core/fields.h"
#include "networks/layers.h"

namespace noisefloor::networks {
namespace {

using Kind = NetworkTensor::Kind;

// Noise levels of the images, from one to the other in equal ratios: what denoisers see of the training data's own
// scale.
constexpr double kLowestSigma = 0.5, kHighestSigma = 2;
constexpr std::int64_t kStride = 7;  // between the labels of neighbours

std::vector<std::int64_t> image_shape(const Network& network, std::int64_t n, const Image& image) {
  std::vector<std::int64_t> shape{n, image.height, image.width, image.channels};
  if (network.info->most_frames > 1) shape.insert(shape.begin() + 1, network.image.frames);
  return shape;
}

}  // namespace

ValueId take_image(Network& network, const char* name, std::int64_t n) {
  const auto& [height, width, channels, frames] = network.image;
  return network.take(name, Kind::image, image_shape(network, n, {0, height, width, channels}), DType::fp32);
}

void give_image(Network& network, Layers& layers, const Image& image) {
  network.below = layers.below();
  network.give("output", layers.cast("output", image.id, DType::fp32), image_shape(network, network.calls, image));
}

ValueId twice(Graph& graph, ValueId x) {
  const std::int64_t elements = graph[x].elements();  // of a single pixel, concatenated with itself
  const std::string problem = fmt::format("op=concat,n=1,h=1,w=1,channels={},skip_channels={}", elements, elements);
  return graph.add("twice", "resample", problem, graph[x].dtype, {{"x", x}, {"skip", x}}).at(0);
}

std::vector<ValueId> precondition(Graph& graph, const std::string& name, const char* side, double sigma_data,
                                  const Bindings& inputs) {
  const std::int64_t n = graph[inputs.at("sigma")].elements(), elements = graph[inputs.at("x")].elements() / n;
  const std::string problem = fmt::format("side={},batch={},elements={},sigma_data={}", side, n, elements, sigma_data);
  return graph.add(name, "edm_precondition", problem, DType::fp32, inputs);
}

void build_preconditioned(const BuildOptions& options, Network& network, double sigma_data,
                          const std::function<Image(Layers& layers, ValueId c_noise, const Image& x)>& inner) {
  const auto& [height, width, channels, frames] = network.image;
  const std::int64_t n = network.calls, embedded = network.embedded();
  Graph& graph = network.graph;
  ValueId x = take_image(network, "x", network.batch);
  const ValueId sigma = network.take("sigma", Kind::sigma, {n}, DType::fp32);
  if (network.classes > 0)
    network.take("labels", Kind::labels, {embedded, network.classes}, options.dtype, network.classes);
  if (options.guided) x = twice(graph, x);
  auto scaled = precondition(graph, "precondition.input", "input", sigma_data, {{"x", x}, {"sigma", sigma}});
  if (network.hoisted_levels > 0) {
    const ValueId sigmas = network.take("sigmas", Kind::sigma, {embedded}, DType::fp32, 0, true);
    const ValueId no_x = graph.constant("no x", {embedded, 1}, DType::fp32, 1);
    scaled.at(1) = precondition(graph, "precondition.levels", "input", 0.5, {{"x", no_x}, {"sigma", sigmas}}).at(1);
  }
  Layers layers(graph, n * frames, options.dtype);
  Image f = inner(layers, scaled.at(1), {scaled.at(0), height, width, channels});
  f.id = layers.cast("output", f.id, DType::fp32);
  network.below = layers.below();
  network.give(
      "output",
      precondition(graph, "precondition.output", "output", sigma_data, {{"x", x}, {"f", f.id}, {"sigma", sigma}}).at(0),
      image_shape(network, n, f));
}

ValueId input_of_noise_predictor(const BuildOptions& options, Network& network, ValueId x) {
  if (options.guided) x = twice(network.graph, x);
  if (!options.sampling) return x;
  const ValueId sigma = network.take("sigma", Kind::sigma, {network.calls}, DType::fp32);
  return precondition(network.graph, "scale", "input", 1, {{"x", x}, {"sigma", sigma}}).at(0);
}

bool drawn(Kind kind) {
  return kind == Kind::image || kind == Kind::text || kind == Kind::conditioning;
}

void fill_for_timing(const NetworkTensor& input, DType dtype, void* data) {
  if (drawn(input.kind)) throw std::logic_error(fmt::format("{} is drawn, not filled", input.name));
  const std::int64_t rows = input.shape.front(), length = input.kind == Kind::labels ? input.range : 1;
  for (std::int64_t i = 0; i < rows * length; ++i) {
    const std::int64_t row = i / length;
    const double part = (static_cast<double>(row) + 0.5) / static_cast<double>(rows);
    double number = kLowestSigma * std::pow(kHighestSigma / kLowestSigma, part);
    if (input.kind == Kind::timesteps) number = std::floor(static_cast<double>(input.range) * part);
    if (input.kind == Kind::labels) number = i % length == row * kStride % input.range ? 1 : 0;
    store_element(dtype, data, i, number);
  }
}

std::vector<char> one_hot(const Network& network, std::span<const int> labels) {
  const Value& value = network.graph[network.labels()];
  const std::int64_t unconditional = network.calls - network.batch;
  std::vector<char> data(value.bytes());
  for (std::int64_t image = 0; image < network.batch; ++image) {
    const int label = labels[static_cast<std::size_t>(image)];
    if (label < 0 || label >= network.classes)
      throw InvalidInput(fmt::format("label {}: {} has classes 0 to {}", label, network.name(), network.classes - 1));
    for (std::int64_t row = unconditional + image; row < network.embedded(); row += network.calls)
      store_element(value.dtype, data.data(), row * network.classes + label, 1);
  }
  return data;
}

}  // namespace noisefloor::networks
