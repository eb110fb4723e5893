// How the kernels of ptx_sm90a are launched: their maps and arguments, of a schedule. Host code of .cu files.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/gemm/launchers.h"
#include "kernels/gemm/ptx_sm90a.cuh"
#include "kernels/gemm/schedule.h"

namespace noisefloor::gemm {
namespace {

// A's and B's maps. Of a matrix whose rows are k, neighbours bring an equal part of a step's rows each.
template <class L, Layout kLayout>
Status encode_operands(CUtensorMap& map_a, CUtensorMap& map_b, const Problem& problem, DType dtype,
                       const Tensors& tensors, const Schedule& schedule, int second_half) {
  constexpr product::Majors kMajors = majors_of(kLayout, L::kShape);
  const int share_a = schedule.multicast_a, share_b = schedule.multicast;
  MatrixMap a{dtype, tensors.a, problem.m, problem.k, L::kShape.block_m() / share_a, kBlockK};
  if (kMajors.a) a = {dtype, tensors.a, problem.k, problem.m, kBlockK / share_a, 64};
  MatrixMap b{
      dtype,  tensors.b, problem.b_rows(), problem.k, product::b_box_rows(L::kShape.block_n, share_b, second_half),
      kBlockK};
  if (kMajors.b) b = {dtype, tensors.b, problem.k, problem.n, kBlockK / share_b, kMajors.b_columns};
  if (const Status status = encode_tensor_map(map_a, a); !status.ok()) return status;
  return encode_tensor_map(map_b, b);
}

// D's, the residual's and the blend's; what a problem lacks has D's. An fp32 D is stored without any.
template <class L>
Status encode_outputs(CUtensorMap& map_d, CUtensorMap& map_residual, CUtensorMap& map_blend, const Problem& problem,
                      DType dtype, const Tensors& tensors, const Schedule& schedule) {
  const int tile_columns = problem.gated() ? L::kShape.block_n / 2 : L::kShape.block_n;
  const auto pieces_of = [&](const void* data, int rows) {  // as D is stored
    return MatrixMap{
        dtype, data, problem.m, problem.n, rows, store_columns(tile_columns), store_swizzled(tile_columns)};
  };
  MatrixMap d = pieces_of(tensors.d, 64);
  d.columns = problem.part(), d.count = problem.parts();
  Status status = encode_tensor_map(map_d, d);
  map_residual = map_blend = map_d;
  // Where the tile is split, a block reads the residual of its share of rows only, all columns of it at once.
  MatrixMap residual = pieces_of(tensors.residual, L::kShape.pingpong ? 64 : L::kShape.block_m() / schedule.splits);
  if (schedule.splits > 1) residual.box_columns = tile_columns, residual.swizzle = false;
  if (status.ok() && problem.residual) status = encode_tensor_map(map_residual, residual);
  return status.ok() && problem.blend ? encode_tensor_map(map_blend, pieces_of(tensors.blend, 64)) : status;
}

// `parts` of k, one after the other.
template <class T, int kTile, Layout kLayout>
Status launch_tile(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule, int parts,
                   const LaunchContext& context) {
  using L = BlockLayout<kTile>;
  const int second_half = problem.gated() ? static_cast<int>(problem.n) : L::kShape.block_n / 2;
  CUtensorMap map_a{}, map_b{}, map_d{}, map_residual{}, map_blend{};
  if (const Status status = encode_operands<L, kLayout>(map_a, map_b, problem, dtype, tensors, schedule, second_half);
      !status.ok())
    return status;
  if constexpr (kLayout != Layout::tn)
    if (const Status status = encode_outputs<L>(map_d, map_residual, map_blend, problem, dtype, tensors, schedule);
        !status.ok())
      return status;
  const std::int64_t k_steps = (problem.k + kBlockK - 1) / kBlockK;
  const Arguments<T> arguments{Epilogue<T>(problem, tensors),
                               static_cast<T*>(tensors.d),
                               static_cast<int>(problem.m),
                               static_cast<int>(problem.n),
                               static_cast<int>(k_steps),
                               {schedule.m_clusters, schedule.n_clusters()},
                               static_cast<int>(schedule.n_tiles / problem.parts()),
                               second_half,
                               schedule.stages,
                               product::early_stages(context, schedule.stages),
                               schedule.multicast,
                               schedule.multicast_a,
                               product::dsmem_of(schedule, part_steps(problem, parts), L::kDsmemStages),
                               schedule.splits};

  const LaunchShape shape{.grid = static_cast<unsigned>(parts > 1 ? schedule.blocks() * parts : schedule.grid),
                          .block = L::kThreads,
                          .shared_bytes = static_cast<std::size_t>(L::bytes(schedule.stages_of_room(L::kShape))),
                          .shared_limit = static_cast<std::size_t>(L::bytes(L::kShape.deep_stages)),
                          .cluster = static_cast<unsigned>(schedule.cluster()),
                          .programmatic = context.programmatic_launch};
  const auto launch = [&](auto* kernel, const auto& given) {
    return launch_kernel("gemm_ptx_sm90a", kernel, shape, context.stream, map_a, map_b, map_d, map_residual, map_blend,
                         given);
  };
  if constexpr (kLayout == Layout::nt)
    return launch(gemm_ptx_sm90a<T, kTile>, arguments);
  else
    return launch(gemm_ptx_sm90a_gradient<T, kTile, kLayout>,
                  GradientArguments<T>{arguments, tensors.row_sums, parts * schedule.splits});
}

template <Layout kLayout>
Status launch_schedule(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                       const LaunchContext& context, int parts = 1) {
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kTiles.size()>(schedule.tile, [&]<int kTile>() {
      if constexpr (takes(kLayout, kTiles[kTile]))
        return launch_tile<T, kTile, kLayout>(problem, dtype, tensors, schedule, parts, context);
      else
        return failure(StatusCode::invalid_argument, "gemm: no such tile");
    });
  });
}

}  // namespace
}  // namespace noisefloor::gemm
