// How ptx_sm90a_halo cuts a convolution: tiles of one or two patches of 8 x 8 output pixels, which lie in shared memory
// with their neighbours (the halo), so that one load of 64 channels serves all taps. Host code, pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/convolution/schedule.h"
#include "kernels/device/divider.h"
#include "kernels/product/sm90a_pieces.h"

namespace noisefloor::convolution {

// A product's 64 rows are kPatch groups of kPatch that follow each other.
static_assert(kPatch == 8);
inline constexpr int kHaloTaps = 3;  // at most, along an axis
inline constexpr int kMostPhases = 4;
inline constexpr int kMostStages = 16;

// Shared memory of a block: what an SM has, less 1 KiB a block that the system takes; and what of it no ring gets: the
// alignment, per consumer the buffers of stores, a multiplier and an addend per channel, the barriers.
constexpr int shared_budget(int blocks_per_sm) {
  return 228 * 1024 / blocks_per_sm - 1024;
}
inline constexpr int kSplitStaging = 64 * 64 * 2;  // a split tile's pieces have 64 channels
constexpr int staging_bytes(int consumers, int block_n, bool split) {
  const int stores = product::store_bytes(consumers, block_n);
  return split || stores < kSplitStaging ? kSplitStaging : stores;
}
constexpr int outside_rings(int consumers, int block_n, bool split) {
  return 1024 + consumers * (staging_bytes(consumers, block_n, split) + block_n * 8) + (4 * kMostStages + 1) * 8;
}
constexpr int ring_budget(int consumers, int block_n, int blocks_per_sm, bool split) {
  return shared_budget(blocks_per_sm) - outside_rings(consumers, block_n, split);
}

// Stages in flight: of halos, each for as many k-steps as the kernel has taps, and of weights, one a k-step.
struct Rings {
  int halos = 0, weights = 0;
  constexpr int bytes(int halo_bytes, int block_n) const { return halos * halo_bytes + weights * block_n * kRowBytes; }
};
// Halos for all steps that the weights are ahead: of W stages W - 1, and the producer asks for both in turn. A step of
// a second source takes a halo's stage, of which all but one are in flight: where at least six stages of weights stay,
// there are four (64 x 64: 9 and 2 become 6 and 4), where five do, three (128 x 192: 6 and 2 become 5 and 3). At 0.25
// us a step, three in flight cover 0.75 us of a load's way, two half a microsecond: expected, not measured.
constexpr Rings rings_with(int weights, int taps, bool beside = false) {
  const int halos = (weights - 1 + taps - 1) / taps + 1;
  const int least = !beside ? 2 : weights > 5 ? 4 : weights > 4 ? 3 : 2;
  return {halos < least ? least : halos, weights};
}
// As many steps as fit.
constexpr Rings rings_for(int budget, int block_n, int halo_bytes, int taps, bool beside = false) {
  for (int steps = kMostStages; steps > 1; --steps) {
    const Rings rings = rings_with(steps, taps, beside);
    if (rings.bytes(halo_bytes, block_n) <= budget) return rings;
  }
  return {};
}
// Bytes of a halo, in whole swizzle atoms of 1024.
constexpr int padded_halo(int lines) {
  return (lines * kRowBytes + 1023) / 1024 * 1024;
}
// The largest: of two images, each with kHaloTaps along both axes.
constexpr int largest_halo(int consumers) {
  constexpr int kSide = kPatch + kHaloTaps - 1;
  return padded_halo(consumers * kSide * kSide);
}

// A patch is 64 rows of the product, a consumer's part of the tile. Stages are those of the weights under 3x3 taps.
constexpr Tile halo_tile(int consumers, int block_n, int blocks_per_sm) {
  const auto stages = [&](int blocks) {
    const int budget = ring_budget(consumers, block_n, blocks, /*split=*/false);
    return rings_for(budget, block_n, largest_halo(consumers), kHaloTaps * kHaloTaps).weights;
  };
  return {consumers, block_n, blocks_per_sm, stages(blocks_per_sm), stages(1)};
}
// The last is for gradients alone, which take none of 96 columns.
inline constexpr std::array<Tile, 10> kHaloTiles = {
    {halo_tile(2, 256, 1), halo_tile(2, 192, 1), halo_tile(2, 160, 1), halo_tile(2, 128, 1), halo_tile(2, 96, 1),
     halo_tile(1, 128, 2), halo_tile(1, 96, 2), halo_tile(1, 64, 2), halo_tile(1, 32, 2), halo_tile(1, 192, 1)}};
inline constexpr std::size_t kForwardHaloTiles = kHaloTiles.size() - 1;

// Outputs of other widths, such as a network's last layer, leave by stores of the warps, from the narrowest tile alone.
inline constexpr int kNarrowHalo = 32;

// The patches of a tile: side by side, one below the other, or in neighbouring images.
struct Patches {
  int x = 1, y = 1, images = 1;
  friend bool operator==(const Patches&, const Patches&) = default;
};

struct Halo {
  int width, height, images;  // pixels, of each image
  constexpr int lines() const { return width * height * images; }
};
constexpr Halo halo_of(int taps_y, int taps_x, const Patches& patches) {
  return {patches.x * kPatch + taps_x - 1, patches.y * kPatch + taps_y - 1, patches.images};
}
constexpr Halo halo_of(const Convolution& c, const Patches& patches) {
  return halo_of(c.y.taps, c.x.taps, patches);
}
inline constexpr Patches kOnePatch{1, 1, 1}, kTwoPatches[] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
// The first line of a consumer's patch in the halo under the first tap.
constexpr int first_line(const Patches& patches, const Halo& halo, int consumer) {
  if (patches.x == 2) return consumer * kPatch;
  return consumer * (patches.y == 2 ? kPatch : halo.height) * halo.width;
}
// Tiles of one phase along each of its directions.
struct PatchGrid {
  std::int64_t x, y, images;
  constexpr std::int64_t tiles() const { return x * y * images; }
};
constexpr PatchGrid grid_of(const Convolution& c, const Patches& patches) {
  const auto parts = [](int extent, int part) { return (std::int64_t{extent} + part - 1) / part; };
  return {parts(c.x.out, patches.x * kPatch), parts(c.y.out, patches.y * kPatch), parts(c.images, patches.images)};
}

// The arrangement of `count` (1 or 2) patches that covers the output by the fewest tiles, of those the one with the
// smallest halo.
Patches arrange(const Convolution& c, int count);

// A consumer's 64 rows: 8 x 8 pixels of one image of one phase, of which `tall` x `wide` exist.
struct Patch {
  int phase, at_image, y0, x0;
  int tall, wide;

