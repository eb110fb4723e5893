// The tensor maps of the ptx_sm90a kernels of attention, heads read and written where they lie, by strides; and the
// other argument.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/ptx_sm90a_tile.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"

namespace noisefloor::attention {

// Boxes of `rows` tokens of one head, 64 elements wide; elements past the head size and tokens past `seq` are zeros.
inline Status encode_view(CUtensorMap& map, DType dtype, const void* data, const Shape& shape, const View& view,
                          std::int64_t seq, int rows) {
  const void* start = static_cast<const char*>(data) + view.offset * static_cast<std::int64_t>(size_of(dtype));
  return encode_strided_map(map, StridedMap{dtype,
                                            start,
                                            4,
                                            {shape.dim, shape.heads, seq, shape.outer},
                                            {view.head, view.seq, view.outer},
                                            {64, 1, rows, 1}});
}

struct Maps {
  CUtensorMap q, k, v, out;
};

// Boxes of `query_rows` queries, `key_rows` keys, `value_rows` values, and 64 outputs.
inline Status encode_maps(Maps& maps, DType dtype, const Shape& shape, const Tensors& t, int query_rows, int key_rows,
                          int value_rows) {
  if (const Status s = encode_view(maps.q, dtype, t.q, shape, shape.q, shape.seq_q, query_rows); !s.ok()) return s;
  if (const Status s = encode_view(maps.k, dtype, t.k, shape, shape.k, shape.seq_kv, key_rows); !s.ok()) return s;
  if (const Status s = encode_view(maps.v, dtype, t.v, shape, shape.v, shape.seq_kv, value_rows); !s.ok()) return s;
  return encode_view(maps.out, dtype, t.out, shape, shape.out, shape.seq_q, 64);
}

inline Arguments make_arguments(const Problem& problem, const Tensors& t, const Sharing& sharing) {
  return {.heads = static_cast<int>(problem.heads),
          .seq_q = static_cast<int>(problem.seq_q),
          .seq_kv = static_cast<int>(problem.seq_kv),
          .scale_log2 = problem.shape().scale * kLog2E,
          .lse = t.lse,
          .out = t.out,
          .dim = static_cast<int>(problem.dim),
          .sharing = sharing};
}

// Launches `blocks` blocks of `threads`, in clusters as `sharing` says; a tile is of `query_rows` queries of a head,
// which takes keys `key_rows` at a time.
inline Status launch_mapped(const char* name, void (*kernel)(Maps, Arguments), int query_rows, int key_rows,
                            int threads, std::size_t shared_bytes, const Problem& problem, DType dtype,
                            const Tensors& t, const LaunchContext& context, std::int64_t blocks,
                            const Sharing& sharing = {}) {
  Maps maps;
  if (const Status s = encode_maps(maps, dtype, problem.shape(), t, query_rows, key_rows, key_rows); !s.ok()) return s;
  const LaunchShape launch{.grid = static_cast<unsigned>(blocks),
                           .block = static_cast<unsigned>(threads),
                           .shared_bytes = shared_bytes,
                           .shared_limit = shared_bytes,
                           .cluster = sharing.splits > 1 ? static_cast<unsigned>(sharing.splits) : 0,
                           .programmatic = context.programmatic_launch};
  return launch_kernel(name, kernel, launch, context.stream, maps, make_arguments(problem, t, sharing));
}

}  // namespace noisefloor::attention
