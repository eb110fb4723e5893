// A gemm with its host variant twice, as `first` and `second`, so that there is something to choose on any machine.
#pragma once

#include <algorithm>

#include "bench/measure/suite.h"
#include "kernels/catalogue.h"

namespace noisefloor {

inline const Suite& two_ways() {
  static const Op op = [] {
    Op made = *find_op("gemm");
    std::erase_if(made.variants, [](const AnyVariant& variant) { return variant.kind != Kind::host; });
    made.variants = {made.variants.front(), made.variants.front()};
    made.variants.front().name = "first";
    made.variants.back().name = "second";
    return made;
  }();
  static const Suite suite(
      {{&op, {implementation_of(op.variants.front()), implementation_of(op.variants.back())}, oracle_of(op)}});
  return suite;
}

}  // namespace noisefloor
