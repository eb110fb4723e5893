#include "bench/measure/bound_case.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace noisefloor {
namespace {

constexpr unsigned char kGuardByte = 0xA5;

}  // namespace

BoundCase::BoundCase(Fixture& fixture, const Implementation& implementation, Verifier* verifier, KnownTimes* known)
    : fixture_(&fixture), name_(implementation.name), of_plugin_(!implementation.plugin.empty()) {
  KnownTimes nothing;
  KnownTimes& times = known != nullptr ? *known : nothing;
  try {
    make(implementation, verifier, times);
  } catch (const StaleChoice&) {
    make(implementation, verifier, times);
  }
}

void BoundCase::make(const Implementation& implementation, Verifier* verifier, KnownTimes& known) {
  ready_ = implementation.make(fixture_->platform(), fixture_->problem(), fixture_->dtype(), known);
  lay_out();
  if (!ready_->needs_tuning()) return;
  Verifier own(*fixture_);
  tune_ready(*ready_, verifier != nullptr ? *verifier : own, {workspace(), prepared_.data()});
}

void BoundCase::lay_out() {
  Platform& platform = fixture_->platform();
  workspace_ = Buffer();
  prepared_ = Buffer();
  workspace_bytes_ = ready_->workspace_bytes();
  if (workspace_bytes_ > 0) {
    const std::size_t bytes = workspace_bytes_ + kGuardBytes, stride = Fixture::slot_stride(bytes);
    workspace_slots_ = std::clamp(Fixture::kSlotsBytes / stride, std::size_t{1}, fixture_->slots());
    workspace_ = allocate_slots(platform, bytes, stride, workspace_slots_);
    for (std::size_t slot = 0; slot < workspace_slots_; ++slot) {
      char* const begin = workspace_of(slot);
      // Workspaces come uninitialised: NaN shows a variant that reads before it writes.
      platform.fill_bytes(begin, 0xFF, workspace_bytes_);
      platform.fill_bytes(begin + workspace_bytes_, kGuardByte, kGuardBytes);
    }
  }
  if (const std::size_t bytes = ready_->prepared_bytes(); bytes > 0) {
    prepared_ = Buffer(platform, bytes);
    platform.synchronize();
    const auto start = std::chrono::steady_clock::now();
    prepare();
    prepare_us_ = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
}

char* BoundCase::workspace_of(std::size_t slot) const {
  if (workspace_bytes_ == 0) return nullptr;
  return static_cast<char*>(workspace_.data()) +
         slot % workspace_slots_ * Fixture::slot_stride(workspace_bytes_ + kGuardBytes);
}

void BoundCase::prepare() {
  ready_->prepare(fixture_->pointers(), prepared_.data(), fixture_->platform().context());
  fixture_->platform().synchronize();
  prepared_set_ = fixture_->inputs();
}

Launch BoundCase::preparing() {
  return [this] {
    ready_->prepare(fixture_->pointers(), prepared_.data(), fixture_->platform().context());
    return success();
  };
}

void BoundCase::use_inputs(std::size_t set) {
  fixture_->use_inputs(set);
  if (prepares() && prepared_set_ != set) prepare();
}

Launch BoundCase::launch(bool overlapping, std::uint64_t constant_inputs) {
  LaunchContext context = fixture_->platform().context();
  context.constant_inputs = constant_inputs;
  context.programmatic_launch = overlapping;
  const Caches caches = overlapping ? Caches::warm : Caches::cold;
  return [this, context, caches] {
    ready_->use(caches);
    return ready_->launch(fixture_->pointers(), {workspace(), prepared_.data()}, context);
  };
}

std::vector<std::pair<void*, std::size_t>> BoundCase::resident() const {
  auto ranges = fixture_->resident();
  if (workspace_bytes_ > 0) ranges.emplace_back(workspace(), workspace_bytes_);
  if (prepared_.bytes() > 0) ranges.emplace_back(prepared_.data(), prepared_.bytes());
  for (const auto& range : ready_->resident()) ranges.push_back(range);
  return ranges;
}

std::size_t BoundCase::working_bytes() const {
  std::size_t bytes = workspace_bytes_;
  for (const auto& range : ready_->resident()) bytes += range.second;
  return bytes;
}

bool BoundCase::workspace_overrun() {
  if (workspace_bytes_ == 0) return false;
  std::vector<unsigned char> guard(kGuardBytes);
  for (std::size_t slot = 0; slot < workspace_slots_; ++slot) {
    fixture_->platform().download(guard.data(), workspace_of(slot) + workspace_bytes_, kGuardBytes);
    if (std::any_of(guard.begin(), guard.end(), [](unsigned char byte) { return byte != kGuardByte; })) return true;
  }
  return false;
}

}  // namespace noisefloor
