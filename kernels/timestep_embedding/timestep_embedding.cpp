#include "kernels/timestep_embedding/timestep_embedding.h"

#include <cmath>
#include <numbers>

namespace noisefloor::timestep_embedding {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr const char* kKinds[] = {"sinusoidal", "fourier"};
constexpr const char* kOrders[] = {"cos_sin", "sin_cos"};

// Timesteps of a thousand-step schedule; EDM's c_noise, ln(sigma) / 4, under Fourier features of deviation 16.
constexpr Fill kTimesteps{Fill::Kind::normal, 500, 150};
constexpr Fill kNoiseLevels{Fill::Kind::normal, 0, 0.5};
constexpr Fill kFrequencies{Fill::Kind::normal, 0, 16};

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  using Which = timestep_embedding::Kind;
  visit.integer("batch", p.batch, 1, 65535);
  visit.integer("channels", p.channels, 2, 16384);
  visit.enumeration("kind", p.kind, kKinds, std::optional<Which>(Which::sinusoidal));
  visit.enumeration("order", p.order, kOrders, std::optional<Order>(Order::cos_sin));
  visit.flag("endpoint", p.endpoint, false);
  visit.real("max_period", p.max_period, 1.0, 1e9, 10000.0);
  visit.integer("hidden", p.hidden, 0, 16384, 0);
  visit.flag("final_silu", p.final_silu, false);
}

void Definition::check(const Problem& p) {
  const auto refuse = [](const std::string& message) { throw InvalidInput("problem: " + message); };
  if (p.channels % 2 != 0) refuse("field channels is " + std::to_string(p.channels) + ", an even number is needed");
  if (p.fourier() && (p.endpoint || p.max_period != 10000))
    refuse("fields endpoint and max_period are for kind=sinusoidal, not fourier");
  if (p.endpoint && p.channels == 2) refuse("field endpoint takes channels from 4 on");
  if (p.final_silu && !p.perceptron()) refuse("field final_silu takes hidden from 1 on");
}

std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  std::vector<TensorSpec> specs{{"t", {p.batch}, DType::fp32, Role::in, p.fourier() ? kNoiseLevels : kTimesteps}};
  if (p.fourier()) specs.push_back({"freqs", {p.half()}, DType::fp32, Role::in, kFrequencies});
  if (p.perceptron()) {
    const Fill bias{Fill::Kind::normal, 0, 0.25};
    const auto weights = [](std::int64_t inputs) {  // keeps the size of what passes
      return Fill{Fill::Kind::normal, 0, 1 / std::sqrt(static_cast<double>(inputs))};
    };
    specs.push_back({"w1", {p.hidden, p.channels}, dtype, Role::in, weights(p.channels)});
    specs.push_back({"b1", {p.hidden}, dtype, Role::in, bias});
    specs.push_back({"w2", {p.hidden, p.hidden}, dtype, Role::in, weights(p.hidden)});
    specs.push_back({"b2", {p.hidden}, dtype, Role::in, bias});
  }
  specs.push_back({"y", {p.batch, p.width()}, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.t = static_cast<const float*>(pointers.next());
  t.freqs = static_cast<const float*>(pointers.next_if(p.fourier()));
  t.w1 = pointers.next_if(p.perceptron());
  t.b1 = pointers.next_if(p.perceptron());
  t.w2 = pointers.next_if(p.perceptron());
  t.b2 = pointers.next_if(p.perceptron());
  t.y = pointers.next();
  return t;
}

// An element of the embedding: half a frequency and half an angle, one sine or cosine.
Cost Definition::cost(const Problem& p, DType dtype) {
  double bytes = 0;
  for (const TensorSpec& spec : tensors(p, dtype)) bytes += static_cast<double>(spec.bytes());
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
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
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

}  // namespace noisefloor::timestep_embedding
