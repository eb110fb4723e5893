// Where the partial sums of a split tile arrive: stages that no step will fill or read again, so that blocks that are
// done need not wait for those that still multiply, or only for what opened_behind() says. Pure functions.
#pragma once

namespace noisefloor::product {

// Of a block with one tile, and of all blocks of its cluster, whose steps may be one fewer.
struct Inbox {
  int stage = 0;   // the first of its stages, which follow each other
  int opens = -1;  // behind this many steps all of them have been read for the last time; -1: there is none
};

// The stages that so many bytes take.
constexpr int stages_for(int bytes, int stage_bytes) {
  return (bytes + stage_bytes - 1) / stage_bytes;
}

// `room` of a ring of `stages` (room <= stages), in blocks of which the longest has most_steps >= 1. Those stages are
// taken that are free first and do not wrap.
constexpr Inbox find_inbox(int most_steps, int stages, int room) {
  const int rounds = most_steps / stages, begun = most_steps - rounds * stages;  // stages of the last round, if begun
  if (begun + room <= stages) {
    const int last = most_steps - stages + room;  // steps up to the last that reads the last of these stages
    return {begun, rounds == 0 ? 0 : last};
  }
  return {0, begun < room ? most_steps : most_steps - begun + room};
}

// Opens no sooner than behind `steps`: where none of a second ring's stages has to come back later. The GPU does not
// hold a warp in barrier.cluster.arrive, but compute-sanitizer does until all have arrived.
constexpr Inbox opened_behind(const Inbox& inbox, int steps) {
  return inbox.opens < 0 || inbox.opens >= steps ? inbox : Inbox{inbox.stage, steps};
}

}  // namespace noisefloor::product
