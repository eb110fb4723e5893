#include "kernels/product/sm80_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/device/limits.h"

namespace noisefloor::product {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Blocks run in waves. A wave takes `wave`, and for every step of k the longer of a block's own latency (`step`) and
// the SM's throughput for the blocks that share it (`step_each` times their number). In microseconds, fitted to cold
// times of every tile and split on an H200 over the problems of ten networks; only their ratios matter, which change
// little between GPUs.
struct TileCost {
  Sm80Tile tile;
  double wave, step, step_each;
};
constexpr TileCost kTileCosts[] = {
    {Sm80Tile::flat_16x32, 2.55, 0.20, 0.105},  {Sm80Tile::low_32x64, 2.90, 0.43, 0.256},
    {Sm80Tile::small_64x64, 3.15, 0.30, 0.235}, {Sm80Tile::medium_128x64, 3.70, 0.51, 0.42},
    {Sm80Tile::tall_256x128, 6.00, 0.31, 1.16},
};
constexpr double kSecondKernel = 2.0;       // adds the parts
constexpr double kPartsPerMegabyte = 0.28;  // written by one kernel, read by the other
constexpr int kSplits[] = {1, 2, 3, 4, 6, 8};

double predicted_time(const Extents& extents, const TileCost& cost, const Sm80Plan& plan, std::int64_t sms) {
  const Sm80Shape shape = shape_of(plan.tile);
  const std::int64_t steps = ceil_div(ceil_div(extents.k, shape.block_k), plan.splits);
  const auto wave_time = [&](std::int64_t blocks_on_sm) {
    return cost.wave +
           static_cast<double>(steps) * std::max(cost.step, static_cast<double>(blocks_on_sm) * cost.step_each);
  };
  const std::int64_t blocks = plan.tiles() * plan.splits;
  const std::int64_t per_wave = sms * shape.blocks_per_sm;
  double time = static_cast<double>(blocks / per_wave) * wave_time(shape.blocks_per_sm);
  if (const std::int64_t rest = blocks % per_wave; rest > 0) time += wave_time(ceil_div(rest, sms));
  if (plan.splits > 1)
    time += kSecondKernel + kPartsPerMegabyte * 1e-6 * static_cast<double>(sm80_workspace_bytes(plan));
  return time;
}

}  // namespace

Sm80Plan make_sm80_plan(const Extents& extents, Sm80Tile tile, int splits) {
  const Sm80Shape shape = shape_of(tile);
  Sm80Plan plan;
  plan.tile = tile;
  plan.tiles_m = ceil_div(extents.m, shape.block_m);
  plan.tiles_n = ceil_div(extents.n, extents.gated ? shape.block_n / 2 : shape.block_n);
  const std::int64_t steps = ceil_div(extents.k, shape.block_k);
  const std::int64_t part = ceil_div(steps, std::min<std::int64_t>(splits, steps));
  plan.splits = static_cast<int>(ceil_div(steps, part));  // so that the last part is not empty either
  return plan;
}

Sm80Plan choose_sm80_plan(const Extents& extents, const DeviceInfo& device) {
  const std::int64_t sms = std::max(1, device.sm_count);
  Sm80Plan best = make_sm80_plan(extents, Sm80Tile::medium_128x64, 1);  // fits every grid
  double best_time = std::numeric_limits<double>::infinity();
  for (const TileCost& cost : kTileCosts) {
    if (static_cast<std::size_t>(shape_of(cost.tile).shared_bytes()) > device.shared_bytes_per_block) continue;
    for (const int splits : kSplits) {
      const Sm80Plan plan = make_sm80_plan(extents, cost.tile, splits);
      if (plan.tiles() * plan.splits > kMaxBlocks) continue;
      const double time = predicted_time(extents, cost, plan, sms);
      if (time >= best_time) continue;
      best = plan;
      best_time = time;
    }
  }
  return best;
}

std::size_t sm80_workspace_bytes(const Sm80Plan& plan) {
  if (plan.splits == 1) return 0;
  const Sm80Shape shape = shape_of(plan.tile);
  return static_cast<std::size_t>(plan.splits * plan.tiles_m * shape.block_m * plan.tiles_n * shape.block_n) *
         sizeof(float);
}

}  // namespace noisefloor::product
