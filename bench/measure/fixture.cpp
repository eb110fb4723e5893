#include "bench/measure/fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "kernels/core/device.h"

namespace noisefloor {
namespace {

// All ones is a NaN in fp32, bf16 and fp16: an element that was not written shows, and so does one that was made from
// what lies beyond an input's end. Arithmetic writes other NaNs, so that a write of one into a guard band shows too.
constexpr unsigned char kPoisonByte = 0xFF;
constexpr unsigned char kGuardByte = kPoisonByte;

// Between two slots. An allocation has pages of 2 MB: half of one and a bit more than its end brings small tensors to
// another page or to another half of one, and to another offset in it.
constexpr std::size_t kSlotUnit = 64 << 10, kBetweenSlots = (1 << 20) + kSlotUnit;

}  // namespace

Fixture::Fixture(Platform& platform, const SuiteEntry& entry, AnyProblem problem, DType dtype, std::uint64_t seed,
                 const GivenTensors& given, std::size_t slots)
    : platform_(&platform),
      entry_(&entry),
      problem_(std::move(problem)),
      dtype_(dtype),
      seed_(seed),
      specs_(entry.workload->tensors(problem_, dtype)) {
  std::size_t offset = kGuardBytes;
  std::vector<std::size_t> offsets;
  for (const TensorSpec& spec : specs_) given_.push_back(given.contains(spec.name));
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    offsets.push_back(offset + before(i));
    offset = aligned(offsets.back() + specs_[i].bytes()) + kGuardBytes;
    ends_.push_back(offset);
  }
  bytes_ = offset;
  allocate(slots);
  platform.fill_bytes(arena_.data(), kGuardByte, bytes_);
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    pointers_.push_back(static_cast<char*>(arena_.data()) + offsets[i]);
    resident_.emplace_back(static_cast<char*>(pointers_.back()) - before(i), before(i) + specs_[i].bytes());
  }
  saved_inout_.resize(specs_.size());
  fill_inputs(given);
}

std::size_t Fixture::slot_stride(std::size_t bytes) {
  return (bytes + kSlotUnit - 1) / kSlotUnit * kSlotUnit + kBetweenSlots;
}

void Fixture::allocate(std::size_t slots) {
  stride_ = slot_stride(bytes_);
  slots_ = std::clamp(kSlotsBytes / stride_, std::size_t{1}, std::max(slots, std::size_t{1}));
  arena_ = allocate_slots(*platform_, bytes_, stride_, slots_);
}

Buffer allocate_slots(Platform& platform, std::size_t bytes, std::size_t stride, std::size_t& slots) {
  const std::size_t all = (slots - 1) * stride + bytes;
  if (slots > 1 && platform.free_bytes() >= 2 * all) {  // the rest of the case needs memory, too
    try {
      return Buffer(platform, all);
    } catch (const OutOfMemory&) {  // a row from one slot is better than none
    }
  }
  slots = 1;
  return Buffer(platform, bytes);
}

void Fixture::move_to(std::size_t slot) {
  if (slot >= slots_) throw std::out_of_range(fmt::format("slot {} of {}", slot, slots_));
  if (slot == slot_) return;
  const char* const from = begin();
  platform_->copy(static_cast<char*>(arena_.data()) + slot * stride_, from, bytes_);
  slot_ = slot;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    pointers_[i] = begin() + (static_cast<const char*>(pointers_[i]) - from);
    resident_[i].first = static_cast<char*>(pointers_[i]) - before(i);
  }
  for (std::size_t i = 0; i < specs_.size(); ++i)
    if (specs_[i].role == Role::out) platform_->fill_bytes(pointers_[i], kPoisonByte, specs_[i].bytes());
}

// Whether its numbers are random ones.
bool Fixture::drawn(std::size_t tensor) const {
  const TensorSpec& spec = specs_[tensor];
  return spec.role == Role::in && !given_[tensor] && spec.fill.kind == Fill::Kind::normal;
}

constexpr std::uint64_t kSetStride = 1'000'003;  // far above the number of tensors: no stream is in both sets

void Fixture::draw(std::size_t tensor) {
  const TensorSpec& spec = specs_[tensor];
  platform_->fill_normal(spec.dtype, pointers_[tensor], spec.elements(), spec.fill.mean, spec.fill.stddev,
                         seed_ + set_ * kSetStride + tensor);
}

void Fixture::begin_batch() {
  constexpr std::uint64_t kFirst = 500'009, kStride = 4'000'037;  // of streams of their own
  const std::uint64_t seed = seed_ + kFirst + kStride * windows_drawn_++;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const TensorSpec& spec = specs_[i];
    if (spec.role == Role::out) platform_->fill_bytes(pointers_[i], kPoisonByte, spec.bytes());
    if (drawn(i))
      platform_->fill_normal(spec.dtype, resident_[i].first, static_cast<std::int64_t>(before(i) / size_of(spec.dtype)),
                             spec.fill.mean, spec.fill.stddev, seed + i);
  }
}

