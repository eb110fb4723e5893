// The words of kernels/core/noise_stream.h for many blocks of one image: what of Philox's first two rounds depends on
// the image and the step alone is computed once, two of the twenty multiplications of a block.
#pragma once

#include <cstdint>

#include "kernels/core/noise_stream.h"

namespace noisefloor {

class ImageNoise {
 public:
  NOISEFLOOR_HD ImageNoise(const NoiseStream& stream, std::uint64_t image_in_batch) {
    const std::uint64_t image = stream.first_image + image_in_batch;
    const std::uint64_t product = multiply_wide(0xCD9E8D57u, static_cast<std::uint32_t>(image));
    // Round 0 makes of (block, step, image) the words (word0, low of product, ..., ...), of which the last two depend
    // on the block; round 1 multiplies word0.
    const std::uint32_t word0 = static_cast<std::uint32_t>(product >> 32) ^ stream.step ^ stream.keys.k[0][0];
    const std::uint64_t next = multiply_wide(0xD2511F53u, word0);
    round0_ = static_cast<std::uint32_t>(image >> 32) ^ stream.keys.k[0][1];
    round1_[0] = static_cast<std::uint32_t>(product) ^ stream.keys.k[1][0];
    round1_[1] = static_cast<std::uint32_t>(next >> 32) ^ stream.keys.k[1][1];
    round1_[2] = static_cast<std::uint32_t>(next);
  }

  // noise_words(stream, image_in_batch, block), of the same stream.
  NOISEFLOOR_HD Philox4 words(const NoiseStream& stream, std::uint32_t block) const {
    return words_of(stream, multiply_wide(kBlockFactor, block));
  }
  // Of block 2 pair + 1.
  NOISEFLOOR_HD Philox4 odd_words(const NoiseStream& stream, std::uint32_t pair) const {
    return words_of(stream, multiply_add_wide(2 * pair, kBlockFactor, kBlockFactor));
  }

 private:
  static constexpr std::uint32_t kBlockFactor = 0xD2511F53u;

  // `p0` is the block's number times kBlockFactor.
  NOISEFLOOR_HD Philox4 words_of(const NoiseStream& stream, std::uint64_t p0) const {
    const std::uint64_t p1 = multiply_wide(0xCD9E8D57u, static_cast<std::uint32_t>(p0 >> 32) ^ round0_);
    const Philox4 c = {{static_cast<std::uint32_t>(p1 >> 32) ^ round1_[0], static_cast<std::uint32_t>(p1),
                        static_cast<std::uint32_t>(p0) ^ round1_[1], round1_[2]}};
    return philox4x32_rounds<2>(c, stream.keys);
  }

  std::uint32_t round0_, round1_[3];
};

}  // namespace noisefloor
