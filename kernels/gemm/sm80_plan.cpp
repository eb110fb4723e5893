#include "kernels/gemm/sm80_plan.h"

#include <algorithm>

namespace noisefloor::gemm {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Sm80Plan make_sm80_plan(const Problem& problem, Sm80Tile tile, int splits) {
  const Sm80Shape shape = shape_of(tile);
  Sm80Plan plan;
  plan.tile = tile;
  plan.tiles_m = ceil_div(problem.m, shape.block_m);
  plan.tiles_n = ceil_div(problem.n, problem.gated() ? shape.block_n / 2 : shape.block_n);
  const std::int64_t steps = ceil_div(problem.k, shape.block_k);
  plan.splits = static_cast<int>(std::min<std::int64_t>(splits, steps));
  plan.splits = static_cast<int>(ceil_div(steps, ceil_div(steps, plan.splits)));  // every part gets a step
  return plan;
}

Sm80Plan choose_sm80_plan(const Problem& problem, const DeviceInfo& device) {
  const std::int64_t sms = std::max(1, device.sm_count);
  if (problem.m <= 16) return make_sm80_plan(problem, Sm80Tile::flat_16x32, 1);
  const Sm80Plan square = make_sm80_plan(problem, Sm80Tile::square_128x128, 1);
  if (square.tiles() >= sms) return square;
  const Sm80Plan small = make_sm80_plan(problem, Sm80Tile::small_64x64, 1);
  constexpr std::int64_t kStepsPerPart = 8;  // fewer, and writing and summing the parts costs more than the split saves
  const std::int64_t parts = std::min(2 * sms / small.tiles(), problem.k / (64 * kStepsPerPart));
  return make_sm80_plan(problem, Sm80Tile::small_64x64, static_cast<int>(std::clamp<std::int64_t>(parts, 1, 16)));
}

std::size_t sm80_workspace_bytes(const Sm80Plan& plan) {
  if (plan.splits == 1) return 0;
  const Sm80Shape shape = shape_of(plan.tile);
  return static_cast<std::size_t>(plan.splits * plan.tiles_m * shape.block_m * plan.tiles_n * shape.block_n) *
         sizeof(float);
}

}  // namespace noisefloor::gemm
