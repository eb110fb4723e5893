#include "kernels/convolution/sm80_plan.h"

namespace noisefloor::convolution {

// The plan of the same product; its tiles, cut so that none straddles two phases.
Sm80Plan choose_sm80_plan(const Convolution& c, const DeviceInfo& device) {
  const product::Extents extents{c.rows(), c.cout, c.k()};
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
