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
#include "kernels/attention/naive.cuh"
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/temporal_attention/launchers.h"

namespace noisefloor::temporal_attention {

static_assert(kNaiveRows == attention::kNaiveThreads / 32, "can_run counts blocks by it");

Status launch_naive(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(t); !status.ok()) return status;
  return with_type(dtype, [&]<class T>(T) {
    const Shape shape = problem.shape();
    const auto blocks = static_cast<unsigned>((shape.rows() + kNaiveRows - 1) / kNaiveRows);
    attention::attention_naive<T><<<blocks, attention::kNaiveThreads, 0, context.stream>>>(
        shape, static_cast<const T*>(t.q), static_cast<const T*>(t.k), static_cast<const T*>(t.v),
        static_cast<T*>(t.out), nullptr);
    return launch_status("temporal_attention_naive");
  });
}

}  // namespace noisefloor::temporal_attention
