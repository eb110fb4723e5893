// Which blocks of a cluster share operands, in the ptx_sm90a kernels of products. Pure functions.
#pragma once

#include <cstdint>

namespace noisefloor::product {

// Of 1, 2, 4 and 8.
constexpr int log2_of(int blocks) {
  return blocks < 8 ? blocks >> 1 : 3;
}

// A block's place in its cluster: m_rank varies first, then n_rank, then the split of k. Blocks of one split share.
struct Sharing {
  int multicast, multicast_a;  // neighbours in m that share B, and in n that share A: 1, 2 or 4
  int sharing;                 // of both
  int rank, m_rank, n_rank, split;

  constexpr Sharing(int blocks_of_multicast, int blocks_of_multicast_a, int rank_in_cluster)
      : multicast(blocks_of_multicast),
        multicast_a(blocks_of_multicast_a),
        sharing(multicast * multicast_a),
        rank(rank_in_cluster),
        m_rank(rank & (multicast - 1)),
        n_rank(multicast_a > 1 ? (rank & (sharing - 1)) >> log2_of(multicast) : 0),
        split(rank >> log2_of(sharing)) {}

  // The blocks that take this one's loads, a bit each: of A its neighbours in n, of B those in m; itself is one.
  constexpr std::uint16_t multicast_mask_a() const {
    const unsigned every = multicast == 1 ? 0xff : multicast == 2 ? 0x55 : 0x11;
    return static_cast<std::uint16_t>((every & ((1u << sharing) - 1)) << (rank - n_rank * multicast));
  }
  constexpr std::uint16_t multicast_mask_b() const {
    return static_cast<std::uint16_t>(((1u << multicast) - 1) << (rank - m_rank));
  }
  // How many blocks write into this one's stages, itself among them (as many as take its loads), and the rank of each.
  constexpr int givers() const { return multicast + multicast_a - 1; }
  constexpr int giver(int i) const {
    if (i < multicast_a) return rank + (i - n_rank) * multicast;
    const int m = i - multicast_a;
    return rank - m_rank + m + (m >= m_rank ? 1 : 0);
  }
  // The block that has this one's tile in another split.
  constexpr int peer(int other_split) const { return rank + (other_split - split) * sharing; }
};

}  // namespace noisefloor::product
