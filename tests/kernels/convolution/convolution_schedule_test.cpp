// The pure functions that cut a convolution for the GPU: ptx_sm90a's schedules, and its place in the four phases of an
// upsample.
#include "kernels/convolution/schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/convolution/gradient.h"
#include "kernels/convolution/halo.h"
#include "kernels/convolution/wgrad_cut.h"
#include "tests/support/test_problems.h"

namespace noisefloor::convolution {
namespace {

constexpr int kSms = 132;

RC_GTEST_PROP(convolution_schedule, ChosenScheduleCoversTheProblem, ()) {
  conv2d::Problem p;
  p.n = *rc::gen::inRange<std::int64_t>(1, 40);
  p.h = *rc::gen::inRange<std::int64_t>(1, 70);
  p.w = *rc::gen::inRange<std::int64_t>(1, 70);
  p.cin = 8 * *rc::gen::inRange<std::int64_t>(1, 200);
  p.cout = *rc::gen::inRange<std::int64_t>(1, 1400);
  p.upsample = *rc::gen::arbitrary<bool>();
  if (!p.upsample) p.side = 8 * *rc::gen::inRange<std::int64_t>(0, 40);
  if (p.side > 0) p.side_skip = 8 * *rc::gen::inRange<std::int64_t>(0, 40);
  const int sms = *rc::gen::element(1, 60, kSms);
  const Convolution c = conv2d::describe(p, conv2d::Form::phased);
  const Schedule s = choose(c, sms);
  const product::Sm90aProduct whole = cut(c);
  const Tile& shape = kTiles[static_cast<std::size_t>(s.tile)];
  RC_ASSERT(whole.units * whole.unit_rows == c.rows());
  RC_ASSERT(whole.k_steps * kBlockK >= c.k() + c.side_channels());
  RC_ASSERT(whole.k_steps == tap_steps(c) + (p.side + 63) / 64 + (p.side_skip + 63) / 64);
  RC_ASSERT(s.m_clusters == whole.units * s.unit_clusters);
  RC_ASSERT(s.unit_clusters * s.multicast * shape.block_m() >= whole.unit_rows);
  RC_ASSERT((s.unit_clusters - 1) * s.multicast * shape.block_m() < whole.unit_rows);
  RC_ASSERT(s.n_tiles * shape.block_n >= p.cout && (s.n_tiles - 1) * shape.block_n < p.cout);
  RC_ASSERT(s.cluster() <= 8 && s.splits <= whole.k_steps && can_split(shape, s.splits));
  RC_ASSERT(s.grid > 0 && s.grid % s.cluster() == 0);
  // Split tiles are not walked: every one has its blocks.
  if (s.splits > 1) RC_ASSERT(s.grid == s.blocks());
}

// Taps of upsamples and of transposed convolutions, whose phases begin at different ones.
RC_GTEST_PROP(convolution_schedule, APhasesTapsAreTheKernels, ()) {
  conv2d::Problem p;
  p.upsample = *rc::gen::arbitrary<bool>();
  Convolution c = conv2d::describe(p, *rc::gen::element(conv2d::Form::phased, conv2d::Form::direct));
  for (Axis* axis : {&c.y, &c.x}) {
    axis->kernel_taps = *rc::gen::inRange(1, 8);
    axis->first_tap = *rc::gen::inRange(0, 4);
    axis->tap_phase = *rc::gen::inRange(-2, 3);
    axis->tap_step = *rc::gen::inRange(-2, 3);
  }
  for (int phase = 0; phase < c.phases(); ++phase) {
    const KernelTaps taps(c, phase);
    for (int ty = 0; ty < c.y.taps; ++ty)
      for (int tx = 0; tx < c.x.taps; ++tx) RC_ASSERT(taps.at(ty, tx) == kernel_tap(c, phase, ty, tx));
  }
}

// Every channel of both tensors once, each beside the weights that stand at its place in the concatenation.
RC_GTEST_PROP(convolution_schedule, StepsBesideTheTapsCoverBothTensorsOnce, ()) {
  Convolution c = plain(1, 8, 8, 8, 8, 3, 1, 1);
  c.side = *rc::gen::inRange(1, 300);
  c.side_skip = *rc::gen::inRange(0, 300);
  std::vector<int> seen(static_cast<std::size_t>(c.side_channels()));
  for (int step = 0; step < side_steps(c); ++step) {
    const SideCoordinate place = side_coordinate(c, step);
    const int channels = place.skip ? c.side_skip : c.side;
    RC_ASSERT(place.channel < channels && place.column == place.channel + (place.skip ? c.side : 0));
    for (int i = 0; i < kBlockK && place.channel + i < channels; ++i)
      ++seen.at(static_cast<std::size_t>(place.column + i));
  }
  for (const int times : seen) RC_ASSERT(times == 1);
}

TEST(convolution_schedule, SharesOfASplitTileCoverItOnce) {
  for (const Tile& tile : kTiles)
    for (int splits = 1; splits <= product::kLargestCluster; ++splits) {
      if (!can_split(tile, splits)) continue;
      EXPECT_EQ(share_begin(tile.block_n, splits, 0), 0);
      EXPECT_EQ(share_begin(tile.block_n, splits, splits), tile.block_n / 8);
      for (int s = 0; s < splits; ++s) {
        const int share = share_begin(tile.block_n, splits, s + 1) - share_begin(tile.block_n, splits, s);
        EXPECT_GE(share, 1);
        EXPECT_LE(share, largest_share(tile.block_n, splits));
      }
    }
}

TEST(convolution_schedule, FewPixelsAreSplitAndManyAreNot) {
  conv2d::Problem p;
  p.n = 1, p.h = p.w = 8, p.cin = p.cout = 768;
  EXPECT_GT(choose(conv2d::describe(p, conv2d::Form::phased), kSms).splits, 1);
  p.n = 32, p.h = p.w = 64, p.cin = p.cout = 192;
  const Schedule many = choose(conv2d::describe(p, conv2d::Form::phased), kSms);
  EXPECT_EQ(many.splits, 1);
  EXPECT_EQ(kTiles[static_cast<std::size_t>(many.tile)].block_n, 192);
}

// Many tiles take turns, also by a choice's text.
TEST(convolution_schedule, ManyTilesTakeTurns) {
  conv2d::Problem p;
  p.n = 28, p.h = 72, p.w = 128, p.cin = p.cout = 320;
  const Convolution c = conv2d::describe(p, conv2d::Form::phased);
  EXPECT_TRUE(kTiles[static_cast<std::size_t>(choose(c, kSms, {0, {}, {}}).tile)].pingpong);
  EXPECT_TRUE(im2col_model_of(c).parse("rows=128,columns=160,pingpong=1,multicast=1,splits=1", kSms));
}

// A gradient's weights are read n-major; it takes what was measured of a convolution of its shape, where it can.
TEST(convolution_schedule, GradientsTakeTilesOfWholePieces) {
  const Shape shape{.n = 32, .h = 32, .w = 32, .cin = 320, .cout = 384};
  const Convolution c = tensor_core_gradient(forward_of(shape), 0, 0);
  for (const bool halo : {false, true}) {
    const auto choices =
        halo ? halo_choices(c, DType::bf16, {.sm_count = kSms}) : schedule_choices(c, DType::bf16, {.sm_count = kSms});
    EXPECT_GT(choices.size(), 5U);
    for (const Choice& choice : choices) {
      const auto schedule =
          halo ? parse_halo_schedule(c, choice.text, kSms) : im2col_model_of(c).parse(choice.text, kSms);
      ASSERT_TRUE(schedule) << choice.text;
      const auto tile = static_cast<std::size_t>(schedule->tile);
      EXPECT_TRUE(takes_n_major(halo ? kHaloTiles[tile] : kTiles[tile])) << choice.text;
    }
  }
  MeasuredSchedule row{32, 32, 32, 384, 320, 3, 1, 1, 0, 0, 0, {64, 128, 0, 2, 1}};
  EXPECT_EQ(choose_halo(c, kSms, {kSms, {}, {&row, 1}}).multicast, 2);
  row.cut.columns = 160;
  EXPECT_TRUE(takes_n_major(kHaloTiles[static_cast<std::size_t>(choose_halo(c, kSms, {kSms, {}, {&row, 1}}).tile)]));
}

// The GPU's tests force every schedule of a problem: of these, blocks with three tiles and more in each ping-pong tile,
// so that consumers wait for their turn twice, with each thing that the epilogue or the producer does by its place.
TEST(convolution_schedule, TestProblemsTakeEveryWayInTurns) {
  std::set<std::string> ways;
  for (const ProblemEntry& entry : load_problems(test_problem_folder())) {
    if (entry.op->name != conv2d::definition.name) continue;
    const Convolution c = conv2d::describe(entry.problem.as<conv2d::Problem>(), conv2d::Form::phased);
    if (!can_run_ptx_sm90a(c, DType::bf16) || gathers_rows(c)) continue;
    for (const Tile& tile : kTiles) {
      if (!tile.pingpong) continue;
      const Schedule s = product::make_schedule(im2col_model_of(c).kernel, cut(c),
                                                static_cast<int>(&tile - kTiles.data()), 2, 1, kSms);
      if (s.blocks() <= 2 * s.grid) continue;
      const std::string columns = std::to_string(tile.block_n) + " columns";
      ways.insert(columns);
      if (c.residual) ways.insert(columns + ", residual");
      if (c.side_skip > 0) ways.insert(columns + ", second source");
      if (c.phases() > 1) ways.insert(columns + ", phases");
      if (c.image_shift && c.phase_pixels() % tile.block_m() != 0) ways.insert(columns + ", shifts of rows");
      if (c.phase_rows() % (2 * tile.block_m()) != 0 && c.cout % tile.block_n != 0) ways.insert(columns + ", ragged");
    }
  }
  for (const char* columns : {"128 columns", "160 columns"})
    for (const char* way : {"", ", residual", ", second source", ", phases", ", shifts of rows", ", ragged"})
      EXPECT_TRUE(ways.contains(std::string(columns) + way)) << columns << way;
}

TEST(convolution, PhasesWriteEveryOutputPixelOnce) {
  const Convolution c = upsampled_phases(2, 3, 5, 8, 8);
  std::set<std::int64_t> pixels;
  for (int phase = 0; phase < 4; ++phase)
    for (std::int64_t row = 0; row < c.phase_rows(); ++row) pixels.insert(output_pixel(c, phase, row));
  EXPECT_EQ(pixels.size(), 2u * 6 * 10);
  EXPECT_EQ(*pixels.begin(), 0);
  EXPECT_EQ(*pixels.rbegin(), 2 * 6 * 10 - 1);
}

TEST(convolution, SummedTapsOfAPhaseCoverTheKernelOnce) {
  for (int phase = 0; phase < 2; ++phase) {
    EXPECT_EQ(summed_taps(phase, 0).first, 0);
    EXPECT_EQ(summed_taps(phase, 0).last + 1, summed_taps(phase, 1).first);
    EXPECT_EQ(summed_taps(phase, 1).last, 2);
  }
}

TEST(convolution, ChannelsThatTmaCannotAddressBecomeAProduct) {
  const Convolution c = plain(2, 9, 7, 3, 16, 3, 2, 1);
  ASSERT_TRUE(gathers_rows(c));
  const Convolution product = gathered_product(c);
  EXPECT_EQ(product.cin, 32);  // 27, padded to 16 bytes
  EXPECT_EQ(product.phase_rows(), c.phase_rows());
  EXPECT_EQ(product.phase_pixels(), c.phase_pixels());
  EXPECT_EQ(product.weight_row(), 32);
  EXPECT_EQ(cut(product).k_steps, 1);
}

// ---- ptx_sm80_narrow: what it takes, and how its rows lie in shared memory

std::string why_not(const Convolution& c, DType dtype = DType::bf16) {
  const Support support = can_run_ptx_sm80_narrow(c, dtype);
  return support ? "" : support.reason;
}

TEST(ConvolutionNarrow, TakesFewChannelsUnderSeveralTaps) {
  EXPECT_EQ(why_not(plain(1, 64, 64, 3, 192, 3, 1, 1)), "");
  EXPECT_EQ(why_not(plain(1, 64, 64, 32, 1, 3, 2, 1)), "");
  EXPECT_EQ(why_not(plain(3, 5, 7, 11, 13, 5, 1, 2)), "");  // 25 taps, 275 terms
  EXPECT_EQ(why_not(upsampled_phases(2, 8, 8, 32, 16)), "");
  EXPECT_NE(why_not(plain(1, 64, 64, 33, 192, 3, 1, 1)).find("32 input channels"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 32, 192, 1, 1, 0)).find("several taps"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 12, 192, 5, 1, 2)).find("288 terms"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 1, 192, 6, 1, 2)).find("32 taps"), std::string::npos);
  EXPECT_NE(why_not(plain(1, 64, 64, 3, 192, 3, 1, 1), DType::fp32).find("bf16"), std::string::npos);
  EXPECT_NE(why_not(plain(1 << 20, 64, 64, 3, 192, 3, 1, 1)).find("2^31"), std::string::npos);
}

