#include "kernels/convolution/schedule.h"

#include <algorithm>

#include "kernels/core/by_shape.h"
#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::convolution {
namespace {

// A fit to timed schedules of the convolutions of adm64-b1 and sd15-b2 on an H200 (docs/experiments/convolution). A
// turn is taken to cost the fill, not fitted: with two tiles a block nothing is won by turns.
constexpr product::Sm90aKernel kKernel{.tiles = kTiles,
                                       .costs = {.fma_per_cycle = 1500,
                                                 .bytes_per_cycle = 45,
                                                 .load_latency = 4060,
                                                 .least_step = 263,
                                                 .byte = 0.00055,
                                                 .fill = 2890,
                                                 .store = 0.098,
                                                 .exchange = 0.248,
                                                 .meet = 469,
                                                 .meet_per_block = 27,
                                                 .multicast = 286,
                                                 .turn = 2890},
                                       .can_split = can_split};

}  // namespace

product::Sm90aProduct cut(const Convolution& c) {
  return {.units = c.phases(), .unit_rows = c.phase_rows(), .columns = c.cout, .k_steps = tap_steps(c) + side_steps(c)};
}

product::Sm90aModel im2col_model_of(const Convolution& c) {
  return {kKernel, [product = cut(c), n_major = c.n_major](const Tile& tile) {
            return n_major && !takes_n_major(tile) ? product::Sm90aProduct{.columns = 0} : product;
          }};
}

const product::MeasuredCut* measured_cut(const Convolution& c, std::span<const MeasuredSchedule> rows) {
  using Numbers = std::array<std::int64_t, 11>;
  const bool square = c.y.taps == c.x.taps && c.y.stride == c.x.stride && c.y.origin == c.x.origin;
  if (!square || (c.phases() > 1 && !c.phase_weights)) return nullptr;  // no conv2d
  Numbers numbers{c.images, c.y.in, c.x.in, c.cin, c.cout, c.y.taps, c.y.stride, -c.y.origin, 0, c.side, c.side_skip};
  if (c.phase_weights) numbers = {c.images, c.y.in, c.x.in, c.cin, c.cout, 3, 1, 1, 1, 0, 0};
  const auto shape_of = [](const MeasuredSchedule& row) {
    return Numbers{row.n,      row.h,   row.w,        row.cin,  row.cout,     row.kernel,
                   row.stride, row.pad, row.upsample, row.side, row.side_skip};
  };
  const MeasuredSchedule* row = find_measured(rows, numbers, shape_of);
  if (row == nullptr && c.side > 0) {
    numbers[9] = numbers[10] = 0;
    row = find_measured(rows, numbers, shape_of);
  }
  return row == nullptr ? nullptr : &row->cut;
}

Schedule choose(const Convolution& c, int sm_count, const MeasuredSchedules& measured) {
  return im2col_model_of(c).choose(sm_count,
                                   sm_count == measured.sm_count ? measured_cut(c, measured.im2col) : nullptr);
}

std::vector<Choice> schedule_choices(const Convolution& c, DType, const DeviceInfo& device) {
  if (gathers_rows(c)) return {};
  return im2col_model_of(c).choices(device.sm_count);
}

// The plan of the same product; its tiles, cut so that none straddles two phases.
Sm80Plan choose_sm80_plan(const Convolution& c, const DeviceInfo& device) {
  // A 1x1's gradient with stride 2 has phases without a tap.
  const product::Extents extents{c.rows(), c.cout, std::max<std::int64_t>(c.k(), 1)};
  const product::Sm80Plan chosen = c.cin % 8 == 0
                                       ? product::choose_sm80_plan(extents, device)
                                       : product::make_sm80_plan(extents, product::Sm80Tile::medium_128x64, 1);
  const product::Sm80Shape shape = shape_of(chosen.tile);
  Sm80Plan plan;
  plan.tile = chosen.tile;
  plan.splits = chosen.splits;
  plan.phases = c.phases();
  plan.phase_tiles_m = (c.phase_rows() + shape.block_m - 1) / shape.block_m;
  plan.tiles_n = chosen.tiles_n;
  return plan;
}

std::size_t tensor_core_sm80_workspace_bytes(const Convolution& c, DType, const DeviceInfo& device) {
  const Sm80Plan plan = choose_sm80_plan(c, device);
  if (plan.splits == 1) return 0;
  const product::Sm80Shape shape = shape_of(plan.tile);
  return static_cast<std::size_t>(plan.blocks() * shape.block_m * shape.block_n) * sizeof(float);
}

Support can_run_tensor_core_sm80(const Convolution& c, DType dtype) {
  constexpr int kMaxTaps = 32;  // one bit each
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (c.y.taps * c.x.taps > kMaxTaps) return unsupported("needs a kernel of at most 5x5 (32 taps)");
  if (c.rows() + 256 > kMaxBlocks) return unsupported("needs fewer than 2^31 output pixels");
  if (tile_count(c, 16, 32) > kMaxBlocks / 8) return unsupported("needs at most 2^28 tiles of 16x32");
  return takes_plain_input(c);
}

}  // namespace noisefloor::convolution
