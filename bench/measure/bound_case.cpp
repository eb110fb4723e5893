#include "bench/measure/bound_case.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace noisefloor {
namespace {

constexpr unsigned char kGuardByte = 0xA5;

}  // namespace

WeightCopies::WeightCopies(const Fixture& fixture, std::uint64_t weights, const Buffer& prepared, int launches)
    : fixture_(&fixture), weights_(weights), prepared_bytes_(prepared.bytes()) {
  Platform& platform = fixture.platform();
  std::size_t tensor_bytes = 0, offset = Fixture::kGuardBytes;
  const auto place = [&](std::size_t bytes) {
    return std::exchange(offset, aligned(offset + bytes) + Fixture::kGuardBytes);
  };
  for (std::size_t i = 0; i < fixture.specs().size(); ++i) {
    if ((weights >> i & 1) == 0) continue;
    places_.emplace_back(i, place(fixture.specs()[i].bytes()));
    tensor_bytes += fixture.specs()[i].bytes();
  }
  if (prepared_bytes_ > 0) prepared_at_ = place(prepared_bytes_);
  stride_ = offset;
  // What was prepared of a tensor is read in its place.
  const std::size_t read_bytes = std::max<std::size_t>(prepared_bytes_ > 0 ? prepared_bytes_ : tensor_bytes, 1);
  const std::size_t turn = (2 * platform.description().info.l2_bytes + read_bytes - 1) / read_bytes;
  count_ = std::min(static_cast<std::size_t>(launches), turn) + 1;
  data_ = Buffer(platform, count_ * stride_);
  platform.fill_bytes(data_.data(), kGuardByte, data_.bytes());
  for (std::size_t copy = 0; copy < count_; ++copy) {
    for (const auto& [tensor, at] : places_)
      platform.copy(begin(copy) + at, fixture.pointers()[tensor], fixture.specs()[tensor].bytes());
    if (prepared_bytes_ > 0) platform.copy(begin(copy) + prepared_at_, prepared.data(), prepared_bytes_);
  }
  checksum_ = platform.checksum(data_.data(), data_.bytes());
}

std::span<void* const> WeightCopies::pointers(std::size_t copy) {
  pointers_.assign(fixture_->pointers().begin(), fixture_->pointers().end());
  for (const auto& [tensor, at] : places_) pointers_[tensor] = begin(copy) + at;
  return pointers_;
}

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
    if (prepares_each_ && prepares())
      ready_->prepare(fixture_->pointers(), prepared_.data(), fixture_->platform().context());
    return ready_->launch(fixture_->pointers(), {workspace(), prepared_.data()}, context);
  };
}

Status BoundCase::launch_from(WeightCopies& copies, std::size_t copy) {
  LaunchContext context = fixture_->platform().context();
  context.constant_inputs = copies.weights();
  context.programmatic_launch = true;
  ready_->use(Caches::warm);
  return ready_->launch(copies.pointers(copy), {workspace(), copies.prepared(copy)}, context);
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
