#include "kernels/timestep_embedding/timestep_embedding.h"

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::timestep_embedding {
namespace {

constexpr const char* kKinds[] = {"sinusoidal", "fourier"};
constexpr const char* kOrders[] = {"cos_sin", "sin_cos"};

// Timesteps of a thousand-step schedule; EDM's c_noise, ln(sigma) / 4, under Fourier features of deviation 16.
constexpr Fill kTimesteps{Fill::Kind::normal, 500, 150};
constexpr Fill kNoiseLevels{Fill::Kind::normal, 0, 0.5};
constexpr Fill kFrequencies{Fill::Kind::normal, 0, 16};

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("cosines and sines of a timestep or noise level, then a perceptron");
  visit.integer("batch", "timesteps", p.batch, 1, 65535);
  visit.integer("channels", "channels of the embedding, even: half cosines, half sines", p.channels, 2, 16384);
  visit.enumeration("kind", "sinusoidal: frequencies follow max_period; fourier: the tensor freqs has them", p.kind,
                    kKinds, timestep_embedding::Kind::sinusoidal);
  visit.enumeration("order", "which half comes first", p.order, kOrders, Order::cos_sin);
  visit.flag("endpoint", "sinusoidal: the last frequency is exactly 1 / max_period", p.endpoint, false);
  visit.real("max_period", "sinusoidal: frequencies fall from 1 towards 1 / max_period, in radians a timestep",
             p.max_period, 1.0, 1e9, 10000.0);
  visit.integer("hidden", "width of the perceptron, w2 silu(w1 e + b1) + b2; 0: none", p.hidden, 0, 16384, 0);
  visit.flag("final_silu", "SiLU after the perceptron", p.final_silu, false);
}

void check(const Problem& p) {
  if (p.channels % 2 != 0) refuse("field channels is " + std::to_string(p.channels) + ", an even number is needed");
  if (p.fourier() && (p.endpoint || p.max_period != 10000))
    refuse("fields endpoint and max_period are for kind=sinusoidal, not fourier");
  if (p.endpoint && p.channels == 2) refuse("field endpoint takes channels from 4 on");
  if (p.final_silu && !p.perceptron()) refuse("field final_silu takes hidden from 1 on");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const auto weights = [](std::int64_t inputs) {  // keeps the size of what passes
    return normal_fill(0, 1 / std::sqrt(static_cast<double>(inputs)));
  };
  visit.in({"t", "timesteps, or noise levels as edm_precondition's c_noise"}, t.t, {"batch"},
           p.fourier() ? kNoiseLevels : kTimesteps);
  visit.when(p.fourier(), "kind=fourier")
      .in({"freqs", "frequencies in turns per unit of t"}, t.freqs, {"channels/2"}, kFrequencies);
  visit.when(p.perceptron(), "hidden>0").in("w1", t.w1, {"hidden", "channels"}, weights(p.channels));
  visit.when(p.perceptron(), "hidden>0").in("b1", t.b1, {"hidden"}, normal_fill(0, 0.25));
  visit.when(p.perceptron(), "hidden>0").in("w2", t.w2, {"hidden", "hidden"}, weights(p.hidden));
  visit.when(p.perceptron(), "hidden>0").in("b2", t.b2, {"hidden"}, normal_fill(0, 0.25));
  visit.when(!p.perceptron(), "hidden=0").out("y", t.y, {"batch", "channels"});
  visit.when(p.perceptron(), "hidden>0").out("y", t.y, {"batch", "hidden"});
}

// An element of the embedding: half a frequency and half an angle, one sine or cosine.
Cost cost(const Problem& p, DType, double bytes) {
  const auto batch = static_cast<double>(p.batch), channels = static_cast<double>(p.channels),
             hidden = static_cast<double>(p.hidden);
  const double activations = p.perceptron() ? 4 * batch * hidden * (p.final_silu ? 2 : 1) : 0;
  return {2 * batch * channels + 2 * batch * hidden * (channels + hidden) + activations, bytes,
          p.perceptron() ? Pipe::tensor : Pipe::fma};
}

// An angle rounded to fp32, from a rounded frequency, is off by 2 u32 of itself, whose size is six deviations of t at
// most; sine and cosine pass that on. The result is rounded once. A perceptron may round the embedding and the hidden
// layer to the row's dtype as well: independent errors of up to u, 0.42 u in the root mean square, whose sum has the
// size of the result times that; its largest of many is some five times as large.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(dtype), u32 = unit_roundoff(DType::fp32);
  const double largest_angle = p.fourier()
                                   ? 2 * std::numbers::pi * (6 * kNoiseLevels.stddev) * (6 * kFrequencies.stddev)
                                   : kTimesteps.mean + 6 * kTimesteps.stddev;
  const double angle = (2 * largest_angle + 16) * u32;
  if (!p.perceptron()) return {u + angle / 0.7, u + angle / 0.7};  // 0.7: root mean square of a sine
  const double sums = 4 * std::sqrt(static_cast<double>(p.channels + p.hidden)) * u32;
  const double arithmetic = 4 * angle + sums;
  return {4 * u + arithmetic, 1.5 * u + arithmetic};
}

// The oracle: the formulas in double; the hidden layer of an image once for its elements.
double embedding(const Problem& p, const Tensors& t, std::int64_t image, std::int64_t channel) {
  const std::int64_t k = channel % p.half();
  const double last = static_cast<double>(p.endpoint ? p.half() - 1 : p.half());
  const double frequency = p.fourier() ? 2 * std::numbers::pi * static_cast<double>(t.freqs[k])
                                       : std::pow(p.max_period, -static_cast<double>(k) / last);
  const bool first_half = channel < p.half();
  const double angle = static_cast<double>(t.t[image]) * frequency;
  return first_half == (p.order == Order::cos_sin) ? std::cos(angle) : std::sin(angle);
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor w1{dtype, t.w1}, b1{dtype, t.b1}, w2{dtype, t.w2}, b2{dtype, t.b2};
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<double> e(size(p.channels)), hidden(size(p.hidden));
  std::int64_t known_image = -1;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::int64_t image = elements[i] / p.width(), at = elements[i] % p.width();
    if (!p.perceptron()) {
      values[i] = embedding(p, t, image, at);
      continue;
    }
    if (image != known_image) {
      known_image = image;
      for (std::int64_t c = 0; c < p.channels; ++c) e[size(c)] = embedding(p, t, image, c);
      for (std::int64_t h = 0; h < p.hidden; ++h) {
        double sum = b1[h];
        for (std::int64_t c = 0; c < p.channels; ++c) sum += w1[h * p.channels + c] * e[size(c)];
        hidden[size(h)] = exact::silu(sum);
      }
    }
    double sum = b2[at];
    for (std::int64_t h = 0; h < p.hidden; ++h) sum += w2[at * p.hidden + h] * hidden[size(h)];
    values[i] = p.final_silu ? exact::silu(sum) : sum;
  }
}

}  // namespace

constinit const Definition definition{
    "timestep_embedding", fields, check, visit_tensors, cost, tolerance, reference, variants};

}  // namespace noisefloor::timestep_embedding
