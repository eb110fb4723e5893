// temporal_attention, naive: attention's naive kernel with frames as the sequence: a warp per query (pixel, frame,
// head), which reads all frames' keys and values of its pixel again.
//
// Threads: 256, 8 queries of a block: neighbouring heads of one pixel and frame, so that accesses are coalesced. No
// shared memory.
//
// Bound: issue slots: per query and frame five shuffles, two exponentials and a handful of FMAs per warp.
//
// Requires: nothing beyond grid limits; any layout, any head size up to 256.
//
// Numerics, source: those of kernels/attention/naive.cu.
#include "kernels/temporal_attention/temporal_attention.h"

namespace noisefloor::temporal_attention {

Status launch_naive(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(t); !status.ok()) return status;
  return attention::launch_naive_attention(problem.shape(), dtype, t.q, t.k, t.v, t.out, nullptr, context);
}

}  // namespace noisefloor::temporal_attention
