// The launcher of ptx_sm90a (its kernel: ptx_sm90a.cuh): its maps and arguments, of a schedule.
#include "kernels/gemm/ptx_sm90a.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/tensor_map.h"
#include "kernels/gemm/launchers.h"
#include "kernels/gemm/schedule.h"

namespace noisefloor::gemm {
namespace {

template <class T, int kTile>
Status launch_tile(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                   const LaunchContext& context) {
  using L = BlockLayout<kTile>;
  CUtensorMap map_a;
  CUtensorMap map_b;
  if (const Status status = encode_tensor_map(
          map_a, {dtype, tensors.a, problem.m, problem.k, L::kShape.block_m() / schedule.multicast_a, kBlockK});
      !status.ok())
    return status;
  const int second_half = problem.gated() ? static_cast<int>(problem.n) : L::kShape.block_n / 2;
  const int box_rows = product::b_box_rows(L::kShape.block_n, schedule.multicast, second_half);
  if (const Status status =
          encode_tensor_map(map_b, {dtype, tensors.b, problem.b_rows(), problem.k, box_rows, kBlockK});
      !status.ok())
    return status;
  const int tile_columns = problem.gated() ? L::kShape.block_n / 2 : L::kShape.block_n;
  CUtensorMap map_d;
  if (const Status status =
          encode_tensor_map(map_d, {dtype, tensors.d, problem.m, problem.part(), 64, store_columns(tile_columns),
                                    store_swizzled(tile_columns), problem.parts()});
      !status.ok())
    return status;
  // Where the tile is split, a block reads the residual of its share of rows only, all columns of it at once.
  CUtensorMap map_residual = map_d;
  if (problem.residual) {
    const MatrixMap whole{dtype,
                          tensors.residual,
                          problem.m,
                          problem.n,
                          L::kShape.pingpong ? 64 : L::kShape.block_m(),
                          store_columns(tile_columns),
                          store_swizzled(tile_columns)};
    const MatrixMap share{
        dtype, tensors.residual, problem.m, problem.n, L::kShape.block_m() / schedule.splits, tile_columns, false};
    if (const Status status = encode_tensor_map(map_residual, schedule.splits > 1 ? share : whole); !status.ok())
      return status;
  }
  CUtensorMap map_blend = map_d;
  if (problem.blend) {
    const MatrixMap whole{
        dtype, tensors.blend, problem.m, problem.n, 64, store_columns(tile_columns), store_swizzled(tile_columns)};
    if (const Status status = encode_tensor_map(map_blend, whole); !status.ok()) return status;
  }
  const Arguments<T> arguments{Epilogue<T>(problem, tensors),
                               static_cast<T*>(tensors.d),
                               static_cast<int>(problem.m),
                               static_cast<int>(problem.n),
                               static_cast<int>((problem.k + kBlockK - 1) / kBlockK),
                               {schedule.m_clusters, schedule.n_clusters()},
                               static_cast<int>(schedule.n_tiles / problem.parts()),
                               second_half,
                               schedule.stages,
                               product::early_stages(context, schedule.stages),
                               schedule.multicast,
                               schedule.multicast_a,
                               product::dsmem_of(schedule, (problem.k + kBlockK - 1) / kBlockK, L::kDsmemStages),
                               schedule.splits};

  const LaunchShape shape{.grid = static_cast<unsigned>(schedule.grid),
                          .block = L::kThreads,
                          .shared_bytes = static_cast<std::size_t>(L::bytes(schedule.stages_of_room(L::kShape))),
                          .shared_limit = static_cast<std::size_t>(L::bytes(L::kShape.deep_stages)),
                          .cluster = static_cast<unsigned>(schedule.cluster()),
                          .programmatic = context.programmatic_launch};
  return launch_kernel("gemm_ptx_sm90a", gemm_ptx_sm90a<T, kTile>, shape, context.stream, map_a, map_b, map_d,
                       map_residual, map_blend, arguments);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                        const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  const int sms = context.device->sm_count;
  const auto schedule = context.choice.empty() ? choose(problem, sms) : model_of(problem).parse(context.choice, sms);
  if (!schedule) return failure(StatusCode::invalid_argument, "gemm: no such schedule");
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kTiles.size()>(schedule->tile, [&]<int kTile>() {
      return launch_tile<T, kTile>(problem, dtype, tensors, *schedule, context);
    });
  });
}

}  // namespace noisefloor::gemm
