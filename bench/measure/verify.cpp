#include "bench/measure/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "bench/pipeline/network_op.h"
#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

constexpr std::int64_t kMinimumSamples = 512;
constexpr std::int64_t kMaximumElements = std::int64_t{1} << 22;  // 32 MiB of doubles
constexpr std::int64_t kMaximumSamples = std::int64_t{1} << 20;

// First, last, and the rest at random (fixed seed: the same elements for every variant), ascending and distinct.
std::vector<std::int64_t> sample_elements(std::int64_t total, std::int64_t wanted) {
  std::vector<std::int64_t> elements = {0, total - 1};
  std::mt19937_64 random(total);
  std::uniform_int_distribution<std::int64_t> any(0, total - 1);
  for (std::int64_t i = 0; i < wanted; ++i) elements.push_back(any(random));
  std::sort(elements.begin(), elements.end());
  elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  return elements;
}

}  // namespace

Verifier::Verifier(Fixture& fixture, double oracle_flops)
    : fixture_(&fixture),
      oracle_flops_(oracle_flops),
      tolerance_(fixture.op().tolerance(fixture.problem(), fixture.dtype())) {}

void Verifier::consult_oracle() {
  if (!oracles_.empty()) return;
  const Op& op = fixture_->op();
  const auto& specs = fixture_->specs();
  if (&op == &pipeline::network_op()) {
    consult_network();
    return;
  }
  const double flops = op.cost(fixture_->problem(), fixture_->dtype()).flops;
  const auto inputs = fixture_->host_tensors();
  for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
    if (specs[tensor].role == Role::in) continue;
    const std::int64_t total = specs[tensor].elements();
    Oracle oracle{tensor, false, {}, {}, 0};
    oracle.complete = flops <= oracle_flops_ && total <= kMaximumElements;
    if (oracle.complete) {
      oracle.elements.resize(static_cast<std::size_t>(total));
      std::iota(oracle.elements.begin(), oracle.elements.end(), std::int64_t{0});
    } else {
      const auto affordable = static_cast<std::int64_t>(oracle_flops_ / (flops / static_cast<double>(total)));
      oracle.elements = sample_elements(total, std::clamp(affordable, kMinimumSamples, kMaximumSamples));
    }
    oracle.values.resize(oracle.elements.size());
    const auto count = static_cast<std::int64_t>(oracle.elements.size());
    const std::int64_t cores = std::max(1, fixture_->platform().description().info.sm_count);
    parallel_for(count, std::max<std::int64_t>(1, count / (4 * std::min<std::int64_t>(cores, 64))),
                 [&](std::int64_t begin, std::int64_t end) {
                   const auto at = static_cast<std::size_t>(begin), size = static_cast<std::size_t>(end - begin);
                   op.reference(fixture_->problem(), fixture_->dtype(), inputs, tensor,
                                std::span(oracle.elements).subspan(at, size),
                                std::span(oracle.values).subspan(at, size));
                 });
    double squares = 0;
    for (const double value : oracle.values) squares += value * value;
    oracle.rms = std::sqrt(squares / static_cast<double>(count));
    oracles_.push_back(std::move(oracle));
  }
}

// A network has no host oracle: its nodes have theirs. What it is held to is the same network in fp32.
void Verifier::consult_network() {
  const std::size_t output = fixture_->specs().size() - 1;
  Oracle oracle{output, true, {}, pipeline::reference_output(*fixture_), 0};
  oracle.elements.resize(oracle.values.size());
  std::iota(oracle.elements.begin(), oracle.elements.end(), std::int64_t{0});
  double squares = 0;
  for (const double value : oracle.values) squares += value * value;
  oracle.rms = std::sqrt(squares / static_cast<double>(oracle.values.size()));
  // Random weights that make nothing, or overflow, would let anything pass.
  if (!(oracle.rms > 0) || !std::isfinite(oracle.rms))
    throw std::runtime_error(fmt::format("the network's fp32 output has the root mean square {}", oracle.rms));
  oracles_.push_back(std::move(oracle));
}

std::optional<std::string> Verifier::compare_with_oracle(Verdict& verdict) {
  for (const Oracle& oracle : oracles_) {
    const TensorSpec& spec = fixture_->specs()[oracle.tensor];
    const auto values = fixture_->platform().gather(spec.dtype, fixture_->pointers()[oracle.tensor], oracle.elements);
    double squared_error = 0, squared = 0, worst_error = 0;
    std::size_t worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(values[i] - oracle.values[i]);
      // An output of nothing but zeros must be zeros: 0 / 0 counts as no error.
      const double relative = error == 0 ? 0 : error / (std::abs(oracle.values[i]) + oracle.rms);
      if (!std::isfinite(values[i]))
        return fmt::format("{}[{}] is {}, expected {:.6g}", spec.name, oracle.elements[i], values[i], oracle.values[i]);
      if (!(relative <= worst_error)) worst_error = relative, worst = i;
      squared_error += error * error;
      squared += oracle.values[i] * oracle.values[i];
    }
    verdict.max_rel_error = std::max(verdict.max_rel_error, worst_error);
    const double l2 = squared > 0 ? std::sqrt(squared_error / squared) : std::sqrt(squared_error);
    verdict.l2_error = std::max(verdict.l2_error, l2);
    if (!(worst_error <= tolerance_.max_error))
      return fmt::format("{}[{}] is {:.6g}, expected {:.6g}: error {:.3g}, allowed {:.3g}", spec.name,
                         oracle.elements[worst], values[worst], oracle.values[worst], worst_error,
                         tolerance_.max_error);
    if (!(l2 <= tolerance_.l2_error))
      return fmt::format("{}: relative L2 error {:.3g}, allowed {:.3g}", spec.name, l2, tolerance_.l2_error);
  }
  return std::nullopt;
}

