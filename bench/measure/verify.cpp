#include "bench/measure/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/measure/bound_case.h"

namespace noisefloor {
Verifier::Verifier(Fixture& fixture, const VerifierOptions& options)
    : fixture_(&fixture),
      options_(options),
      tolerance_(fixture.workload().tolerance(fixture.problem(), fixture.dtype())) {}

void Verifier::consult_oracle() {
  if (!known().expectations.empty()) return;
  const double flops = fixture_->inputs() == 0 ? options_.oracle_flops : options_.oracle_flops / 4;
  std::vector<Expectation> expectations = fixture_->oracle().expect(*fixture_, flops);
  std::vector<Known::OnPlatform> on_platform;
  for (const Expectation& one : expectations)
    on_platform.push_back({one.complete ? Buffer() : uploaded(one.elements), uploaded(one.values)});
  known().on_platform = std::move(on_platform);
  known().expectations = std::move(expectations);
}

template <class Number>
Buffer Verifier::uploaded(const std::vector<Number>& numbers) const {
  Buffer buffer(fixture_->platform(), numbers.size() * sizeof(Number));
  fixture_->platform().upload(buffer.data(), numbers.data(), buffer.bytes());
  return buffer;
}

std::optional<std::string> Verifier::compare_with_oracle(Verdict& verdict) {
  Platform& platform = fixture_->platform();
  for (std::size_t i = 0; i < known().expectations.size(); ++i) {
    const Expectation& expected = known().expectations[i];
    const auto& [elements, values] = known().on_platform[i];
    const TensorSpec& spec = fixture_->specs()[expected.tensor];
    const void* const data = fixture_->pointers()[expected.tensor];
    const Difference difference = platform.compare(
        spec.dtype, data, {DType::fp64, values.data(), static_cast<const std::int64_t*>(elements.data())},
        std::ssize(expected.values), expected.rms);
    const auto at_worst = [&] {
      const auto worst = static_cast<std::size_t>(difference.worst);
      return fmt::format("{}[{}] is {:.6g}, expected {:.6g}", spec.name, expected.elements[worst],
                         platform.element(spec.dtype, data, expected.elements[worst]), expected.values[worst]);
    };
    if (!difference.all_finite) return at_worst();
    verdict.max_rel_error = std::max(verdict.max_rel_error, difference.max_error);
    verdict.l2_error = std::max(verdict.l2_error, difference.l2_error);
    if (!(difference.max_error <= tolerance_.max_error))
      return fmt::format("{}: error {:.3g}, allowed {:.3g}", at_worst(), difference.max_error, tolerance_.max_error);
    if (!(difference.l2_error <= tolerance_.l2_error))
      return fmt::format("{}: relative L2 error {:.3g}, allowed {:.3g}", spec.name, difference.l2_error,
                         tolerance_.l2_error);
  }
  return std::nullopt;
}

// None where nothing that may stand in runs this problem and agrees with the oracle: its own row says why.
void Verifier::find_stand_in(std::string_view judged) {
  Known& here = known();
  const auto may_judge = [&](const Implementation& one) { return !options_.quick_stand_in || one.name != judged; };
  if (here.stand_in != nullptr && may_judge(*here.stand_in)) return;
  here.stand_in = nullptr;
  for (const Implementation* const one : fixture_->oracle().stand_ins(options_.quick_stand_in)) {
    if (!may_judge(*one) || here.unfit.contains(one)) continue;
    if (make_stand_in_outputs(*one)) {
      here.stand_in = one;
      return;
    }
    here.unfit.insert(one);
  }
  here.stand_in_outputs.clear();
}

// False where it does not run here, or is wrong.
bool Verifier::make_stand_in_outputs(const Implementation& stand_in) {
  Platform& platform = fixture_->platform();
  if (!runs_on(stand_in.arch, platform.description().info.compute_capability) ||
      !stand_in.can_run(fixture_->problem(), fixture_->dtype()))
    return false;
  try {
    for (const Expectation& expected : known().expectations) {
      if (expected.complete) continue;
      Buffer& copy = known().stand_in_outputs[expected.tensor];
      if (copy.data() == nullptr) copy = Buffer(platform, fixture_->specs()[expected.tensor].bytes());
    }
    fixture_->reset_outputs();
    BoundCase bound(*fixture_, stand_in);
    throw_if_failed(bound.launch()());
    platform.synchronize();
    Verdict verdict;
    if (compare_with_oracle(verdict) || find_not_finite()) return false;
    for (const auto& [tensor, copy] : known().stand_in_outputs)
      platform.copy(copy.data(), fixture_->pointers()[tensor], copy.bytes());
    platform.synchronize();
    return true;
  } catch (const DeviceError& error) {
    if (error.lost()) throw;
  } catch (const std::runtime_error&) {  // no memory for it, or it refused the launch
  }
  return false;
}

std::optional<std::string> Verifier::compare_with_stand_in() {
  const std::string& name = known().stand_in->name;
  for (const Expectation& expected : known().expectations) {
    if (expected.complete) continue;
    const TensorSpec& spec = fixture_->specs()[expected.tensor];
    const Difference difference = fixture_->platform().compare(
        spec.dtype, fixture_->pointers()[expected.tensor],
        {spec.dtype, known().stand_in_outputs.at(expected.tensor).data()}, spec.elements(), expected.rms);
    // Two results, each within tolerance of the truth, are within twice that of each other.
    if (!difference.all_finite) return fmt::format("{}[{}] is not finite", spec.name, difference.worst);
    if (!(difference.max_error <= 2 * tolerance_.max_error))
      return fmt::format("{}[{}] differs from the {} variant by {:.3g}, allowed {:.3g}", spec.name, difference.worst,
                         name, difference.max_error, 2 * tolerance_.max_error);
    if (!(difference.l2_error <= 2 * tolerance_.l2_error))
      return fmt::format("{} differs from the {} variant by a relative L2 error of {:.3g}, allowed {:.3g}", spec.name,
                         name, difference.l2_error, 2 * tolerance_.l2_error);
  }
  return std::nullopt;
}

// In outputs that the oracle only samples: elements that were not written are still NaN.
std::optional<std::string> Verifier::find_not_finite() {
  for (const Expectation& expected : known().expectations) {
    if (expected.complete) continue;
    const TensorSpec& spec = fixture_->specs()[expected.tensor];
    const void* data = fixture_->pointers()[expected.tensor];
    const Difference self = fixture_->platform().compare(spec.dtype, data, {spec.dtype, data}, spec.elements(), 1);
    if (!self.all_finite) return fmt::format("{}[{}] is not finite", spec.name, self.worst);
  }
  return std::nullopt;
}

Verdict Verifier::judge(BoundCase& bound) {
  Verdict verdict = judge_outputs();
  if (bound.workspace_overrun() && verdict.correct()) verdict.reason = "wrote past its workspace";
  return verdict;
}

Verdict Verifier::judge_outputs() {
  consult_oracle();
  Verdict verdict;
  verdict.tolerance = tolerance_.max_error;
  verdict.l2_tolerance = tolerance_.l2_error;
  std::optional<std::string> wrong = fixture_->find_damage();
  if (auto error = compare_with_oracle(verdict); !wrong) wrong = std::move(error);
  if (!wrong) wrong = find_not_finite();
  if (!wrong && known().stand_in != nullptr) wrong = compare_with_stand_in();
  if (known().stand_in == nullptr)
    for (const Expectation& expected : known().expectations)
      if (!expected.complete)
        verdict.note += fmt::format("{}verified on {} of {} elements of {}", verdict.note.empty() ? "" : "; ",
                                    expected.elements.size(), fixture_->specs()[expected.tensor].elements(),
                                    fixture_->specs()[expected.tensor].name);
  verdict.reason = wrong.value_or("");
  return verdict;
}

void Verifier::expect(std::string_view judged) {
  consult_oracle();
  const bool sampled = std::any_of(known().expectations.begin(), known().expectations.end(),
                                   [](const Expectation& expected) { return !expected.complete; });
  if (sampled && !fixture_->platform().description().is_host &&
      fixture_->workload().cost(fixture_->problem(), fixture_->dtype()).flops <= options_.stand_in_flops)
    find_stand_in(judged);
  fixture_->reset_outputs();
}

Verdict Verifier::verify(BoundCase& bound) {
  expect(bound.name());
  throw_if_failed(bound.launch()());
  fixture_->platform().synchronize();
  return judge(bound);
}

Verdict Verifier::verify_replay(BoundCase& bound) {
  Platform& platform = fixture_->platform();
  const bool host = platform.description().is_host;
  const auto recording = platform.record(bound.launch());
  platform.synchronize();
  expect(bound.name());
  recording->replay();
  platform.synchronize();
  Verdict verdict = judge(bound);
  if (!verdict.correct())
    verdict.reason = fmt::format("{}: {}",
                                 host ? "after a second launch"
                                      : "after a replay of its recorded launch, which holds what it put on the stream "
                                        "that it was given and nothing else",
                                 verdict.reason);
  if (host && verdict.correct()) {
    recording->replay();
    fixture_->reset_outputs();  // at once: looking at them gives a thread the time that it needs
    platform.wait_for_threads();
    if (const auto written = fixture_->find_written())
      return {fmt::format("wrote tensor '{}' when its launch had returned: work of a thread is in no time", *written)};
  }
  return verdict;
}

}  // namespace noisefloor
