#include "kernels/gemm/schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "kernels/product/sm90a_pieces.h"
#include "tests/support/test_problems.h"

namespace noisefloor::gemm {
namespace {

using product::buffers_in;
using product::kMostBuffers;
using product::ResidualPieces;

constexpr int kSms = 132;
constexpr MeasuredSchedules kNothingMeasured{0, {}};

Problem problem(std::int64_t m, std::int64_t n, std::int64_t k, Activation act = Activation::none) {
  Problem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.act = act;
  return p;
}

Schedule make_schedule(const Problem& p, int tile, int splits) {
  const product::Sm90aModel model = model_of(p);
  const product::Sm90aProduct product = model.product_for(kTiles[static_cast<std::size_t>(tile)]);
  return product::make_schedule(model.kernel, product, tile, /*multicast=*/1, splits, kSms);
}

double modelled_cycles(const Problem& p, const Schedule& schedule) {
  const product::Sm90aModel model = model_of(p);
  const product::Sm90aProduct product = model.product_for(kTiles[static_cast<std::size_t>(schedule.tile)]);
  return product::modelled_cycles(model.kernel, product, schedule, kSms);
}

const Tile& tile_of(const Schedule& schedule) {
  return kTiles[static_cast<std::size_t>(schedule.tile)];
}

std::vector<Problem> test_problems() {
  std::vector<Problem> problems;
  for (const ProblemEntry& entry : load_problems(test_problem_folder()))
    if (entry.op->name == definition.name) problems.push_back(entry.problem.as<Problem>());
  return problems;
}

// All that there are of a problem.
std::vector<Schedule> schedules_of(const Problem& p) {
  std::vector<Schedule> schedules;
  for (const Choice& choice : schedule_choices(p, DType::bf16, {.sm_count = kSms}))
    schedules.push_back(model_of(p).parse(choice.text, kSms).value());
  return schedules;
}

// What the kernel relies on, whatever the problem and the device.
RC_GTEST_PROP(gemm_schedule, ChosenScheduleIsLaunchable, ()) {
  const Problem p =
      problem(*rc::gen::inRange<std::int64_t>(1, 40000), 8 * *rc::gen::inRange<std::int64_t>(1, 3000),
              8 * *rc::gen::inRange<std::int64_t>(1, 3000), *rc::gen::element(Activation::none, Activation::geglu));
  const int sms = *rc::gen::inRange(1, 200);
  const Schedule s = choose(p, sms);
  const Tile& tile = tile_of(s);

  // The tiles cover D, and a block row fewer would not.
  const std::int64_t rows = std::int64_t{tile.block_m()} * s.multicast;
  RC_ASSERT(s.m_clusters * rows >= p.m);
  RC_ASSERT((s.m_clusters - 1) * rows < p.m);
  RC_ASSERT(s.n_tiles * tile.block_n >= p.b_rows());
  RC_ASSERT((s.n_tiles - 1) * tile.block_n < p.b_rows());
  // A cluster of at most 8 blocks is portable; every split has a part of k.
  RC_ASSERT(s.cluster() >= 1 && s.cluster() <= 8);
  RC_ASSERT(s.n_clusters() * s.multicast_a == s.n_tiles);
  RC_ASSERT(s.splits * kBlockK < p.k + kBlockK);
  RC_ASSERT(s.splits == 1 || can_split(tile));
  // Whole clusters; split blocks have one tile each, the others may walk.
  RC_ASSERT(s.grid >= s.cluster() && s.grid % s.cluster() == 0);
  RC_ASSERT(s.grid <= s.blocks());
  if (s.splits > 1) RC_ASSERT(s.grid == s.blocks());
  RC_ASSERT(s.stages >= tile.stages && s.stages <= tile.deep_stages);
  if (s.stages > tile.stages) RC_ASSERT(s.alone);
  if (s.alone) RC_ASSERT(s.grid <= std::max(sms, s.cluster()));
}

// Blocks that share operands: each has a tile, and brings whole swizzle atoms of 8 rows.
RC_GTEST_PROP(gemm_schedule, EveryBlockThatSharesHasATile, ()) {
  const Problem p =
      problem(*rc::gen::inRange<std::int64_t>(1, 3000), 8 * *rc::gen::inRange<std::int64_t>(1, 300),
              8 * *rc::gen::inRange<std::int64_t>(1, 300), *rc::gen::element(Activation::none, Activation::geglu));
  for (const Schedule& s : schedules_of(p)) {
    const int columns = tile_of(s).block_n;
    RC_ASSERT(s.cluster() <= 8 && s.blocks() % s.cluster() == 0 && s.grid % s.cluster() == 0);
    RC_ASSERT(s.n_clusters() * s.multicast_a == s.n_tiles);
    if (s.multicast > 1) RC_ASSERT(product::b_box_rows(columns, s.multicast) * s.multicast == columns);
    if (!s.shares_widely()) continue;
    RC_ASSERT(s.multicast <= 2 || columns / s.multicast % 8 == 0);
    RC_ASSERT(s.multicast <= 2 || (s.m_clusters * s.multicast - 1) * tile_of(s).block_m() < p.m);  // the last has rows
  }
}

// 256 x 512 by tiles of 64 x 32: neighbours in m share B, those in n share A.
TEST(gemm_schedule, OperandsAreSharedBothWays) {
  const Problem p = problem(256, 512, 960);
  for (const char* shared : {"multicast=2,splits=1", "multicast=4,splits=1", "multicast=1,splits=1,multicast_a=2",
                             "multicast=2,splits=1,multicast_a=2", "multicast=1,splits=4,multicast_a=2",
                             "multicast=2,splits=1,multicast_a=4"}) {
    const auto s = model_of(p).parse("rows=64,columns=32,pingpong=0," + std::string(shared), kSms);
    ASSERT_TRUE(s) << shared;
    EXPECT_EQ(s->blocks(), 4 * 16 * s->splits) << shared;
  }
  EXPECT_FALSE(model_of(p).parse("rows=64,columns=80,pingpong=0,multicast=1,splits=1,multicast_a=2", kSms))
      << "7 tiles along n are no pairs";
}

// Of GEGLU, whose second half of a tile lies elsewhere unless B is as narrow as half a tile.
TEST(gemm_schedule, BIsLoadedAtOnceWhereItsHalvesLieTogether) {
  using product::b_box_rows;
  EXPECT_EQ(b_box_rows(128, 1), 128);
  EXPECT_EQ(b_box_rows(128, 1, 64), 128);
  EXPECT_EQ(b_box_rows(128, 1, 320), 64);
  EXPECT_EQ(b_box_rows(128, 2, 64), 64);
  EXPECT_EQ(b_box_rows(128, 2, 320), 64);
  EXPECT_EQ(b_box_rows(128, 4, 320), 32);
}

// Of whole tiles that take no turns: whether some share both ways, and some A alone.
std::pair<bool, bool> ways_to_share(const Problem& p) {
  std::pair<bool, bool> found;
  for (const Schedule& s : schedules_of(p))
    if (s.splits == 1 && !tile_of(s).pingpong && s.multicast_a > 1)
      (s.multicast > 1 ? found.first : found.second) = true;
  return found;
}

// A residual's stages in the ring are a block's own: where blocks share both ways, one that lies diagonally could
// release a stage of the steps twice before another has once.
RC_GTEST_PROP(gemm_schedule, NoResidualInTheRingOfBlocksThatShareBothWays, ()) {
  Problem p = problem(*rc::gen::inRange<std::int64_t>(65, 3000), 8 * *rc::gen::inRange<std::int64_t>(1, 300),
                      8 * *rc::gen::inRange<std::int64_t>(1, 300));
  const bool one_way = ways_to_share(p).second;
  p.residual = true;
  RC_ASSERT(ways_to_share(p) == std::pair(false, one_way));
}

RC_GTEST_PROP(gemm_schedule, ATileLiesInOnePart, ()) {
  Problem p = problem(*rc::gen::inRange<std::int64_t>(1, 2000), 1, 8 * *rc::gen::inRange<std::int64_t>(1, 300));
  p.part_columns = 32 * *rc::gen::inRange<std::int64_t>(1, 60);
  p.n = p.part_columns * *rc::gen::inRange<std::int64_t>(1, 40);
  const auto lies_in_one = [&](const Schedule& s) { return p.part_columns % tile_of(s).block_n == 0; };
  const Schedule s = choose(p, kSms);
  RC_ASSERT(lies_in_one(s));
  RC_ASSERT(s.n_tiles * tile_of(s).block_n == p.n);
  RC_ASSERT(std::ranges::all_of(schedules_of(p), lies_in_one));
}

// Gradients: a matrix whose rows are k comes in boxes of 64 columns, or in layout nn of 32, and no tile that takes
// turns stores fp32. What was measured of layout nt says nothing of them.
RC_GTEST_PROP(gemm_schedule, TilesOfGradientsAreWholeBoxes, ()) {
  Problem p = problem(*rc::gen::inRange<std::int64_t>(1, 40000), 8 * *rc::gen::inRange<std::int64_t>(1, 700),
                      8 * *rc::gen::inRange<std::int64_t>(1, 700));
  p.layout = *rc::gen::element(Layout::nn, Layout::tn);
  const auto whole = [&](const Schedule& s) {
    if (p.layout == Layout::nn) return tile_of(s).block_n % 32 == 0;
    return tile_of(s).block_n % 64 == 0 && !tile_of(s).pingpong;
  };
  RC_ASSERT(whole(choose(p, kSms)));
  RC_ASSERT(std::ranges::all_of(schedules_of(p), whole));
}

// 1x1 gradients by input, all of whose schedules were timed on an H200 (docs/experiments/convolution, "the gradients of
// two networks beside cuDNN"): as many columns as the fastest had, and B's narrow boxes come to more than one block.
TEST(gemm_schedule, GradientsByInputTakeTheColumnsThatWereFastest) {
  const struct {
    std::int64_t m, n, k;
    int columns;
  } cases[] = {{131072, 192, 64, 192},
               {131072, 576, 192, 192},
               {32768, 192, 384, 192},
               {2048, 576, 768, 96},
               {4096, 1280, 640, 160}};
  for (const auto& one : cases) {
    Problem p = problem(one.m, one.n, one.k);
    p.layout = Layout::nn;
    const Schedule s = choose(p, kSms);
    EXPECT_EQ(tile_of(s).block_n, one.columns) << one.m << " x " << one.n << ", k = " << one.k;
    EXPECT_TRUE(one.columns % 64 == 0 || s.multicast > 1) << one.m << " x " << one.n << ", k = " << one.k;
  }
}

// Of layout tn: whatever the device, every block has a step of k, and blocks of parts have one tile each.
RC_GTEST_PROP(gemm_schedule, LongSumsFallIntoPartsOfWhichEachHasSteps, ()) {
  Problem p = problem(8 * *rc::gen::inRange<std::int64_t>(1, 300), 8 * *rc::gen::inRange<std::int64_t>(1, 300),
                      *rc::gen::inRange<std::int64_t>(1, 100000));
  p.layout = Layout::tn, p.to = Target::fp32, p.row_sums = *rc::gen::arbitrary<bool>();
  const int sms = *rc::gen::inRange(1, 200), parts = k_parts(p, sms);
  const std::int64_t steps = (p.k + kBlockK - 1) / kBlockK;
  for (const Choice& choice : schedule_choices(p, DType::bf16, {.sm_count = sms}))
    RC_ASSERT(parts * parse_choice(p, choice.text, sms).value().splits <= steps);
  RC_ASSERT(parts == 1 || choose(p, sms).blocks() * parts <= sms);
  RC_ASSERT((parts_bytes(p, parts) == 0) == (parts == 1));
}
TEST(gemm_schedule, LongSumsOfFewOutputsFillTheDevice) {
  for (const auto& [m, n, k] : {std::array{384, 384, 32768}, {1728, 576, 8192}, {768, 256, 16384}}) {
    Problem p = problem(m, n, k);
    p.layout = Layout::tn, p.to = Target::fp32;
    EXPECT_GE(choose(p, kSms).blocks() * k_parts(p, kSms), 2 * kSms / 3) << m << " x " << n;
  }
}

// The one epilogue that takes a residual and a blend, from two or four buffers.
RC_GTEST_PROP(gemm_schedule, BlendsTakeTurns, ()) {
  Problem p = problem(*rc::gen::inRange<std::int64_t>(1, 40000), 8 * *rc::gen::inRange<std::int64_t>(1, 700),
                      8 * *rc::gen::inRange<std::int64_t>(1, 700));
  p.residual = p.blend = true;
  RC_ASSERT(tile_of(choose(p, kSms)).pingpong);
  RC_ASSERT(std::ranges::all_of(schedules_of(p), &Tile::pingpong, tile_of));
}

RC_GTEST_PROP(gemm_schedule, NothingTriedIsModelledFaster, ()) {
  Problem p = problem(*rc::gen::inRange<std::int64_t>(1, 10000), 8 * *rc::gen::inRange<std::int64_t>(1, 1000),
                      8 * *rc::gen::inRange<std::int64_t>(1, 1000));
  p.layout = *rc::gen::element(Layout::nt, Layout::nn);
  const Schedule best = choose(p, kSms);
  const int tile = *rc::gen::inRange(0, static_cast<int>(kTiles.size()));
  RC_PRE(fits(p, kTiles[static_cast<std::size_t>(tile)]));
  const Schedule other = make_schedule(p, tile, 1);
  RC_ASSERT(modelled_cycles(p, best) <= modelled_cycles(p, other));
}

// Short sums over many tiles spend as long on epilogues as on products: consumers take turns. sd15's deepest level, 512
// x 1280 with k = 5120, has 40 tiles of 128x128 for 132 SMs; with k = 1280 it is 128 tiles of 64x80, one for nearly
// every SM. Sums of 2 steps need the least stages. Where two SMs' worth of k is left over, splitting must pay.
TEST(gemm_schedule, FollowsTheShape) {
  const auto large = [](const Schedule& s) {
    return tile_of(s).block_m() == 128 && tile_of(s).block_n >= 192 && s.splits == 1 && s.multicast == 2 &&
           s.grid == kSms;
  };
  const auto spread = [](const Schedule& s) { return s.blocks() >= 72 && tile_of(s).block_n <= 160; };
  const auto turns = [](const Schedule& s) { return tile_of(s).pingpong; };
  const struct {
    std::int64_t m, n, k;
    bool measured;  // by the table, too
    bool (*holds)(const Schedule&);
  } cases[] = {
      {4096, 4096, 4096, false, large},
      {8192, 8192, 8192, false, large},
      {64, 1280, 5120, true, spread},
      {128, 1280, 5120, true, spread},
      {512, 1280, 5120, true, spread},
      {512, 1280, 128, true, [](const Schedule& s) { return s.alone && s.stages == tile_of(s).stages; }},
      {512, 1280, 1280, true, [](const Schedule& s) { return s.grid <= kSms && s.stages == tile_of(s).deep_stages; }},
      {1, 1536, 768, true, [](const Schedule& s) { return tile_of(s).block_m() == 64 && s.multicast == 1; }},
      {8192, 2560, 320, false, turns},
      {64, 64, 16384, true, [](const Schedule& s) { return s.splits > 1; }},
      {64, 64, 64, true, [](const Schedule& s) { return s.splits == 1; }}};
  for (const auto& one : cases) {
    const Problem p = problem(one.m, one.n, one.k);
    EXPECT_TRUE(one.holds(one.measured ? choose(p, kSms) : choose(p, kSms, kNothingMeasured)))
        << one.m << " x " << one.n << ", k = " << one.k;
  }
  EXPECT_FALSE(turns(choose(problem(4096, 4096, 4096), kSms, kNothingMeasured)));
  EXPECT_EQ(ways_to_share(problem(512, 768, 512)), std::pair(true, true));
}

TEST(gemm_schedule, ClustersThatDoNotFitAreNotCountedAsResident) {
  // 32 clusters of 4 are 128 blocks for 132 SMs, but GPCs hold only 30 of them: a second wave.
  const Problem p = problem(512, 1280, 5120);
  const Schedule s = make_schedule(p, 2, 4);
  ASSERT_EQ(s.blocks(), 128);
  const Schedule half = make_schedule(p, 2, 2);
  EXPECT_GT(modelled_cycles(p, s), modelled_cycles(p, half));
}

// A tile's residual is whole pieces in whole stages, and leaves the ring a stage to load the next tile into.
TEST(gemm_residual, PiecesCoverTheTileAndFitTheRing) {
  for (const Tile& tile : kTiles) {
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(testing::Message() << tile.block_m() << " x " << tile.block_n << (gated ? " gated" : ""));
      const ResidualPieces pieces = product::residual_pieces(tile.consumers, tile.block_n, gated);
      EXPECT_EQ(pieces.count * pieces.columns, gated ? tile.block_n / 2 : tile.block_n);
      EXPECT_EQ(pieces.bytes, tile.block_m() * pieces.columns * 2);
      EXPECT_EQ(pieces.bytes % 1024, 0);  // the next piece begins on a swizzle atom
      EXPECT_LE(pieces.per_stage * pieces.bytes, (tile.block_m() + tile.block_n) * kBlockK * 2);
      EXPECT_LE(pieces.stages(), product::kMostOfResidual);
      EXPECT_LT(pieces.stages() + 1, tile.stages);  // the last step of k is held until the residual has come
      int stages = 0;
      for (int piece = 0; piece < pieces.count; ++piece) {
        EXPECT_EQ(piece / pieces.per_stage, stages);
        stages += pieces.last_of_stage(piece);
      }
      EXPECT_EQ(stages, pieces.stages());
    }
  }
}

// The GPU's tests take every way that a residual can go: each tile's (256 to 32 columns), ping-pong's with blocks that
// have several tiles, pairs that share B, split k.
TEST(gemm_residual, TestProblemsTakeEveryWay) {
  std::set<int> widths;
  std::set<std::tuple<bool, bool, bool>> ways;  // ping-pong, multicast, split
  std::set<std::tuple<int, bool, bool>> large;  // columns of a 128-row tile, ping-pong, gated
  bool turns_gated = false, splits_gated = false;
  for (const Problem& p : test_problems()) {
    if (!p.residual || p.blend || p.n % 8 != 0 || p.k % 8 != 0) continue;
    const Schedule s = choose(p, kSms);
    widths.insert(tile_of(s).block_n);
    ways.insert({tile_of(s).pingpong && s.blocks() > 2 * s.grid, s.multicast > 1, s.splits > 1});
    if (tile_of(s).block_m() == 128) large.insert({tile_of(s).block_n, tile_of(s).pingpong, p.gated()});
    turns_gated |= tile_of(s).pingpong && p.gated();
    splits_gated |= s.splits > 1 && p.gated();
  }
  for (const Tile& tile : kTiles) EXPECT_TRUE(widths.contains(tile.block_n)) << tile.block_n;
  EXPECT_TRUE(ways.contains({true, false, false}));
  EXPECT_TRUE(ways.contains({true, true, false}));
  EXPECT_TRUE(ways.contains({false, true, false}));
  EXPECT_TRUE(ways.contains({false, false, true}));
  EXPECT_TRUE(turns_gated);
  EXPECT_TRUE(splits_gated);
  for (const int columns : {128, 160}) {
    EXPECT_TRUE(large.contains({columns, false, false})) << columns;
    EXPECT_TRUE(large.contains({columns, true, false})) << columns;
    EXPECT_TRUE(large.contains({columns, true, true})) << columns;
  }
}

// Both tiles of ping-pong, with blocks that have one tile and several.
TEST(gemm_blend, TestProblemsTakeEveryWay) {
  std::set<std::tuple<int, bool>> ways;  // columns, several tiles
  for (const Problem& p : test_problems()) {
    if (!p.blend || p.act != Activation::none || p.image_shift || p.n % 8 != 0 || p.k % 8 != 0) continue;
    const Schedule s = choose(p, kSms);
    ways.insert({tile_of(s).block_n, s.blocks() > 2 * s.grid});
  }
  EXPECT_EQ(ways, (std::set<std::tuple<int, bool>>{{128, false}, {128, true}, {160, false}, {160, true}}));
}

// In ping-pong they hold the residual, too: one piece each, which must begin on a swizzle atom where it is swizzled.
TEST(gemm_residual, BuffersOfStores) {
  EXPECT_EQ(buffers_in(16 * 1024, 160), 4);  // pieces of 32 columns: 4 KB
  EXPECT_EQ(buffers_in(16 * 1024, 128), 2);  // of 64: 8 KB
  EXPECT_EQ(buffers_in(16 * 1024, 80), 1);   // of 80: 10 KB
  EXPECT_EQ(buffers_in(16 * 1024, 64), 2);
  EXPECT_EQ(buffers_in(64 * 1024, 64), kMostBuffers);
}

// Consumers that take turns go from one part of D to another.
TEST(gemm_parts, TestProblemsTakeEveryWay) {
  std::set<std::tuple<bool, bool>> ways;  // ping-pong, split
  for (const Problem& p : test_problems()) {
    if (p.parts() == 1 || p.part_columns % kSmallestBlockN != 0) continue;
    const Schedule s = choose(p, kSms);
    ways.insert({tile_of(s).pingpong && s.blocks() > 2 * s.grid, s.splits > 1});
  }
  EXPECT_EQ(ways, (std::set<std::tuple<bool, bool>>{{true, false}, {false, true}, {false, false}}));
}

}  // namespace
}  // namespace noisefloor::gemm