// False where there is no naive variant that runs this problem and agrees with the oracle: its own row says why.
bool Verifier::make_naive_outputs() {
  if (naive_tried_) return !naive_outputs_.empty();
  naive_tried_ = true;
  Platform& platform = fixture_->platform();
  for (const Candidate& candidate : candidates_of(fixture_->op())) {
    if (candidate.kind != Kind::naive || !candidate.built() ||
        !candidate.can_run(fixture_->problem(), fixture_->dtype()))
      continue;
    try {
      fixture_->reset_outputs();
      BoundCase bound(*fixture_, candidate);
      throw_if_failed(bound.launch()());
      platform.synchronize();
      Verdict verdict;
      if (compare_with_oracle(verdict)) continue;
      for (const Oracle& oracle : oracles_) {
        const std::size_t bytes = fixture_->specs()[oracle.tensor].bytes();
        Buffer& copy = naive_outputs_[oracle.tensor] = Buffer(platform, bytes);
        platform.copy(copy.data(), fixture_->pointers()[oracle.tensor], bytes);
      }
      platform.synchronize();
      return true;
    } catch (const DeviceError& error) {
      naive_outputs_.clear();
      if (error.lost()) throw;
    } catch (const OutOfMemory&) {
      naive_outputs_.clear();
    }
  }
  return false;
}

std::optional<std::string> Verifier::compare_with_naive() {
  for (const Oracle& oracle : oracles_) {
    if (oracle.complete) continue;
    const TensorSpec& spec = fixture_->specs()[oracle.tensor];
    const Difference difference =
        fixture_->platform().compare(spec.dtype, fixture_->pointers()[oracle.tensor],
                                     naive_outputs_.at(oracle.tensor).data(), spec.elements(), oracle.rms);
    // Two results, each within tolerance of the truth, are within twice that of each other.
    if (!difference.all_finite) return fmt::format("{}[{}] is not finite", spec.name, difference.worst);
    if (!(difference.max_error <= 2 * tolerance_.max_error))
      return fmt::format("{}[{}] differs from the naive variant by {:.3g}, allowed {:.3g}", spec.name, difference.worst,
                         difference.max_error, 2 * tolerance_.max_error);
    if (!(difference.l2_error <= 2 * tolerance_.l2_error))
      return fmt::format("{} differs from the naive variant by a relative L2 error of {:.3g}, allowed {:.3g}",
                         spec.name, difference.l2_error, 2 * tolerance_.l2_error);
  }
  return std::nullopt;
}

// Every element, also of outputs that the oracle only samples: unwritten ones are still NaN.
std::optional<std::string> Verifier::find_not_finite() {
  for (const Oracle& oracle : oracles_) {
    const TensorSpec& spec = fixture_->specs()[oracle.tensor];
    const void* data = fixture_->pointers()[oracle.tensor];
    const Difference self = fixture_->platform().compare(spec.dtype, data, data, spec.elements(), 1);
    if (!self.all_finite) return fmt::format("{}[{}] is not finite", spec.name, self.worst);
  }
  return std::nullopt;
}

Verdict Verifier::judge(BoundCase& bound) {
  Verdict verdict;
  verdict.tolerance = tolerance_.max_error;
  verdict.l2_tolerance = tolerance_.l2_error;
  std::optional<std::string> wrong = fixture_->find_damage();
  if (!wrong && bound.workspace_overrun()) wrong = "wrote past its workspace";
  if (auto error = compare_with_oracle(verdict); !wrong) wrong = std::move(error);
  if (!wrong) wrong = find_not_finite();
  if (!wrong && !naive_outputs_.empty()) wrong = compare_with_naive();
  if (naive_outputs_.empty())
    for (const Oracle& oracle : oracles_)
      if (!oracle.complete)
        verdict.note += fmt::format("{}verified on {} of {} elements of {}", verdict.note.empty() ? "" : "; ",
                                    oracle.elements.size(), fixture_->specs()[oracle.tensor].elements(),
                                    fixture_->specs()[oracle.tensor].name);
  verdict.correct = !wrong;
  verdict.reason = wrong.value_or("");
  return verdict;
}

Verdict Verifier::verify(BoundCase& bound) {
  consult_oracle();
  const bool sampled =
      std::any_of(oracles_.begin(), oracles_.end(), [](const Oracle& oracle) { return !oracle.complete; });
  if (sampled && !fixture_->platform().description().is_host) make_naive_outputs();
  fixture_->reset_outputs();
  throw_if_failed(bound.launch()());
  fixture_->platform().synchronize();
  return judge(bound);
}

}  // namespace noisefloor
