#include "kernels/attention/schedule.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "kernels/core/by_shape.h"

namespace noisefloor::attention {
namespace {

const Tile& tile_of(const Schedule& schedule) {
  return kTiles[static_cast<std::size_t>(schedule.tile)];
}

std::string text_of(const Schedule& schedule) {
  const Tile& tile = tile_of(schedule);
  const auto field = [](const char* name, int value) { return name + std::to_string(value); };
  return field("rows=", tile.rows()) + field(",keys=", tile.keys) + field(",blocks=", tile.blocks) +
         field(",turns=", schedule.turns) + field(",splits=", schedule.splits);
}

// The smallest head size of a tile that holds a head of `dim`.
int tile_dim(std::int64_t dim) {
  for (const Tile& tile : kTiles)
    if (dim <= tile.dim) return tile.dim;
  return 0;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t tiles_of(const Problem& p, const Tile& tile) {
  return p.batch * p.heads * ceil_div(p.seq_q, tile.rows());
}

// Every schedule for a problem. Keys are split where each of a pair of blocks gets a tile of them, and all pairs run at
// once. Larger clusters lost: they do not fill an H200's groups of SMs.
template <class Visit>
void visit_schedules(const Problem& p, int sm_count, const Visit& visit) {
  const int wanted = tile_dim(p.dim);
  for (int i = 0; i < static_cast<int>(kTiles.size()); ++i) {
    const Tile& tile = kTiles[static_cast<std::size_t>(i)];
    if (tile.dim != wanted) continue;
    const std::int64_t behind = tiles_of(p, tile) % sm_count;
    const bool splits = tile.splits && p.seq_kv > tile.keys && behind > 0 && 2 * behind <= sm_count;
    for (const bool turns : {true, false}) {
      visit(Schedule{i, turns});
      if (splits) visit(Schedule{i, turns, 2});
    }
  }
}

// By arithmetic (docs/experiments/attention, "heads of 512 by wgmma"): a block's start and end, 128 keys of it, a
// second launch, and a byte of sums written and read again. Of 4096 queries on an H100 it orders the splits as timings
// do.
double wide_us(const Problem& p, int splits, int sm_count) {
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

Grid grid_of(const Problem& problem, const Schedule& schedule, int sm_count) {
  const std::int64_t tiles = tiles_of(problem, tile_of(schedule)), splits = schedule.splits;
  const std::int64_t whole = splits > 1 ? tiles / sm_count * sm_count / splits : 0;
  return {whole, (whole + tiles - whole * splits) * splits};
}

// A wave takes 1.2 us for each consumer's start and end (those of two blocks on an SM lie under each other's work), and
// as long a key as the tile says; a block that is alone where two fit 0.73 of it. Merging takes 2 us at head size 64.
double estimated_us(const Problem& p, const Schedule& schedule, int sm_count) {
  constexpr double kConsumerUs = 1.2, kAlone = 0.73, kMergeUsPerElement = 2.0 / 64;
  const Tile& tile = tile_of(schedule);
  const std::int64_t steps = ceil_div(p.seq_kv, tile.keys);
  const auto wave_us = [&](std::int64_t of, double share = 1) {
    return kConsumerUs * tile.consumers / tile.blocks +
           1e-3 * tile.key_ns * share * static_cast<double>(of * tile.keys);
  };
  const std::int64_t tiles = tiles_of(p, tile), full = std::int64_t{sm_count} * tile.blocks;
  const double waves_us = static_cast<double>(tiles / full) * wave_us(steps);
  if (schedule.splits > 1) return waves_us + wave_us(ceil_div(steps, schedule.splits)) + kMergeUsPerElement * tile.dim;
  if (tiles % full == 0) return waves_us;
  return waves_us + wave_us(steps, tile.blocks > 1 && tiles % full <= sm_count ? kAlone : 1);
}

Schedule choose(const Problem& p, int sm_count, const MeasuredSchedules& measured) {
  std::optional<Schedule> best;
  if (sm_count == measured.sm_count) {
    const auto shape_of = [](const auto& row) {
      return std::tuple(row.batch, row.heads, row.seq_q, row.seq_kv, row.dim);
    };
    if (const MeasuredSchedule* row = find_measured(measured.schedules, shape_of(p), shape_of))
      visit_schedules(p, sm_count, [&](const Schedule& s) {
        const Tile& t = tile_of(s);
        if (std::tuple(t.rows(), t.keys, t.blocks, int{s.turns}, s.splits) ==
            std::tuple(row->rows, row->keys, row->blocks, row->turns, row->splits))
          best = s;
      });
    if (best) return *best;
  }
  double least = 0;
  visit_schedules(p, sm_count, [&](const Schedule& s) {
    // Turns pay with long tiles of keys, where each waits for its own product; with short ones others fill the gaps.
    if (s.turns != (tile_of(s).keys >= 128) || grid_of(p, s, sm_count).whole > 0) return;
    const double us = estimated_us(p, s, sm_count);
    if (!best || us < least) best = s, least = us;
  });
  return *best;
}

std::vector<Choice> schedule_choices(const Problem& problem, DType, const DeviceInfo& device) {
  const std::string chosen = text_of(choose(problem, device.sm_count, {}));
  std::vector<Choice> choices{{chosen, true}};
  visit_schedules(problem, device.sm_count, [&](const Schedule& schedule) {
    if (const std::string text = text_of(schedule); text != chosen) choices.push_back({text, false});
  });
  return choices;
}

std::optional<Schedule> parse_schedule(const Problem& problem, std::string_view choice, int sm_count) {
  std::optional<Schedule> found;
  visit_schedules(problem, sm_count, [&](const Schedule& schedule) {
    if (text_of(schedule) == choice) found = schedule;
  });
  return found;
}

std::int64_t wide_blocks(const Problem& p) {
  return p.batch * p.heads * ceil_div(p.seq_q, kWideRows * kWidePair) * kWidePair;
}

std::vector<int> wide_splits(const Problem& p, int sm_count) {
  constexpr int kMostSplits = 4, kMostWaves = 3;
  std::vector<int> splits{1};
  for (int more = 2; more <= kMostSplits; ++more)
    if (more * kWideKeys < p.seq_kv + kWideKeys && more * wide_blocks(p) <= std::int64_t{kMostWaves} * sm_count)
      splits.push_back(more);
  const auto best = std::min_element(splits.begin(), splits.end(),
                                     [&](int a, int b) { return wide_us(p, a, sm_count) < wide_us(p, b, sm_count); });
  std::rotate(splits.begin(), best, best + 1);
  return splits;
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
