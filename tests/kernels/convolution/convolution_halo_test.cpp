// How ptx_sm90a_halo lays its patches over a convolution, and what its products read: host functions that its kernel
// calls too.
#include "kernels/convolution/halo.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "kernels/conv2d/conv2d.h"

namespace noisefloor::convolution {
namespace {

constexpr int kDeviceSms = 132;

Convolution any_convolution() {
  const auto images = *rc::gen::inRange<std::int64_t>(1, 5);
  const auto h = *rc::gen::inRange<std::int64_t>(1, 40);
  const auto w = *rc::gen::inRange<std::int64_t>(1, 40);
  const std::int64_t cin = 8 * *rc::gen::inRange<std::int64_t>(1, 40);
  const auto cout = *rc::gen::inRange<std::int64_t>(1, 400);
  if (*rc::gen::arbitrary<bool>()) return upsampled_phases(images, h, w, cin, cout);
  const int kernel = *rc::gen::inRange(1, 4);
  const int pad = *rc::gen::inRange(0, 3);
  Convolution c = plain(images, h + kernel, w + kernel, cin, cout, kernel, 1, pad);
  if (*rc::gen::arbitrary<bool>()) return c;
  c.side = 8 * *rc::gen::inRange(1, 30);
  c.side_skip = 8 * *rc::gen::inRange(0, 30);
  return c;
}

Schedule any_schedule(const Convolution& c) {
  const int tile = *rc::gen::inRange(0, static_cast<int>(kHaloTiles.size()));
  return make_halo_schedule(c, tile, *rc::gen::element(1, 2, 4), 1, kDeviceSms);
}

// Calls visit(place, patch, consumer) for every consumer of every tile.
template <class Visit>
void walk(const Convolution& c, const Schedule& schedule, const HaloTiling& tiling, const Visit& visit) {
  const int consumers = kHaloTiles[static_cast<std::size_t>(schedule.tile)].consumers;
  for (int cluster = 0; cluster < schedule.m_clusters; ++cluster)
    for (int rank = 0; rank < schedule.multicast; ++rank) {
      const HaloCoordinate place = tiling.place(cluster, rank);
      for (int consumer = 0; consumer < consumers; ++consumer) visit(place, tiling.patch(c, place, consumer), consumer);
    }
}

RC_GTEST_PROP(convolution_halo, PatchesCoverEveryOutputPixelOnce, ()) {
  const Convolution c = any_convolution();
  const Schedule schedule = any_schedule(c);
  std::vector<int> seen(static_cast<std::size_t>(c.rows()));
  walk(c, schedule, tiling_of(c, schedule), [&](const HaloCoordinate&, const Patch& patch, int) {
    for (int row = 0; row < kPatch * kPatch; ++row)
      if (patch.has(row)) ++seen.at(static_cast<std::size_t>(patch.pixel(c, row)));
  });
  for (const int times : seen) RC_ASSERT(times == 1);
}

// The arrival that opens a block's DSMEM buffer may hold its consumers until the block has loaded everything. A halo is
// handed back when products of the next one run: consumers must be past that step when they open.
TEST(convolution_halo, NoStageComesBackBehindTheOpeningOfADsmemBuffer) {
  constexpr int kMostCin = 8, kMostSide = 24, kMostSplits = 8;  // steps of a tap, of the second source
  int opened_later = 0;
  for (int tile = 0; tile < static_cast<int>(kHaloTiles.size()); ++tile)
    for (int splits = 2; splits <= kMostSplits; ++splits)
      for (const int kernel : {1, 2, 3})
        for (int cin = 1; cin <= kMostCin; ++cin)
          for (int side = 0; side <= kMostSide; ++side) {
            Convolution c = plain(1, 16, 16, cin * kBlockK, 192, kernel, 1, 1);
            c.side = side * kBlockK;
            const int steps = tap_steps(c) + side_steps(c);
            const Tile& shape = kHaloTiles[static_cast<std::size_t>(tile)];
            if (splits > steps || !can_split_halo(shape, splits)) continue;
            const Schedule schedule = make_halo_schedule(c, tile, 1, splits, kDeviceSms);
            const int room = halo_dsmem_stages(shape, splits);
            if (room > schedule.stages) continue;
            const product::DsmemBuffer dsmem = halo_dsmem(c, schedule);
            const int least = product::dsmem_of(schedule, steps, room).opens;
            ASSERT_GE(dsmem.opens, least);
            opened_later += dsmem.opens > least;
            const HaloTiling tiling = tiling_of(c, schedule);
            const int halos = rings_with(schedule.stages, kernel * kernel, c.side > 0).halos;
            for (int split = 0; split < splits; ++split) {
              const int first = steps * split / splits, end = steps * (split + 1) / splits;
              std::vector<int> entered;  // the step, of the block's, that begins to read each of its halos
              for (int step = first; step < end; ++step)
                if (step == first || step >= tap_steps(c) || TapStep(tiling, step).enters_halo())
                  entered.push_back(step - first);
              if (dsmem.opens >= end - first) continue;
              for (std::size_t i = static_cast<std::size_t>(halos); i < entered.size(); ++i)
                ASSERT_LE(entered[i - static_cast<std::size_t>(halos) + 1], dsmem.opens)
                    << "tile " << tile << ", splits " << splits << ", kernel " << kernel << ", cin " << cin << ", side "
                    << side << ", split " << split;
            }
          }
  EXPECT_GT(opened_later, 0);
}

// Line l of a halo is pixel l / width % height, l % width of image l / width / height from the tile's first on: so TMA
// writes its box. Row r of a product under tap (ty, tx) is the line that the descriptor's start and strides give it.
RC_GTEST_PROP(convolution_halo, ARowUnderATapIsItsInputPixel, ()) {
  const Convolution c = any_convolution();
  const Schedule schedule = any_schedule(c);
  const HaloTiling tiling = tiling_of(c, schedule);
  const Halo& halo = tiling.halo;
  const Tile& tile = kHaloTiles[static_cast<std::size_t>(schedule.tile)];
  const Rings rings = rings_with(schedule.stages, c.y.taps * c.x.taps, c.side > 0);
  RC_ASSERT(tiling.side_box().lines() == 64 * tile.consumers && tiling.side_box().lines() <= halo.lines());
  RC_ASSERT(schedule.stages >= 2 && schedule.stages > tile.consumers);
  RC_ASSERT(outside_rings(tile.consumers, tile.block_n, /*split=*/false) +
                rings.bytes(padded_halo(halo.lines()), tile.block_n) <=
            shared_budget(1));
  const int taps = c.y.taps * c.x.taps;
  RC_ASSERT(taps * (rings.halos - 1) >= rings.weights - 1);  // halos are asked for as far ahead as weights
  walk(c, schedule, tiling, [&](const HaloCoordinate& place, const Patch& patch, int consumer) {
    for (int row = 0; row < kPatch * kPatch; ++row) {
      if (!patch.has(row)) continue;
      const int y = patch.y0 + row / kPatch, x = patch.x0 + row % kPatch;
      for (int ty = 0; ty < c.y.taps; ++ty)
        for (int tx = 0; tx < c.x.taps; ++tx) {
          const int line = first_line(tiling.patches, halo, consumer) + ty * halo.width + tx +
                           row / kPatch * halo.width + row % kPatch;
          RC_ASSERT(line < halo.lines());
          const int at_y = place.input_y(c) + line / halo.width % halo.height;
          const int at_x = place.input_x(c) + line % halo.width;
          RC_ASSERT(place.image + line / halo.width / halo.height == patch.at_image);
          const auto inside = [](int at, int extent) { return at < 0 || at >= extent ? -1 : at; };
          RC_ASSERT(inside(at_y, c.y.in) == input_coordinate(c.y, y, patch.phase / c.x.phases, ty));
          RC_ASSERT(inside(at_x, c.x.in) == input_coordinate(c.x, x, patch.phase % c.x.phases, tx));
        }
    }
  });
}

// A second source's pixels are the tile's own: a row is the line of its output pixel.
RC_GTEST_PROP(convolution_halo, ARowBesideTheTapsIsItsOutputPixel, ()) {
  const Convolution c = any_convolution();
  const Schedule schedule = any_schedule(c);
  const HaloTiling tiling = tiling_of(c, schedule);
  const Halo box = tiling.side_box();
  walk(c, schedule, tiling, [&](const HaloCoordinate& place, const Patch& patch, int consumer) {
    for (int row = 0; row < kPatch * kPatch; ++row) {
      if (!patch.has(row)) continue;
      const int line = first_line(tiling.patches, box, consumer) + row / kPatch * box.width + row % kPatch;
      RC_ASSERT(place.image + line / box.width / box.height == patch.at_image);
      RC_ASSERT(place.y0 + line / box.width % box.height == patch.y0 + row / kPatch);
      RC_ASSERT(place.x0 + line % box.width == patch.x0 + row % kPatch);
    }
  });
}

RC_GTEST_PROP(convolution_halo, SplitsTakeEveryTapOfEveryChannelBlockOnce, ()) {
  const Convolution c = any_convolution();
  const int parts = (c.cin + kBlockK - 1) / kBlockK;
  const int k_steps = c.y.taps * c.x.taps * parts;
  const int splits = *rc::gen::inRange(1, std::min(k_steps, 8) + 1);
  std::set<std::vector<int>> taken;
  for (int split = 0; split < splits; ++split) {
    const int first = k_steps * split / splits;
    TapStep step(tiling_of(c, make_halo_schedule(c, 0, 1, 1, kDeviceSms)), first);
    for (int i = first; i < k_steps * (split + 1) / splits; ++i, step.advance(c)) {
      RC_ASSERT(step.ty < c.y.taps && step.tx < c.x.taps && step.part < parts);
      RC_ASSERT(step.enters_halo() == (i % (c.y.taps * c.x.taps) == 0));
      RC_ASSERT(taken.insert({step.part, step.ty, step.tx}).second);
    }
  }
  RC_ASSERT(static_cast<int>(taken.size()) == k_steps);
}

RC_GTEST_PROP(convolution_halo, ChosenScheduleCoversTheProblem, ()) {
  const Convolution c = any_convolution();
  const Schedule s = choose_halo(c, *rc::gen::element(1, 60, kDeviceSms));
  const Tile& tile = kHaloTiles[static_cast<std::size_t>(s.tile)];
  RC_ASSERT(s.n_tiles * tile.block_n >= c.cout && (s.n_tiles - 1) * tile.block_n < c.cout);
  RC_ASSERT(s.cluster() <= product::kLargestCluster && can_split_halo(tile, s.splits));
  RC_ASSERT(s.grid > 0 && s.grid % s.cluster() == 0);
  if (s.splits > 1) RC_ASSERT(s.grid == s.blocks());
}

// That they are distinct and the estimate's is the first the catalogue's test holds.
RC_GTEST_PROP(convolution_halo, ChoicesAreSchedules, ()) {
  const Convolution c = any_convolution();
  const auto choices = halo_choices(c, DType::bf16, {.sm_count = kDeviceSms});
  for (const Choice& choice : choices) {
    const auto schedule = parse_halo_schedule(c, choice.text, kDeviceSms);
    RC_ASSERT(schedule.has_value());
    if (schedule->splits > 1)  // its partial sums have room in the stages
      RC_ASSERT(halo_dsmem_stages(kHaloTiles[static_cast<std::size_t>(schedule->tile)], schedule->splits) <=
                schedule->stages);
  }
  RC_ASSERT(!parse_halo_schedule(c, choices.front().text + ",", kDeviceSms).has_value());
}

TEST(convolution_halo, TheWidestTilesOfNetworksCanBeSplit) {
  for (const Tile& tile : kHaloTiles)
    for (const int splits : {2, 4}) {
      const bool fits = can_split_halo(tile, splits);
      EXPECT_EQ(fits, tile.block_n <= 192) << tile.block_n;
    }
}

TEST(convolution_halo, PatchesOfATileLieAsFewestTilesNeed) {
  EXPECT_EQ(arrange(plain(1, 64, 64, 64, 64, 3, 1, 1), 1), (Patches{1, 1, 1}));
  EXPECT_EQ(arrange(plain(1, 64, 64, 64, 64, 3, 1, 1), 2), (Patches{2, 1, 1}));
  EXPECT_EQ(arrange(plain(1, 64, 8, 64, 64, 3, 1, 1), 2), (Patches{1, 2, 1}));
  EXPECT_EQ(arrange(plain(1, 64, 24, 64, 64, 3, 1, 1), 2), (Patches{1, 2, 1}));
  EXPECT_EQ(arrange(plain(4, 8, 8, 64, 64, 3, 1, 1), 2), (Patches{1, 1, 2}));
}

TEST(convolution_halo, RefusesWhatNeighboursDoNotShare) {
  const auto runs = [](const Convolution& c) { return static_cast<bool>(can_run_ptx_sm90a_halo(c, DType::bf16)); };
  EXPECT_TRUE(runs(plain(1, 8, 8, 64, 64, 3, 1, 1)));
  EXPECT_TRUE(runs(plain(1, 8, 8, 64, 64, 1, 1, 0)));
  EXPECT_TRUE(runs(upsampled_phases(1, 8, 8, 64, 64)));
  EXPECT_FALSE(runs(plain(1, 8, 8, 64, 64, 3, 2, 1)));
  EXPECT_FALSE(runs(plain(1, 8, 8, 64, 64, 5, 1, 2)));
  EXPECT_FALSE(runs(plain(1, 8, 8, 3, 64, 3, 1, 1)));
  Convolution few = plain(1, 8, 8, 64, 6, 3, 1, 1);  // the warps store what TMA cannot
  EXPECT_TRUE(runs(few));
  few.residual = true;
  EXPECT_FALSE(runs(few));
  few.residual = false, few.stats = few.patches = true;
  EXPECT_FALSE(runs(few));
  EXPECT_FALSE(runs(upsampled_direct(1, 8, 8, 64, 64)));
  EXPECT_FALSE(can_run_ptx_sm90a_halo(plain(1, 8, 8, 64, 64, 3, 1, 1), DType::fp32));
}

}  // namespace
}  // namespace noisefloor::convolution
