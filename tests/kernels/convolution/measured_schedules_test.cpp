// The tables of schedules that were timed: which row a problem takes, and that every row is one that its kernel can
// run.
#include <gtest/gtest.h>

#include "kernels/catalogue.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/convolution/halo.h"
#include "kernels/convolution/schedule.h"
#include "kernels/gemm/schedule.h"

namespace noisefloor {
namespace {

constexpr int kDeviceSms = 132;

TEST(measured_schedules, AreTakenOnTheirGpuAlone) {
  const gemm::Problem p{.m = 512, .n = 640, .k = 1280};
  const gemm::MeasuredSchedule rows[] = {{512, 640, 640, 0, 0, 0, {128, 128, 0, 1, 1}},
                                         {512, 640, 1280, 0, 0, 0, {64, 32, 0, 2, 4}},
                                         {512, 640, 1280, 0, 0, 320, {64, 80, 0, 1, 1}},
                                         {512, 640, 1280, 0, 1, 0, {64, 64, 0, 1, 2}}};
  const auto taken = gemm::choose(p, kDeviceSms, {kDeviceSms, rows});
  const auto& tile = gemm::kTiles[static_cast<std::size_t>(taken.tile)];
  EXPECT_EQ(std::tuple(tile.block_m(), tile.block_n, taken.multicast, taken.splits), std::tuple(64, 32, 2, 4));
  const gemm::Problem added{.m = 512, .n = 640, .k = 1280, .residual = true};
  EXPECT_EQ(gemm::choose(added, kDeviceSms, {kDeviceSms, rows}).splits, 2);
  const gemm::Problem parted{.m = 512, .n = 640, .k = 1280, .part_columns = 320};
  EXPECT_EQ(gemm::kTiles[static_cast<std::size_t>(gemm::choose(parted, kDeviceSms, {kDeviceSms, rows}).tile)].block_n,
            80);
  const auto modelled = gemm::choose(p, kDeviceSms, {0, {}});
  EXPECT_NE(std::tuple(taken.tile, taken.splits), std::tuple(modelled.tile, modelled.splits));
  const auto elsewhere = gemm::choose(p, kDeviceSms, {114, rows});
  EXPECT_EQ(std::tuple(elsewhere.tile, elsewhere.splits), std::tuple(modelled.tile, modelled.splits));
}

TEST(measured_schedules, OfAConvolutionAreByItsFields) {
  using namespace convolution;
  const MeasuredSchedule rows[] = {{1, 8, 8, 64, 64, 1, 1, 0, 0, 0, 0, {64, 32, 0, 1, 1}},
                                   {1, 8, 8, 64, 64, 3, 1, 1, 0, 0, 0, {64, 64, 0, 1, 2}},
                                   {1, 8, 8, 64, 64, 3, 1, 1, 0, 128, 64, {64, 64, 0, 1, 5}},
                                   {1, 8, 8, 64, 64, 3, 1, 1, 1, 0, 0, {64, 64, 0, 1, 3}},
                                   {1, 8, 8, 64, 64, 3, 2, 1, 0, 0, 0, {64, 64, 0, 1, 4}}};
  const auto splits = [&](const char* more) {
    const auto problem = find_op("conv2d")->parse(std::string("n=1,h=8,w=8,cin=64,cout=64") + more);
    const auto* cut = measured_cut(conv2d::describe(problem.as<conv2d::Problem>(), conv2d::Form::phased), rows);
    return cut == nullptr ? 0 : cut->splits;
  };
  EXPECT_EQ(splits(",kernel=1"), 1);
  EXPECT_EQ(splits(",residual=1"), 2);
  EXPECT_EQ(splits(",side=128,side_skip=64"), 5);
  EXPECT_EQ(splits(",side=128"), 2);  // as without it
  EXPECT_EQ(splits(",side=128,stride=2"), 4);
  EXPECT_EQ(splits(",upsample=1"), 3);
  EXPECT_EQ(splits(",stride=2"), 4);
  EXPECT_EQ(splits(",pad=2"), 0);
  EXPECT_EQ(splits(",stats=1"), 2);
  const Convolution c = plain(1, 8, 8, 64, 64, 3, 1, 1);
  EXPECT_EQ(choose_halo(c, kDeviceSms, {kDeviceSms, {}, rows}).splits, 2);
  EXPECT_EQ(choose(c, kDeviceSms, {kDeviceSms, rows, {}}).splits, 2);
}

void expect_taken(std::span<const product::Sm90aTile> tiles, const product::Sm90aSchedule& taken,
                  const product::MeasuredCut& cut) {
  const auto& tile = tiles[static_cast<std::size_t>(taken.tile)];
  EXPECT_EQ(
      std::tuple(tile.block_m(), tile.block_n, tile.pingpong ? 1 : 0, taken.multicast, taken.splits, taken.multicast_a),
      std::tuple(cut.rows, cut.columns, cut.pingpong, cut.multicast, cut.splits, cut.multicast_a));
}

TEST(measured_schedules, OfTheTablesCanAllBeRun) {
  const auto gemms = gemm::measured_schedules();
  for (const auto& row : gemms.schedules) {
    gemm::Problem p{
        .m = row.m, .n = row.n, .k = row.k, .residual = row.residual != 0, .part_columns = row.part_columns};
    if (row.gated) p.act = gemm::Activation::geglu;
    expect_taken(gemm::kTiles, gemm::choose(p, gemms.sm_count), row.cut);
  }
  const auto convolutions = convolution::measured_schedules();
  for (const bool halo : {false, true})
    for (const auto& row : halo ? convolutions.halo : convolutions.im2col) {
      auto c = row.upsample ? convolution::upsampled_phases(row.n, row.h, row.w, row.cin, row.cout)
                            : convolution::plain(row.n, row.h, row.w, row.cin, row.cout, static_cast<int>(row.kernel),
                                                 static_cast<int>(row.stride), static_cast<int>(row.pad));
      c.side = static_cast<int>(row.side), c.side_skip = static_cast<int>(row.side_skip);
      const auto taken =
          halo ? convolution::choose_halo(c, convolutions.sm_count) : convolution::choose(c, convolutions.sm_count);
      expect_taken(halo ? std::span<const convolution::Tile>(convolution::kHaloTiles) : convolution::kTiles, taken,
                   row.cut);
    }
}

}  // namespace
}  // namespace noisefloor
