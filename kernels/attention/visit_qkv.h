// Queries, keys and values among an op's tensors: three of their own, or one that is packed (strided.h).
#pragma once

#include "kernels/attention/strided.h"
#include "kernels/core/tensor.h"

namespace noisefloor::attention {

// The extents before the heads: of queries, of keys and values, and of packed ones.
template <class Tensors>
void visit_qkv(TensorVisitor& visit, Tensors& t, Layout layout, const Extents& queries, const Extents& keys,
               const Extents& packed) {
  const bool separate = !is_packed(layout);
  visit.when(separate, "layout=separate").in("q", t.q, queries.with({"heads", "dim"}));
  visit.when(separate, "layout=separate").in("k", t.k, keys.with({"heads", "dim"}));
  visit.when(separate, "layout=separate").in("v", t.v, keys.with({"heads", "dim"}));
  const TensorName qkv{"qkv", "in the place of q, k and v"};
  visit.when(layout == Layout::packed_3hd, "layout=packed_3hd").in(qkv, t.q, packed.with({"3", "heads", "dim"}));
  visit.when(layout == Layout::packed_h3d, "layout=packed_h3d").in(qkv, t.q, packed.with({"heads", "3", "dim"}));
  visit.when(layout == Layout::packed_hd3, "layout=packed_hd3").in(qkv, t.q, packed.with({"heads", "dim", "3"}));
  if (separate) return;
  visit.same(t.k, t.q);
  visit.same(t.v, t.q);
}

}  // namespace noisefloor::attention
