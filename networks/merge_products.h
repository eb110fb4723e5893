// Fewer, larger nodes: short products that share A, as the projections of the embedding in every residual block and the
// keys and values of the text do, become one product, whose parts their readers take where they lie. Of one row they are
// of any widths; of several rows of one width, as gemm's part_columns makes them.
#pragma once

#include "networks/network.h"

namespace noisefloor::networks {

// Each output element is the same sum. A product stays alone that fills a GPU by itself (merging saves launches), whose
// columns are not a multiple of what parts need, or whose weight is blended, cut or laid out anew.
void merge_products(Network& network);

}  // namespace noisefloor::networks
