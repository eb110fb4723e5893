#include "kernels/convolution/halo.h"

#include <algorithm>

#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::convolution {
namespace {

// A fit to timed schedules of 370 convolutions of diffusion networks on an H100 (docs/experiments/gemm, "the model,
// fitted to what steps cost now").
constexpr product::Sm90aKernel kKernel{.tiles = kHaloTiles,
                                       .costs = {.fma_per_cycle = 2048,
                                                 .bytes_per_cycle = 74,
                                                 .load_latency = 3730,
                                                 .least_step = 235,
                                                 .byte = 0.00058,
                                                 .fill = 330,
                                                 .store = 0.065,
                                                 .exchange = 0.43,
                                                 .meet = 1100,
                                                 .meet_per_block = 5.4,
                                                 .multicast = 470},
                                       .can_split = can_split_halo};

// A step is a tap of 64 channels; its part of the halo is what one load gives all taps. One of a second source loads
// the rows of its tile.
product::Sm90aProduct cut_for(const Convolution& c, const Tile& tile) {
  const Patches patches = arrange(c, tile.consumers);
  const auto rows = static_cast<double>(tile.block_m());
  const int loads = steps_of(c.cin), beside = side_steps(c), steps = tap_steps(c) + beside;
  return {.units = c.phases(),
          .unit_rows = grid_of(c, patches).tiles() * tile.block_m(),
          .columns = c.cout,
          .k_steps = steps,
          .a_share = (loads * halo_of(c, patches).lines() + beside * rows) / (steps * rows)};
}

}  // namespace

Patches arrange(const Convolution& c, int count) {
  if (count == 1) return {};
  Patches best;
  std::int64_t fewest = 0;
  for (const Patches& patches : kTwoPatches) {
    const std::int64_t tiles = grid_of(c, patches).tiles();
    const bool smaller = halo_of(c, patches).lines() < halo_of(c, best).lines();
    if (fewest == 0 || tiles < fewest || (tiles == fewest && smaller)) {
      fewest = tiles;
      best = patches;
    }
  }
  return best;
}

HaloTiling tiling_of(const Convolution& c, const Schedule& schedule) {
  const Patches patches = arrange(c, kHaloTiles[static_cast<std::size_t>(schedule.tile)].consumers);
  const PatchGrid grid = grid_of(c, patches);
  return {patches,
          halo_of(c, patches),
          static_cast<int>(grid.x),
          static_cast<int>(grid.y),
          static_cast<int>(schedule.unit_clusters),
          schedule.multicast,
          c.y.taps * c.x.taps,
          c.x.taps};
}

// With as many stages as the taps of `c` leave room for, in place of those of 3x3: of what make_schedule() gives, once.
static Schedule with_rings(const Convolution& c, Schedule schedule) {
  const Tile& tile = kHaloTiles[static_cast<std::size_t>(schedule.tile)];
  const bool alone = schedule.alone && tile.deep_stages > tile.stages;
  const int halo = padded_halo(halo_of(c, arrange(c, tile.consumers)).lines());
  const int budget = ring_budget(tile.consumers, tile.block_n, alone ? 1 : tile.blocks_per_sm, schedule.splits > 1);
  schedule.stages = rings_for(budget, tile.block_n, halo, c.y.taps * c.x.taps, c.side > 0).weights;
  return schedule;
}

Schedule make_halo_schedule(const Convolution& c, int tile, int multicast, int splits, int sm_count) {
  const product::Sm90aProduct product = cut_for(c, kHaloTiles[static_cast<std::size_t>(tile)]);
  return with_rings(c, product::make_schedule(kKernel, product, tile, multicast, splits, sm_count));
}