void Fixture::use_window(std::size_t window) {
  if (window == window_) return;
  for (std::size_t i = 0; i < specs_.size(); ++i)
    if (drawn(i)) pointers_[i] = static_cast<char*>(resident_[i].first) + (kWindows - 1 - window) * kWindowBytes;
  window_ = window;
}

void Fixture::use_inputs(std::size_t set) {
  if (set == set_) return;
  set_ = set;
  host_data_.clear();
  host_tensors_.clear();
  std::vector<std::uint64_t>& checksums = input_checksums_[set];
  const bool first = checksums.empty();
  if (first) checksums = input_checksums_[0];
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!drawn(i)) continue;
    draw(i);
    if (first) checksums[i] = platform_->checksum(pointers_[i], specs_[i].bytes());
  }
}

void Fixture::fill_inputs(const GivenTensors& given) {
  std::vector<std::uint64_t>& checksums = input_checksums_[0];
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const TensorSpec& spec = specs_[i];
    if (spec.role == Role::out) {
      checksums.push_back(0);
      continue;
    }
    if (const auto found = given.find(spec.name); found != given.end()) {
      if (found->second.size() != spec.bytes())
        throw std::invalid_argument(fmt::format("tensor '{}' is given with {} bytes, but has {}", spec.name,
                                                found->second.size(), spec.bytes()));
      platform_->upload(pointers_[i], found->second.data(), spec.bytes());
    } else if (spec.fill.kind == Fill::Kind::op) {
      std::vector<char> data(spec.bytes());
      workload().fill(problem_, dtype_, i, data.data());
      platform_->upload(pointers_[i], data.data(), data.size());
    } else {
      draw(i);
    }
    checksums.push_back(platform_->checksum(pointers_[i], spec.bytes()));
    if (spec.role == Role::inout) {
      saved_inout_[i].resize(spec.bytes());
      platform_->download(saved_inout_[i].data(), pointers_[i], spec.bytes());
    }
  }
}

void Fixture::reset_outputs() {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].role == Role::out) platform_->fill_bytes(pointers_[i], kPoisonByte, specs_[i].bytes());
    if (specs_[i].role == Role::inout) platform_->upload(pointers_[i], saved_inout_[i].data(), saved_inout_[i].size());
    char* const tail = static_cast<char*>(pointers_[i]) + specs_[i].bytes();
    platform_->fill_bytes(static_cast<char*>(resident_[i].first) - kGuardBytes, kGuardByte, kGuardBytes + before(i));
    platform_->fill_bytes(tail, kGuardByte, static_cast<std::size_t>(begin() + ends_[i] - tail));
  }
}

bool Fixture::updated() {
  bool any = false;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].role != Role::inout) continue;
    if (platform_->checksum(pointers_[i], specs_[i].bytes()) != input_checksums_[set_][i]) return true;
    any = true;
  }
  return !any;
}

std::optional<std::string> Fixture::find_written() {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].role == Role::in) continue;
    std::vector<unsigned char> data(specs_[i].bytes());
    platform_->download(data.data(), pointers_[i], data.size());
    const bool same = specs_[i].role == Role::out
                          ? std::ranges::all_of(data, [](unsigned char byte) { return byte == kPoisonByte; })
                          : std::ranges::equal(data, saved_inout_[i], {}, {},
                                               [](char byte) { return static_cast<unsigned char>(byte); });
    if (!same) return specs_[i].name;
  }
  return std::nullopt;
}

bool Fixture::guards_intact(std::size_t tensor) {
  char* const data = static_cast<char*>(resident_[tensor].first);
  char* const tail = static_cast<char*>(pointers_[tensor]) + specs_[tensor].bytes();
  const auto tail_bytes = static_cast<std::size_t>(begin() + ends_[tensor] - tail);
  std::vector<unsigned char> guard(kGuardBytes + tail_bytes);
  platform_->download(guard.data(), data - kGuardBytes, kGuardBytes);
  platform_->download(guard.data() + kGuardBytes, tail, tail_bytes);
  return std::all_of(guard.begin(), guard.end(), [](unsigned char byte) { return byte == kGuardByte; });
}

std::optional<std::string> Fixture::find_damage() {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!guards_intact(i)) return fmt::format("wrote outside tensor '{}'", specs_[i].name);
    if (specs_[i].role == Role::in && platform_->checksum(pointers_[i], specs_[i].bytes()) != input_checksums_[set_][i])
      return fmt::format("changed its input '{}'", specs_[i].name);
  }
  return std::nullopt;
}

std::span<const HostTensor> Fixture::host_tensors() {
  if (!host_tensors_.empty()) return host_tensors_;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const char* data = specs_[i].role == Role::inout ? saved_inout_[i].data() : nullptr;
    if (specs_[i].role == Role::in) {
      host_data_.push_back(allocate_large(specs_[i].bytes()));
      platform_->download(host_data_.back().get(), pointers_[i], specs_[i].bytes());
      data = host_data_.back().get();
    }
    host_tensors_.push_back({specs_[i].dtype, data});
  }
  return host_tensors_;
}

std::size_t usual_slots(const Platform& platform) {
  return platform.description().is_host ? 1 : Fixture::kSlots;
}

}  // namespace noisefloor
