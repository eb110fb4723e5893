#include "kernels/attention/schedule.h"

#include <algorithm>
#include <string>

namespace noisefloor::attention {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// By arithmetic (docs/experiments/attention, "heads of 512 by wgmma"): a block's start and end, 128 keys of it, a
// second launch, and a byte of sums written and read again. Of 4096 queries on an H100 it orders the splits as timings
// do.
double estimated_us(const Problem& p, int splits, int sm_count) {
  constexpr double kBlockUs = 3, kTileUs = 3.1, kMergeUs = 3, kMergeUsPerByte = 2 / 3e6;
  const auto waves = static_cast<double>(ceil_div(wide_blocks(p) * splits, sm_count));
  const auto tiles = static_cast<double>(ceil_div(ceil_div(p.seq_kv, kWideKeys), splits));
  const double us = waves * (kBlockUs + kTileUs * tiles);
  if (splits == 1) return us;
  return us + kMergeUs + kMergeUsPerByte * static_cast<double>(wide_partial_bytes(p, splits));
}

std::string text_of(int splits) {
  return "splits=" + std::to_string(splits);
}

}  // namespace

std::int64_t wide_blocks(const Problem& p) {
  return p.batch * p.heads * ceil_div(p.seq_q, kWideRows * kWidePair) * kWidePair;
}

std::vector<int> wide_splits(const Problem& p, int sm_count) {
  constexpr int kMostSplits = 4, kMostWaves = 3;
  std::vector<int> splits{1};
  for (int more = 2; more <= kMostSplits; ++more)
    if (more * kWideKeys < p.seq_kv + kWideKeys && more * wide_blocks(p) <= std::int64_t{kMostWaves} * sm_count)
      splits.push_back(more);
  const auto best = std::min_element(splits.begin(), splits.end(), [&](int a, int b) {
    return estimated_us(p, a, sm_count) < estimated_us(p, b, sm_count);
  });
  std::rotate(splits.begin(), best, best + 1);
  return splits;
}

int choose_wide_splits(const Problem& p, int sm_count) {
  return wide_splits(p, sm_count).front();
}

std::size_t wide_partial_bytes(const Problem& p, int splits) {
  if (splits == 1) return 0;
  const std::int64_t rows = p.batch * p.heads * p.seq_q;
  return static_cast<std::size_t>(splits * rows * (p.dim + 2)) * sizeof(float);
}

std::size_t wide_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  const std::vector<int> splits = wide_splits(p, device.sm_count);
  return wide_partial_bytes(p, *std::max_element(splits.begin(), splits.end()));
}

std::vector<Choice> wide_choices(const Problem& p, DType, const DeviceInfo& device) {
  std::vector<Choice> choices;
  for (const int splits : wide_splits(p, device.sm_count)) choices.push_back({text_of(splits), choices.empty()});
  return choices;
}

std::optional<int> parse_wide_splits(const Problem& p, std::string_view choice, int sm_count) {
  for (const int splits : wide_splits(p, sm_count))
    if (text_of(splits) == choice) return splits;
  return std::nullopt;
}

}  // namespace noisefloor::attention
