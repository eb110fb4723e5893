// How ptx_sm90a cuts wgrad: into tiles of dw, steps of 64 pixels, and shares of both for blocks. Pure functions.
//
// A tile is nine blocks of 64 x 64 weights: of 3x3 taps, 64 output channels by 64 input channels under all taps; of one
// tap 192 by 192. A warpgroup makes three of them. A step's products sum over 64 pixels: of dy a box of 8 x 8 of an
// image, or of 4 x 4 of four images; of x that box and its neighbours. Blocks first take whole tiles, as many each,
// then share the steps of the other tiles evenly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/convolution/convolution.h"
#include "kernels/device/divider.h"

namespace noisefloor::convolution {

inline constexpr int kWgradBlock = 64;  // channels of a block of weights; pixels of a step
inline constexpr int kWgradBlocks = 3;  // of a warpgroup, and warpgroups
inline constexpr int kWgradLine = 128;  // bytes of 64 channels of a pixel
inline constexpr int kWgradRun = 4;     // weights of a tile that a thread stores at once
inline constexpr int kWgradRuns = kWgradBlocks * kWgradBlocks * kWgradBlock * kWgradBlock / kWgradRun;
// Of a share of a tile, in floats: the weights' sums, then those of up to 192 output channels' biases.
inline constexpr int kWgradShare = kWgradRuns * kWgradRun + kWgradBlocks * kWgradBlock;

struct WgradBox {
  int w, h, images;
  constexpr int lines() const { return w * h * images; }
};

// A step in shared memory: boxes of dy of 64 output channels each, then boxes of x, of 64 input channels each or, where
// `columns`, one for each kernel column. The lines of x that a product of 16 pixels reads: those of the second 8 lie
// to_group bytes behind the first 8, of the next product's pixels to_product; of the next kernel row to_row, and of the
// next block of the warpgroup's to_block, which is the next kernel column or the next 64 channels.
struct WgradStep {
  WgradBox dy, x;
  int dy_boxes, x_boxes;
  bool columns;
  int to_group, to_product, to_row, to_block;

  constexpr int dy_bytes() const { return dy_boxes * kWgradBlock * kWgradLine; }
  constexpr int x_bytes() const { return x.lines() * kWgradLine; }  // of a box
  constexpr int bytes() const { return dy_bytes() + x_boxes * x_bytes(); }
  constexpr int stage_bytes() const { return (bytes() + 1023) / 1024 * 1024; }
  constexpr bool one_tap() const { return dy_boxes > 1; }
};
// One tap; its pixels are one after the other, whatever image they are of.
inline constexpr WgradStep kWgradFlat{{64, 1, 1}, {64, 1, 1},     3, 3, false, 8 * kWgradLine, 16 * kWgradLine,
                                      0,          64 * kWgradLine};
// A box of x serves all taps: that of the next kernel column begins a line further on.
inline constexpr WgradStep kWgradHalo{{8, 8, 1},       {10, 10, 1},     1,         1, false, 10 * kWgradLine,
                                      20 * kWgradLine, 10 * kWgradLine, kWgradLine};
// Boxes as narrow as those of dy, so that two rows of 4 pixels are 8 lines.
inline constexpr WgradStep kWgradSmall{{4, 4, 4},      {4, 6, 4},      1, 3, true, 8 * kWgradLine, 24 * kWgradLine,
                                       4 * kWgradLine, 96 * kWgradLine};

// A share of a tile: its steps [first, first + count).
struct WgradShare {
  int tile, first, count;
  int place;  // among the partial sums, unless the share is the whole tile

  constexpr bool whole(int steps) const { return count == steps; }
};

// n / d, of which a GPU is spared the long division where n < 2^31.
constexpr std::int64_t wgrad_divide(std::int64_t n, const Divider& d) {
  return n >> 31 == 0 ? static_cast<int>(n) / d : n / int{d};
}

struct WgradCut {
  bool small = false;            // kWgradSmall, of several taps
  Divider steps = 1;             // of a tile
  Divider across = 1, down = 1;  // boxes along x and y of an image
  Divider tiles_ci = 1;
  int tiles = 1;
  int blocks = 1;
  int whole = 0;               // tiles that blocks take whole, a multiple of `blocks` or all
  Divider sharing_blocks = 1;  // the first so many share the others

  constexpr int boxes() const { return across * down; }  // of an image
  constexpr int shared_tiles() const { return tiles - whole; }
  // Partial sums: a share is number `tile + block`, since one of the two rises from each share to the next.
  constexpr int places() const { return shared_tiles() == 0 ? 0 : shared_tiles() + sharing_blocks - 1; }
  constexpr std::int64_t shared_steps() const { return std::int64_t{shared_tiles()} * steps; }
  // The first of the shared steps, counted over all tiles, of a block; and the block that has one.
  constexpr std::int64_t first_of(int block) const { return wgrad_divide(block * shared_steps(), sharing_blocks); }
  constexpr int block_of(std::int64_t step) const {
    return static_cast<int>(((step + 1) * sharing_blocks - 1) / shared_steps());
  }
};

// A block's shares, one after the other.
class WgradWalk {
 public:
  constexpr WgradWalk(const WgradCut& cut, int block) : cut_(cut), block_(block), tile_(block) {
    if (cut.shared_tiles() > 0 && block < cut.sharing_blocks) at_ = cut.first_of(block), end_ = cut.first_of(block + 1);
  }
  constexpr bool next(WgradShare& share) {
    if (tile_ < cut_.whole) {
      share = {tile_, 0, cut_.steps, -1};
      tile_ += cut_.blocks;
      return true;
    }
    if (at_ >= end_) return false;
    const auto tile = static_cast<int>(wgrad_divide(at_, cut_.steps)),
               first = static_cast<int>(at_ - std::int64_t{tile} * cut_.steps);
    const std::int64_t left = end_ - at_;
    const int count = left < cut_.steps - first ? static_cast<int>(left) : cut_.steps - first;
    share = {cut_.whole + tile, first, count, tile + block_};
    at_ += count;
    return true;
  }

 private:
  const WgradCut& cut_;
  int block_, tile_;
  std::int64_t at_ = 0, end_ = 0;
};

constexpr const WgradStep& wgrad_step_of(const Convolution& c, const WgradCut& cut) {
  return c.y.taps == 1 ? kWgradFlat : cut.small ? kWgradSmall : kWgradHalo;
}
// The convolution of one phase and stride 1 that is cut: its channels filled up to multiples of 8, which TMA can
// address, and its input as large as an upsample makes it.
Convolution laid_out(const Convolution& c);
WgradCut cut_wgrad(const Convolution& laid_out, int sm_count);

// Channels of dy's sums over a box.
constexpr int wgrad_box_channels(int cout) {
  return (cout + kWgradRun - 1) / kWgradRun * kWgradRun;
}

// Where things lie in workspace. First dy's sums over boxes, for dshift, where an image of several taps has several.
// Then x and dy laid out where that differs, and the shares' sums.
struct WgradWorkspace {
  WgradCut cut;
  std::size_t x, dy, partials, bytes;          // offsets; of all
  std::size_t boxes_bytes, x_bytes, dy_bytes;  // 0: x and dy are taken as they are

  WgradWorkspace(const Convolution& c, DType dtype, bool image_shift, int sm_count);
};

}  // namespace noisefloor::convolution
