// Runs of the same cases as one: which can be pooled, and their rows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/run/merge_parts.h"

namespace noisefloor {

struct PooledLine {
  SweepRow row;
  std::string samples;  // its line of samples.jsonl; empty: none
};

// Throws std::runtime_error naming the folder where one is a part of a split sweep.
void require_whole_sweeps(const std::vector<MergePart>& parts);

// Of whole sweeps, in the order of the first part. Throws std::runtime_error naming the folder where a part has not the
// same cases as the others, or samples that another has too.
std::vector<PooledLine> pool_parts(const std::vector<MergePart>& parts);

// Rows that had a duel in some part and have none as a pool.
std::size_t duels_left_out(const std::vector<MergePart>& parts, const std::vector<PooledLine>& pooled);

}  // namespace noisefloor