  constexpr bool has(int row) const { return row / kPatch < tall && row % kPatch < wide; }
  constexpr int pixel(const Convolution& c, int row) const {  // of the output
    const int y = (y0 + row / kPatch) * c.y.phases + c.phase_y(phase);
    const int x = (x0 + row % kPatch) * c.x.phases + c.phase_x(phase);
    return (at_image * c.y.out * c.y.phases + y) * c.x.out * c.x.phases + x;
  }
  constexpr int residual_pixel(const Convolution& c, int row) const {
    if (!c.residual_upsample) return pixel(c, row);
    return (at_image * c.y.out + y0 + row / kPatch) / 2 * (c.x.out / 2) + (x0 + row % kPatch) / 2;
  }
  constexpr int image(const Convolution&, int) const { return at_image; }
};

// A tile's first pixel; its image may lie past the last one.
struct HaloCoordinate {
  int phase, image, y0, x0;

  // Where its halo begins in the input.
  constexpr int input_y(const Convolution& c) const { return y0 + c.y.origin + c.phase_y(phase) * c.y.phase_shift; }
  constexpr int input_x(const Convolution& c) const { return x0 + c.x.origin + c.phase_x(phase) * c.x.phase_shift; }
};

// How tiles lie over the output.
struct HaloTiling {
  Patches patches;
  Halo halo;
  Divider tiles_x, tiles_y;  // of one phase of an image, or of `patches.images`
  Divider unit_clusters;     // of a phase
  int multicast;
  Divider taps, taps_x;  // of a phase

