// groupnorm_backward where a cluster is too small: as kernels/groupnorm's ptx_sm90a_grid, the GPU's SMs are cut into
// teams of any number of blocks, one block an SM, and one cooperative launch takes all units, an image's bundle of
// groups each. Of x and dy a block holds what its shared memory has room for, and reads the others again. A second
// launch adds the images' sums to dgamma and dbeta. cluster_plan.cpp chooses bundle and teams.
//
// Better than tiled: x and dy are read once as far as they are held, twice else; two launches take the place of four.
// Better than ptx_sm90a on long images: rows are whole lines. Requires: bf16 or fp16; a bundle of groups that is a
// multiple of 8 channels; n * groups and n * channels <= 2^16. It does not honour programmatic dependent launch. Bound:
// memory, two reads to four and one write. Expected limiter at n=1, hw=262144, channels=128: the second reads.
// Numerics: as ptx_sm90a. Source: original.
#include "kernels/device/dispatch.cuh"
#include "kernels/groupnorm_backward/grid.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

GridArguments make_arguments(const Problem& p, const Tensors& t, const GridPlan& plan, void* workspace, int sm_count) {
  GridArguments a{};
  fill_arguments(p, t, plan, a);
  auto* words = static_cast<std::uint64_t*>(workspace);
  const auto take = [&](std::size_t count) { return std::exchange(words, words + count); };
  a.parts = take(static_cast<std::size_t>(p.n * p.channels * sm_count));
  a.results = take(static_cast<std::size_t>(p.n * p.channels));
  a.sums = reinterpret_cast<float*>(words);
  a.ranks = plan.blocks, a.teams = plan.teams;
  a.units = static_cast<int>(p.n) * a.bundles;
  a.stagger_cycles =
      static_cast<float>(2 * plan.blocks * plan.shared_rows * plan.columns * 16) / groupnorm::kBytesPerCycle;
  return a;
}

}  // namespace

Status launch_ptx_sm90a_grid(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                             const LaunchContext& context) {
  const int sm_count = context.device->sm_count;
  const auto plan =
      context.choice.empty() ? choose_grid_plan(p, sm_count) : parse_grid_choice(p, sm_count, context.choice);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm_backward ptx_sm90a_grid");
  const Tensors t = unpacked(p, dtype, tensors);
  const GridArguments a = make_arguments(p, t, *plan, scratch.workspace, sm_count);
  LaunchShape shape = groupnorm::stripe_shape(*plan, plan->teams * plan->blocks, plan->shared_bytes());
  shape.cooperative = true;
  const Status status = with_half_type(dtype, [&]<class T>(T) {
    const bool plain = p.fusion == Fusion::none;
    auto kernel = plain ? grid_kernel<T, false, T> : grid_kernel<T, true, T>;
    if (p.fp32_affine) kernel = plain ? grid_kernel<T, false, float> : grid_kernel<T, true, float>;
    return launch_kernel("groupnorm_backward ptx_sm90a_grid", kernel, shape, context.stream, a);
  });
  return launch_parameters(status, "groupnorm_backward parameters_kernel", p.n, p.channels, a.sums, t.dgamma, t.dbeta,
                           context);
}

}  // namespace noisefloor::groupnorm_backward
