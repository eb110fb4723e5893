// One read, one write, where a cluster is too small or its clusters too few: the GPU's SMs are cut into teams of any
// number of blocks, and one launch takes all images.
//
// Better than ptx_sm90a on images whose groups fill 16 blocks or do not fit them: a team is not bound to the 16 blocks
// of one GPC, so that few SMs stay idle (6 of 132 at 9 teams of 14; clusters of 16 reach 112), its blocks hold more
// (227 KiB of shared memory and 128 of registers, against 276 KiB of two blocks in 112 SMs), and its rows are as wide
// as can be, whole lines where the problem lets them.
//
// Work unit: one image, one bundle of groups (a multiple of 16 bytes of each row), its rows shared out over the blocks
// of one team; team t takes units t, t + teams, ... grid_plan.cpp chooses, as a pure function that the host tests.
//
// Steps: 1. Each block unsets the words in which it will tell its moments, and arrives at the grid's barrier. 2. Fetch:
// the first 16 rows of each thread to registers, the others to shared memory (cp.async, in up to 4 commit groups); wait
// for the barrier. 3. Each thread sums the rows that it has fetched itself, as in ptx_sm90a. 4. 16 lanes per group
// merge them (Chan's formula) and publish the block's mean and M2, one 8-byte word that says by itself that it is
// there. One warp of one block per group merges the team's and publishes mean and rstd, for which all blocks of the
// team wait.
// 5. Each thread writes fusion(x * a + b) row by row and fetches the same row of the team's next unit in its place:
// loads overlap with writes. Then 3 again.
//
// Teams: between its last load and its first write a team leaves memory idle for 8 us or more. Teams start one after
// another, as fast as memory can serve them, so that others use it.
//
// Launch: cooperative, one block an SM, so that waiting for each other cannot deadlock. It does not honour programmatic
// dependent launch.
//
// Shared memory at n=28, hw=9216, channels=960: 9 teams of 14 blocks, bundles of 8 groups, 480 bytes: 659 rows a block,
// 16 * 17 of them in registers, 387 * 480 = 181.4 KiB; moments of the threads 30 * 2 * 17 * 8 = 8160 bytes, of the
// groups 64. Registers: 128, 64 of them for held rows.
//
// Bound: memory, one read and one write. Limiter there: the skew between the blocks of a team, each of which waits for
// the slowest; at n=2, hw=129024, channels=320 also that only two teams fit.
//
// Requirements: sm_90a; bf16 or fp16; some bundle of groups that is a multiple of 8 channels and whose hw rows fit the
// shared memory and registers of 78 SMs (about 27 MB); n * groups <= 2^16; n * channels < 2^31, half that with scale
// and shift packed.
//
// Numerics: as ptx_sm90a.
//
// Source: original.
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/grid.cuh"
#include "kernels/groupnorm/launchers.h"

namespace noisefloor::groupnorm {
namespace {

GridArguments make_arguments(const Problem& p, const Tensors& t, const GridPlan& plan, void* workspace) {
  const ClusterPlan& stripe = plan.stripe;
  GridArguments a{};
  static_cast<StripeArguments&>(a) = make_stripe_arguments(p, t, stripe);
  a.ranks = stripe.blocks;
  a.teams = plan.teams;
  a.units = static_cast<int>(p.n) * a.bundles;
  a.stagger_cycles = static_cast<float>(p.hw * stripe.columns * 16) / kBytesPerCycle;
  a.parts = static_cast<std::uint64_t*>(workspace);
  a.results = a.parts + grid_part_words(p, plan);
  return a;
}

template <class T, bool kActivate>
Status launch(const GridArguments& a, const GridPlan& plan, const LaunchContext& context) {
  const LaunchShape shape{
      .grid = static_cast<unsigned>(plan.blocks()),
      .block = dim3(static_cast<unsigned>(plan.stripe.columns), static_cast<unsigned>(plan.stripe.tile_rows)),
      .shared_bytes = static_cast<std::size_t>(plan.shared_bytes()),
      .shared_limit = kSharedBytesPerBlock,
      .cooperative = true};
  return launch_kernel("groupnorm ptx_sm90a_grid", grid_kernel<T, kActivate>, shape, context.stream, a);
}

}  // namespace

Status launch_ptx_sm90a_grid(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                             const LaunchContext& context) {
  const auto plan = choose_grid_plan(p, context.device->sm_count);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm ptx_sm90a_grid");
  const GridArguments a = make_arguments(p, unpacked(p, dtype, t), *plan, scratch.workspace);
  if (p.fusion == Fusion::none)
    return dtype == DType::bf16 ? launch<__nv_bfloat16, false>(a, *plan, context)
                                : launch<__half, false>(a, *plan, context);
  return dtype == DType::bf16 ? launch<__nv_bfloat16, true>(a, *plan, context)
                              : launch<__half, true>(a, *plan, context);
}

}  // namespace noisefloor::groupnorm
