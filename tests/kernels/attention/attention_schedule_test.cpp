// How ptx_sm90a of attention cuts a problem: which tiles there are, which one a problem takes, and the tuner's texts.
#include "kernels/attention/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace noisefloor::attention {
namespace {

constexpr DeviceInfo kDevice{.compute_capability = 90, .sm_count = 132};

Problem heads_of(std::int64_t dim) {
  return {{.batch = 2, .heads = 8, .seq_q = 1024, .seq_kv = 1024, .dim = dim}};
}

TEST(attention_schedule, TilesFitAnSm) {
  for (const Tile& tile : kTiles) {
    const int dealt =
        tile.consumers * tile.consumer_registers() + (tile.has_producer() ? tile.producer_registers() : 0);
    const int at_launch = 65536 / (tile.threads() * tile.blocks) / 8 * 8;
    EXPECT_LE(128 * dealt, at_launch * tile.threads()) << "setmaxnreg would wait for ever";
    EXPECT_LE(tile.consumer_registers(), 255);
    EXPECT_LE(tile.rows(), 256) << "a TMA box";
    // A consumer that loads fetches its values three tiles behind their last use.
    EXPECT_TRUE(tile.has_producer() || tile.stages() > 3);
    EXPECT_LE(2 * tile.consumers, 15) << "named barriers";
  }
}

std::tuple<int, int, int, bool, int> parts(const Schedule& schedule) {
  const Tile& tile = kTiles[static_cast<std::size_t>(schedule.tile)];
  return {tile.rows(), tile.keys, tile.blocks, schedule.turns, schedule.splits};
}

TEST(attention_schedule, MeasuredRowsAreTakenOnTheirGpuAlone) {
  const Problem p = heads_of(64);
  const MeasuredSchedule rows[] = {{2, 8, 1024, 77, 64, 128, 64, 2, 0, 1}, {2, 8, 1024, 1024, 64, 192, 128, 1, 0, 1}};
  EXPECT_EQ(parts(choose(p, 132, {132, rows})), std::tuple(192, 128, 1, false, 1));
  EXPECT_EQ(parts(choose(p, 114, {132, rows})), parts(choose(p, 114, {})));
}

TEST(attention_schedule, RowsOfTheTableCanAllBeRun) {
  const MeasuredSchedules table = measured_schedules();
  for (const MeasuredSchedule& row : table.schedules) {
    const Problem p{{.batch = row.batch, .heads = row.heads, .seq_q = row.seq_q, .seq_kv = row.seq_kv, .dim = row.dim}};
    EXPECT_EQ(parts(choose(p, table.sm_count)), std::tuple(row.rows, row.keys, row.blocks, row.turns != 0, row.splits));
  }
}

// Without the table: the fastest on an H200 of what takes tiles whole, or near it.
TEST(attention_schedule, EstimatesTakeWhatWasFastest) {
  const auto taken = [](std::int64_t batch, std::int64_t heads, std::int64_t seq, std::int64_t dim) {
    return parts(choose({{.batch = batch, .heads = heads, .seq_q = seq, .seq_kv = seq, .dim = dim}}, 132, {}));
  };
  EXPECT_EQ(taken(1, 6, 1024, 64), std::tuple(128, 128, 1, true, 2));
  EXPECT_EQ(taken(1, 9, 256, 64), std::tuple(128, 128, 1, true, 1));
  EXPECT_EQ(taken(32, 6, 1024, 64), std::tuple(128, 80, 2, false, 1));
  EXPECT_EQ(taken(32, 9, 256, 64), std::tuple(128, 64, 2, false, 1));
  EXPECT_EQ(taken(2, 8, 4096, 40), std::tuple(256, 80, 1, false, 1));
  EXPECT_EQ(taken(2, 8, 1024, 80), std::tuple(128, 128, 1, true, 1));
  EXPECT_EQ(taken(2, 8, 256, 160), std::tuple(128, 80, 1, false, 1));
  EXPECT_EQ(taken(2, 10, 4096, 64), std::tuple(192, 128, 1, true, 1));
  EXPECT_EQ(taken(2, 20, 1024, 64), std::tuple(192, 128, 1, true, 1));
  EXPECT_EQ(taken(28, 5, 9216, 64), std::tuple(192, 128, 1, true, 1));
  EXPECT_EQ(taken(28, 10, 2304, 64), std::tuple(192, 128, 1, true, 1));
  EXPECT_EQ(taken(28, 20, 576, 64), std::tuple(128, 64, 2, false, 1));
  EXPECT_EQ(taken(28, 20, 144, 64), std::tuple(128, 80, 2, false, 1));
}

// As the kernel reads its cluster: every tile once, whole, or by all blocks of one cluster.
TEST(attention_schedule, GridsHaveEveryTileOnce) {
  for (const std::int64_t batch : {1, 2, 3, 9, 28})
    for (const int sms : {114, 131, 132}) {
      Problem p = heads_of(64);
      p.batch = batch, p.seq_q = p.seq_kv = 1500;
      for (const Choice& choice : schedule_choices(p, DType::bf16, {.compute_capability = 90, .sm_count = sms})) {
        const Schedule s = *parse_schedule(p, choice.text, sms);
        const int rows = kTiles[static_cast<std::size_t>(s.tile)].rows();
        const std::int64_t tiles = p.batch * p.heads * ((p.seq_q + rows - 1) / rows);
        const Grid grid = grid_of(p, s, sms);
        ASSERT_EQ(grid.blocks % s.splits, 0);
        std::vector<int> shares(static_cast<std::size_t>(tiles));
        for (std::int64_t block = 0; block < grid.blocks; ++block) {
          const std::int64_t cluster = block / s.splits;
          const bool shared = s.splits > 1 && cluster >= grid.whole;
          const std::int64_t tile = shared ? cluster + grid.whole * (s.splits - 1) : block;
          ASSERT_LT(tile, tiles);
          shares[static_cast<std::size_t>(tile)] += shared ? 1 : s.splits;
        }
        EXPECT_EQ(shares, std::vector<int>(static_cast<std::size_t>(tiles), s.splits)) << choice.text;
      }
    }
  const Problem sdxl{{.batch = 2, .heads = 10, .seq_q = 4096, .seq_kv = 4096, .dim = 64}};
  const auto tail = parse_schedule(sdxl, "rows=192,keys=128,blocks=1,turns=1,splits=2", 132);
  ASSERT_TRUE(tail);
  EXPECT_EQ(grid_of(sdxl, *tail, 132).whole, 198);   // 3 waves of 132 tiles
  EXPECT_EQ(grid_of(sdxl, *tail, 132).blocks, 484);  // and 44 tiles by pairs
}

// Of a problem's choices, which the catalogue's test holds to be distinct.
TEST(attention_schedule, ChoicesAreFoundByTheirText) {
  for (const std::int64_t dim : {8, 40, 48, 64, 72, 96, 160, 256})
    for (const Choice& choice : schedule_choices(heads_of(dim), DType::bf16, kDevice)) {
      const auto schedule = parse_schedule(heads_of(dim), choice.text, 132);
      ASSERT_TRUE(schedule) << choice.text;
      EXPECT_GE(kTiles[static_cast<std::size_t>(schedule->tile)].dim, dim);
    }
  EXPECT_FALSE(parse_schedule(heads_of(64), "rows=100", 132));
}

// Of ptx_sm90a_wide: among how many blocks keys are shared, and what that takes.
Problem head_of_512(std::int64_t batch, std::int64_t queries, std::int64_t keys) {
  return {{.batch = batch, .heads = 1, .seq_q = queries, .seq_kv = keys, .dim = 512}};
}

TEST(attention_wide_schedule, BlocksAreWholePairs) {
  EXPECT_EQ(wide_blocks(head_of_512(1, 1, 1)), 2);
  EXPECT_EQ(wide_blocks(head_of_512(1, 128, 1)), 2);
  EXPECT_EQ(wide_blocks(head_of_512(1, 129, 1)), 4);
  EXPECT_EQ(wide_blocks(head_of_512(1, 4096, 4096)), 64);
  EXPECT_EQ(wide_blocks(head_of_512(14, 9216, 9216)), 2016);
}

TEST(attention_wide_schedule, KeysAreSplitWhereSmsWouldBeIdle) {
  EXPECT_EQ(wide_splits(head_of_512(1, 4096, 4096), 132).front(), 2);    // 64 blocks become 128
  EXPECT_EQ(wide_splits(head_of_512(1, 9216, 9216), 132).front(), 2);    // 2 waves become 3 of half the keys
  EXPECT_EQ(wide_splits(head_of_512(1, 16384, 16384), 132).front(), 1);  // 256 blocks, 1.94 waves
  EXPECT_EQ(wide_splits(head_of_512(14, 9216, 9216), 132).front(), 1);
  EXPECT_EQ(wide_splits(head_of_512(1, 4096, 128), 132).front(), 1);
}

TEST(attention_wide_schedule, EverySplitHasATileOfKeys) {
  for (const std::int64_t keys : {1, 128, 129, 256, 257, 384, 385, 512, 4096})
    for (const std::int64_t queries : {1, 70, 1000, 4096, 20000}) {
      const Problem p = head_of_512(1, queries, keys);
      const std::vector<int> splits = wide_splits(p, 132);
      EXPECT_NE(std::find(splits.begin(), splits.end(), 1), splits.end());
      for (const int one : splits) EXPECT_LE(one, (keys + kWideKeys - 1) / kWideKeys);
    }
}

TEST(attention_wide_schedule, TheWorkspaceHoldsSumsAndStatesOfEverySplit) {
  const Problem p{{.batch = 2, .heads = 3, .seq_q = 100, .seq_kv = 300, .dim = 264}};
  EXPECT_EQ(wide_partial_bytes(p, 1), 0u);
  EXPECT_EQ(wide_partial_bytes(p, 3), 3u * 600 * (264 + 2) * 4);
  EXPECT_EQ(wide_workspace_bytes(p, DType::fp16, kDevice), wide_partial_bytes(p, 3));
  EXPECT_EQ(wide_workspace_bytes(head_of_512(1, 300, 128), DType::fp16, kDevice), 0u);
}

TEST(attention_wide_schedule, ChoicesAreFoundByTheirText) {
  for (const std::int64_t keys : {1, 300, 4096}) {
    const Problem p = head_of_512(1, 300, keys);
    for (const Choice& choice : wide_choices(p, DType::bf16, kDevice)) {
      const auto splits = parse_wide_splits(p, choice.text, 132);
      ASSERT_TRUE(splits) << choice.text;
      EXPECT_LE(wide_partial_bytes(p, *splits), wide_workspace_bytes(p, DType::bf16, kDevice));
    }
    EXPECT_FALSE(parse_wide_splits(p, "splits=9", 132));
  }
}

}  // namespace
}  // namespace noisefloor::attention