  // Of 64 channels at a second source's pixels, which are the tile's own: less than a halo by 0.29 (two patches side by
  // side) to 0.36 (one), so that a step loads 16 KB of them in place of 23, or 8 in place of 13.
  constexpr Halo side_box() const { return halo_of(1, 1, patches); }
  constexpr HaloCoordinate place(int m_cluster, int m_rank) const {
    const int phase = m_cluster / unit_clusters;
    const int within = (m_cluster - phase * unit_clusters) * multicast + m_rank;
    const int line = within / tiles_x, image = line / tiles_y;
    return {phase, image * patches.images, (line - image * tiles_y) * patches.y * kPatch,
            (within - line * tiles_x) * patches.x * kPatch};
  }
  constexpr Patch patch(const Convolution& c, const HaloCoordinate& at, int consumer) const {
    Patch patch{at.phase, at.image, at.y0, at.x0, 0, 0};
    if (patches.x == 2) patch.x0 += consumer * kPatch;
    if (patches.y == 2) patch.y0 += consumer * kPatch;
    if (patches.images == 2) patch.at_image += consumer;
    const int tall = c.y.out - patch.y0, wide = c.x.out - patch.x0;
    if (patch.at_image < c.images && tall > 0 && wide > 0) {
      patch.tall = tall < kPatch ? tall : kPatch;
      patch.wide = wide < kPatch ? wide : kPatch;
    }
    return patch;
  }
};
HaloTiling tiling_of(const Convolution& c, const Schedule& schedule);

// A k-step: a tap (ty, tx) of 64 input channels. Taps change fastest, so that a halo serves them one after the other.
struct TapStep {
  int ty, tx, part;

  constexpr TapStep(const HaloTiling& t, int first)
      : ty(first % t.taps / t.taps_x), tx(first % t.taps % t.taps_x), part(first / t.taps) {}
  constexpr bool enters_halo() const { return ty == 0 && tx == 0; }
  constexpr void advance(const Convolution& c) {
    if (++tx < c.x.taps) return;
    tx = 0;
    if (++ty < c.y.taps) return;
    ty = 0;
    ++part;
  }
};

// The stages of weights that a split tile's DSMEM buffer takes (product::DsmemBuffer).
constexpr int halo_dsmem_stages(const Tile& tile, int splits) {
  return product::stages_for(dsmem_bytes(tile, splits), tile.block_n * kRowBytes);
}
// Where a split tile's partial sums arrive, in stages of the weights. Steps of a second source take a halo's stage
// each, so it may open later than the weights would let it.
product::DsmemBuffer halo_dsmem(const Convolution& c, const Schedule& schedule);
// The fewest stages of weights that a split tile has: of all taps, with a second source or without.
constexpr int least_split_stages(const Tile& tile) {
  const int budget = ring_budget(tile.consumers, tile.block_n, tile.blocks_per_sm, /*split=*/true);
  int least = kMostStages;
  for (const bool beside : {false, true})
    for (int y = 1; y <= kHaloTaps; ++y)
      for (int x = 1; x <= kHaloTaps; ++x) {
        const int halo = padded_halo(tile.consumers * (kPatch + y - 1) * (kPatch + x - 1));  // of an image each
        const int stages = rings_for(budget, tile.block_n, halo, y * x, beside).weights;
        if (stages < least) least = stages;
      }
  return least;
}
// As can_split.
constexpr bool can_split_halo(const Tile& tile, int splits) {
  return splits == 1 || (tile.block_n <= 192 && splits <= tile.block_n / 8 &&
                         halo_dsmem_stages(tile, splits) <= least_split_stages(tile));
}

Schedule make_halo_schedule(const Convolution& c, int tile, int multicast, int splits, int sm_count);
product::Sm90aModel halo_model_of(const Convolution& c);
Schedule choose_halo(const Convolution& c, int sm_count, const MeasuredSchedules& measured = measured_schedules());
std::optional<Schedule> parse_halo_schedule(const Convolution& c, std::string_view choice, int sm_count);

}  // namespace noisefloor::convolution
