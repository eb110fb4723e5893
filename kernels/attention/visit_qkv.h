// Queries, keys and values among an op's tensors: three of their own, or one that is packed (strided.h).
#pragma once

#include "kernels/attention/strided.h"
#include "kernels/core/tensor.h"

namespace noisefloor::attention {

// `tokens`: the extents before the heads; `keys`: those of keys and values, which of packed ones are the same.
template <class Tensors>
void visit_qkv(TensorVisitor& visit, Tensors& t, Layout layout, const Extents& tokens, const Extents& keys,
               std::int64_t heads, std::int64_t dim) {
  if (!is_packed(layout)) {
    visit.in("q", t.q, tokens.with({heads, dim}));
    visit.in("k", t.k, keys.with({heads, dim}));
    visit.in("v", t.v, keys.with({heads, dim}));
    return;
  }
  visit.in({"qkv", "in the place of q, k and v, with a packed layout"}, t.q,
           layout == Layout::packed_3hd   ? tokens.with({3, heads, dim})
           : layout == Layout::packed_h3d ? tokens.with({heads, 3, dim})
                                          : tokens.with({heads, dim, 3}));
  visit.same(t.k, t.q);
  visit.same(t.v, t.q);
}

}  // namespace noisefloor::attention
