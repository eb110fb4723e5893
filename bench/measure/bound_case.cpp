#include "bench/measure/bound_case.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace noisefloor {
namespace {

constexpr unsigned char kGuardByte = 0xA5;

}  // namespace

BoundCase::BoundCase(Fixture& fixture, const Candidate& candidate, KnownTimes* known)
    : fixture_(&fixture), candidate_(candidate) {
  Platform& platform = fixture.platform();
  const DeviceInfo& device = platform.description().info;
  if (candidate.baseline != nullptr) run_ = candidate.baseline->create(fixture.problem(), fixture.dtype(), device);
  if (candidate.assembly != nullptr) {
    KnownTimes nothing;
    auto assembled = candidate.assembly->create(candidate.assembly->name, platform, fixture.problem(), fixture.dtype(),
                                                known != nullptr ? *known : nothing);
    assembled_ = assembled.get();
    run_ = std::move(assembled);
  }
  const std::size_t bytes =
      run_ ? run_->workspace_bytes() : candidate.variant->workspace_bytes(fixture.problem(), fixture.dtype(), device);
  if (bytes > 0) {
    workspace_ = Buffer(platform, bytes + kGuardBytes);
    // Workspaces come uninitialised: NaN shows a variant that reads before it writes.
    platform.fill_bytes(workspace_.data(), 0xFF, bytes);
    platform.fill_bytes(static_cast<char*>(workspace_.data()) + bytes, kGuardByte, kGuardBytes);
  }
  if (run_) {
    const Status status = run_->tune(fixture.pointers(), workspace_.data(), platform.context());
    if (status.code == StatusCode::unsupported_problem) throw LibraryRefused(status.what);
    throw_if_failed(status);
    platform.synchronize();
    return;
  }
  if (const std::size_t prepared = candidate.variant->prepared_bytes(fixture.problem(), fixture.dtype());
      prepared > 0) {
    prepared_ = Buffer(platform, prepared);
    platform.synchronize();
    const auto start = std::chrono::steady_clock::now();
    throw_if_failed(candidate.variant->prepare(fixture.problem(), fixture.dtype(), fixture.pointers(), prepared_.data(),
                                               platform.context()));
    platform.synchronize();
    prepare_us_ = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
}

Launch BoundCase::launch(bool overlapping) {
  LaunchContext context = fixture_->platform().context();
  if (run_) return [this, context] { return run_->launch(fixture_->pointers(), workspace_.data(), context); };
  context.programmatic_launch = overlapping;
  return [this, context] {
    return candidate_.variant->launch(fixture_->problem(), fixture_->dtype(), fixture_->pointers(),
                                      {workspace_.data(), prepared_.data()}, context);
  };
}

std::vector<std::pair<void*, std::size_t>> BoundCase::resident() const {
  auto ranges = fixture_->resident();
  if (workspace_.bytes() > 0) ranges.emplace_back(workspace_.data(), workspace_bytes());
  if (prepared_.bytes() > 0) ranges.emplace_back(prepared_.data(), prepared_.bytes());
  if (assembled_ != nullptr)
    for (const auto& range : assembled_->resident()) ranges.push_back(range);
  return ranges;
}

std::size_t BoundCase::own_bytes() const {
  std::size_t bytes = 0;
  if (assembled_ != nullptr)
    for (const auto& range : assembled_->resident()) bytes += range.second;
  return bytes;
}

bool BoundCase::workspace_overrun() {
  if (workspace_.bytes() == 0) return false;
  std::vector<unsigned char> guard(kGuardBytes);
  fixture_->platform().download(guard.data(), static_cast<char*>(workspace_.data()) + workspace_bytes(), kGuardBytes);
  return std::any_of(guard.begin(), guard.end(), [](unsigned char byte) { return byte != kGuardByte; });
}

}  // namespace noisefloor
