#include "bench/sweep/ops.h"

#include <vector>

#include "bench/pipeline/network_op.h"

namespace noisefloor {

std::span<const Op* const> swept_ops() {
  static const std::vector<const Op*> ops = [] {
    std::vector<const Op*> all;
    for (const Op& op : catalogue()) all.push_back(&op);
    all.push_back(&pipeline::network_op());
    return all;
  }();
  return ops;
}

const Op* find_swept_op(std::string_view name) {
  for (const Op* op : swept_ops())
    if (op->name == name) return op;
  return nullptr;
}

}  // namespace noisefloor