product::Sm90aModel halo_model_of(const Convolution& c) {
  product::Sm90aKernel kernel = kKernel;
  if (!c.n_major) kernel.tiles = kernel.tiles.first(kForwardHaloTiles);
  // The fit had not the 64 x 192 tile of gradients, whose steps an H200 takes in 470 cycles with 7 stages in flight. It
  // lowers the latency of the others, too: of 40 problems five change, of which three were timed.
  if (c.n_major) kernel.costs.load_latency = 470 * 7;
  // A gradient's phase of a stride is stored by TMA alone, which knows where its pixels lie.
  if (c.n_major && c.y.tap_step < -1) kernel.can_split = [](const Tile&, int splits) { return splits == 1; };
  return {kernel, [c](const Tile& tile) {
            const bool fits = c.n_major ? takes_n_major(tile) : stores_by_tma(c) || tile.block_n == kNarrowHalo;
            if (!fits) return product::Sm90aProduct{.columns = 0};
            return cut_for(c, tile);
          }};
}

Schedule choose_halo(const Convolution& c, int sm_count, const MeasuredSchedules& measured) {
  const auto* cut = sm_count == measured.sm_count ? measured_cut(c, measured.halo) : nullptr;
  return with_rings(c, halo_model_of(c).choose(sm_count, cut));
}

product::DsmemBuffer halo_dsmem(const Convolution& c, const Schedule& schedule) {
  const int taps = c.y.taps * c.x.taps, beside = side_steps(c), steps = tap_steps(c) + beside;
  const Tile& tile = kHaloTiles[static_cast<std::size_t>(schedule.tile)];
  const product::DsmemBuffer dsmem = product::dsmem_of(schedule, steps, halo_dsmem_stages(tile, schedule.splits));
  if (beside == 0) return dsmem;
  // The last steps whose halos fit the ring at once: those of the second source, then `taps` a stage.
  const int halos = rings_with(schedule.stages, taps, /*beside=*/true).halos, of_side = std::min(beside, halos);
  return product::opened_behind(dsmem, schedule.longest_split(steps) - of_side - (halos - of_side) * taps);
}

std::vector<Choice> halo_choices(const Convolution& c, DType, const DeviceInfo& device) {
  return halo_model_of(c).choices(device.sm_count);
}

std::optional<Schedule> parse_halo_schedule(const Convolution& c, std::string_view choice, int sm_count) {
  const auto schedule = halo_model_of(c).parse(choice, sm_count);
  return schedule ? std::optional(with_rings(c, *schedule)) : std::nullopt;
}

Support can_run_ptx_sm90a_halo(const Convolution& c, DType dtype) {
  Convolution plain = c;
  plain.norm = Norm::none;
  plain.stats = plain.residual_upsample = false;
  const Support support = can_run_ptx_sm90a(plain, dtype);
  if (!support) return support;
  if (gathers_rows(c)) return unsupported("needs cin to be a multiple of 8: TMA moves 16 bytes");
  const auto taps = [](const Axis& axis) { return axis.taps <= kHaloTaps; };
  if (!taps(c.y) || !taps(c.x)) return unsupported("needs a kernel of at most 3 taps along each axis");
  if (c.norm != Norm::none && c.y.taps * c.x.taps == 1) return unsupported("norms the input of several taps only");
  if (c.norm != Norm::none && c.side > 0) return unsupported("norms no input beside a second source");
  if (c.y.stride != 1 || c.x.stride != 1 || c.y.repeat != 1 || c.x.repeat != 1)
    return unsupported("needs stride 1: a halo is shared by neighbours");
  if (!stores_by_tma(c) && c.residual)
    return unsupported("needs cout to be a multiple of 8 beside a residual: TMA moves 16 bytes");
  if (!stores_by_tma(c) && c.stats) return unsupported("needs cout to be a multiple of 8 for statistics");
  // Tiles of one patch and 32 channels: a patch may hold few pixels.
  if (grid_of(c, kOnePatch).tiles() * c.phases() * ((c.cout + 31) / 32) > kMaxBlocks / 8)
    return unsupported("needs at most 2^28 tiles of 8x8 pixels and 32 channels");
  if (c.stats && !c.patches) return unsupported("has statistics of patches, not of pixels that follow each other");
  return supported();
}

}  // namespace noisefloor::convolution
