// How ptx_sm90a cuts wgrad into shares of tiles, and what its products read: host functions that its kernel calls too.
#include "kernels/convolution/wgrad_cut.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

namespace noisefloor::convolution {
namespace {

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