// The eight rows that an ldmatrix reads together, 16 bytes each, in distinct banks; and a row has room for its terms.
RC_GTEST_PROP(ConvolutionNarrow, RowsOfAnyLengthLieInDifferentBanks, ()) {
  const auto terms = *rc::gen::inRange(2, kNarrowTerms + 1);
  const int bytes = narrow_row_bytes(terms);
  RC_ASSERT(narrow_steps(terms) * 16 >= terms && (narrow_steps(terms) - 1) * 16 < terms);
  RC_ASSERT(bytes >= narrow_steps(terms) * 32 && bytes % 16 == 0);
  std::set<int> banks;
  for (int row = 0; row < 8; ++row) banks.insert(row * bytes % 128);
  RC_ASSERT(banks.size() == 8u);
}

Convolution any_gradient() {
  const int kernel = *rc::gen::element(1, 3);
  const auto side = *rc::gen::inRange<std::int64_t>(1, 70);
  return laid_out(plain(*rc::gen::inRange<std::int64_t>(1, 70), side, *rc::gen::inRange<std::int64_t>(1, 70),
                        *rc::gen::inRange<std::int64_t>(1, 1600), *rc::gen::inRange<std::int64_t>(1, 1600), kernel, 1,
                        kernel / 2));
}

RC_GTEST_PROP(WgradCut, BlocksTakeEveryStepOfEveryTileOnce, ()) {
  const WgradCut cut = cut_wgrad(any_gradient(), *rc::gen::element(1, 78, 132));
  std::vector<std::vector<int>> taken(static_cast<std::size_t>(cut.tiles),
                                      std::vector<int>(static_cast<std::size_t>(cut.steps)));
  std::set<int> places;
  for (int block = 0; block < cut.blocks; ++block) {
    WgradWalk walk(cut, block);
    for (WgradShare share{}; walk.next(share);) {
      RC_ASSERT(share.count > 0);
      for (int step = share.first; step < share.first + share.count; ++step)
        ++taken.at(static_cast<std::size_t>(share.tile)).at(static_cast<std::size_t>(step));
      if (share.whole(cut.steps)) continue;
      RC_ASSERT(share.place >= 0 && share.place < cut.places());
      RC_ASSERT(places.insert(share.place).second);
      // Who adds the shares finds this one.
      const std::int64_t at = std::int64_t{share.tile - cut.whole} * cut.steps + share.first;
      RC_ASSERT(cut.block_of(at) == block && cut.block_of(at + share.count - 1) == block);
      RC_ASSERT(share.place == share.tile - cut.whole + block);
    }
  }
  for (const auto& steps : taken)
    for (const int times : steps) RC_ASSERT(times == 1);
}

// The line, in bytes behind the first box of x, that a product reads for pixel `pixel` of a step under tap (ky, kx).
int line_read(const WgradStep& step, int pixel, int ky, int kx) {
  return ky * step.to_row + kx * step.to_block + pixel / 16 * step.to_product + pixel % 16 / 8 * step.to_group +
         pixel % 8 * kWgradLine;
}

TEST(WgradCut, ProductsReadThePixelUnderTheTap) {
  for (const WgradStep& step : {kWgradHalo, kWgradSmall})
    for (int pixel = 0; pixel < step.dy.lines(); ++pixel)
      for (int ky = 0; ky < 3; ++ky)
        for (int kx = 0; kx < 3; ++kx) {
          const int x = pixel % step.dy.w, y = pixel / step.dy.w % step.dy.h, image = pixel / step.dy.w / step.dy.h;
          const int box = step.columns ? kx : 0, column = step.columns ? x : x + kx;
          const int line = (image * step.x.h + y + ky) * step.x.w + column;
          ASSERT_EQ(line_read(step, pixel, ky, kx), box * step.x_bytes() + line * kWgradLine);
        }
}

}  // namespace
}  // namespace noisefloor::convolution
