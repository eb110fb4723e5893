// Fewer, larger nodes: the products of one row that share it, as the projections of one image's embedding in every
// residual block do, become one product, whose parts their readers take where they lie. Of several rows the parts would
// be strided, which no reader takes.
#pragma once

#include "networks/network.h"

namespace noisefloor::networks {

// Exact: each output element is the same sum. A product stays alone whose columns are not a multiple of 8 (parts are
// read 16 bytes at a time), or whose weight is blended, cut or laid out anew.
void merge_products_of_a_row(Network& network);

}  // namespace noisefloor::networks
