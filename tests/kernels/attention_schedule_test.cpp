// How ptx_sm90a of attention cuts a problem: which tiles there are, which one a problem takes, and the tuner's texts.
#include "kernels/attention/schedule.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace noisefloor::attention {
namespace {

constexpr DeviceInfo kDevice{.compute_capability = 90, .sm_count = 132};

Problem heads_of(std::int64_t dim) {
  return {.batch = 2, .heads = 8, .seq_q = 1024, .seq_kv = 1024, .dim = dim};
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

TEST(attention_schedule, ChoicesAreDistinctAndEachIsFoundByItsText) {
  for (const std::int64_t dim : {8, 40, 48, 64, 72, 96, 160, 256}) {
    const Problem p = heads_of(dim);
    std::set<std::string> texts;
    const auto choices = schedule_choices(p, DType::bf16, kDevice);
    for (const Choice& choice : choices) {
      EXPECT_TRUE(texts.insert(choice.text).second) << choice.text;
      EXPECT_EQ(choice.estimated, &choice == &choices.front());
      const auto schedule = parse_schedule(p, choice.text, 132);
      ASSERT_TRUE(schedule) << choice.text;
      EXPECT_GE(kTiles[static_cast<std::size_t>(schedule->tile)].dim, dim);
    }
    EXPECT_FALSE(parse_schedule(p, "rows=100", 132));
  }
}

TEST(attention_schedule, MeasuredRowsAreTakenOnTheirGpuAlone) {
  const Problem p = heads_of(64);
  const MeasuredSchedule rows[] = {{2, 8, 1024, 77, 64, 128, 128, 1, 1, 0, 1, 1, 1},
                                   {2, 8, 1024, 1024, 64, 192, 128, 1, 1, 0, 0, 1, 1}};
  const Schedule measured = choose(p, 132, {132, rows}), elsewhere = choose(p, 114, {132, rows});
  EXPECT_EQ(kTiles[static_cast<std::size_t>(measured.tile)].rows(), 192);
  EXPECT_FALSE(measured.turns);
  EXPECT_EQ(kTiles[static_cast<std::size_t>(elsewhere.tile)].rows(), 128);
  EXPECT_TRUE(elsewhere.turns);
}

TEST(attention_schedule, RowsOfTheTableCanAllBeRun) {
  const MeasuredSchedules table = measured_schedules();
  for (const MeasuredSchedule& row : table.schedules) {
    const Problem p{.batch = row.batch, .heads = row.heads, .seq_q = row.seq_q, .seq_kv = row.seq_kv, .dim = row.dim};
    const Schedule taken = choose(p, table.sm_count);
    const Tile& tile = kTiles[static_cast<std::size_t>(taken.tile)];
    EXPECT_EQ(std::tuple(tile.rows(), tile.keys, tile.blocks, int{tile.overlap}, tile.polynomial, int{taken.turns},
                         int{taken.lazy}, taken.splits),
              std::tuple(row.rows, row.keys, row.blocks, row.overlap, row.polynomial, row.turns, row.lazy, row.splits));
  }
}

}  // namespace
}  // namespace noisefloor::attention
