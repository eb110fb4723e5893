#include "bench/measure/contender.h"

#include <algorithm>

#include "bench/platform/processors.h"

namespace noisefloor {

BoundContender::BoundContender(std::shared_ptr<BoundCase> bound, Verifier& verifier, Options options)
    : Contender(&verifier.fixture().platform()),
      bound_(std::move(bound)),
      verifier_(&verifier),
      options_(std::move(options)),
      resident_(bound_->resident()),
      cold_(through_windows(bound_->launch())),
      pipeline_(through_windows(bound_->launch(/*overlapping=*/true))),
      ordinary_(through_windows(bound_->launch())) {
  // The launches of a whole network would fill the driver's queue, which then waits for the device, before the gate
  // opens.
  if (!bound_->many_kernels()) return;
  recording_ = platform_->record(pipeline_);
  cold_ = [this] {
    recording_->replay();
    return success();
  };
}

// A network's graph has its pointers.
Launch BoundContender::through_windows(Launch launch) {
  if (bound_->many_kernels()) return launch;
  return [this, launch = std::move(launch)] {
    const std::size_t other = 1 + windows_used_ % (Fixture::kWindows - 1);
    bound_->fixture().use_window(platform_->at_last_launch() ? 0 : other);
    ++windows_used_;
    return launch();
  };
}

std::vector<double> BoundContender::timed(const std::function<std::vector<double>()>& time) {
  if (options_.before_batch) options_.before_batch();
  struct Back {  // also from a launch that throws: the fixture is others', too
    Fixture& fixture;
    ~Back() { fixture.use_window(0); }
  } const back{bound_->fixture()};
  if (!bound_->many_kernels()) back.fixture.begin_batch();
  return time();
}

std::vector<double> BoundContender::cold(int samples) {
  return timed([&] { return platform_->time_cold(cold_, samples, resident_); });
}

// Each batch has a graph of its own, beside those of the batches before it.
std::vector<double> BoundContender::warm(int samples, int repeats, Edges edges) {
  if (edges != edges_of_graphs_) graphs_.clear();
  edges_of_graphs_ = edges;
  const Launch& launch = edges == Edges::pipeline ? pipeline_ : ordinary_;
  return timed([&] { return platform_->time_warm(launch, samples, repeats, options_.quick ? nullptr : &graphs_); });
}

// The launch ahead brings the activations back, through a copy that the others read last, and leaves a wrong result.
std::vector<double> BoundContender::weights_cold(int samples, int repeats) {
  if (!copies_) {
    graphs_.clear();
    copies_.emplace(bound_->copy_weights(options_.weights, repeats));
  }
  const std::size_t count = copies_->count();
  const Launch launch = through_windows(
      [this, count, next = std::size_t{0}]() mutable { return bound_->launch_from(*copies_, next++ % count); });
  const Launch ahead = [this, count] {
    bound_->fixture().use_window(1);
    return bound_->launch_from(*copies_, count - 1);
  };
  return timed([&] { return platform_->time_warm(launch, samples, repeats, &graphs_, ahead); });
}

std::size_t BoundContender::slots() const {
  return bound_->many_kernels() || bound_->of_plugin() ? 1 : bound_->fixture().slots();
}

void BoundContender::move_to(std::size_t slot) {
  if (slots() == 1) return;
  bound_->fixture().move_to(slot);
  resident_ = bound_->resident();
}

std::optional<double> BoundContender::load() {
  if (!platform_->description().is_host) return std::nullopt;
  return other_runnable_threads();
}

void BoundContender::poison(std::size_t inputs) {
  bound_->use_inputs(inputs);
  verifier_->expect(bound_->name());
}

Verdict BoundContender::judge() {
  Fixture& fixture = bound_->fixture();
  // Many launches on one tensor leave nothing in it that is known: what they did is seen, and one more is judged.
  const bool updates =
      std::ranges::any_of(fixture.specs(), [](const TensorSpec& spec) { return spec.role == Role::inout; });
  const bool weights_stand = !copies_ || copies_->intact();
  copies_.reset();
  if (!weights_stand) return {"wrote to a copy of its weights, or beside one"};
  Verdict verdict;
  if (!updates)
    verdict = verifier_->judge(*bound_);
  else if (std::optional<std::string> damage = fixture.find_damage())
    verdict.reason = *damage;
  else if (!fixture.updated())
    verdict.reason = "its launches left what they update as it was";
  else
    verdict = verifier_->verify(*bound_);
  if (bound_->of_plugin() && platform_->take_back_l2() > 0 && verdict.correct())
    verdict.reason = "its launches set L2 aside for persisting accesses";
  return verdict;
}

}  // namespace noisefloor
