// groupnorm where a cluster is too small or its clusters too few, in one read and one write, or two reads of what no SM
// holds in whole lines: the SMs are cut into teams of any number of blocks, and one cooperative launch, one block an
// SM, takes all images. A unit of work is one image's bundle of groups, its rows shared out over the blocks of a team;
// team t takes units t, t + teams, ... While a block writes a unit it fetches rows of the next. grid_plan.cpp chooses.
//
// Better than ptx_sm90a on images whose groups fill 16 blocks or do not fit them: a team is not bound to one GPC's 16
// blocks, so that few SMs stay idle, its blocks hold more, and its rows are whole lines where the problem lets them.
//
// Requires: bf16 or fp16; a bundle of groups that is a multiple of 8 channels; n * groups <= 2^16; n * channels < 2^31,
// half that with packed scale and shift. It does not honour programmatic dependent launch.
// Bound: memory. Expected limiter where rows are held: the skew between the blocks of a team, each of which waits for
// the slowest.
// Numerics: as ptx_sm90a. Source: original.
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/grid.cuh"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {
namespace {

GridArguments make_arguments(const Problem& p, const Tensors& t, const GridPlan& plan, void* workspace) {
  const ClusterPlan& stripe = plan.stripe;
  GridArguments a{};
  static_cast<StripeArguments&>(a) = make_stripe_arguments(p, t, stripe);
  a.ranks = stripe.blocks;
  a.teams = plan.teams;
  a.units = static_cast<int>(p.n) * a.bundles;
  const std::int64_t held_rows = std::int64_t{stripe.blocks} * (stripe.rows - plan.streamed_rows());
  a.stagger_cycles = static_cast<float>(held_rows * stripe.columns * 16) / kBytesPerCycle;
  a.parts = static_cast<std::uint64_t*>(workspace);
  a.results = a.parts + grid_part_words(p, stripe.blocks);
  return a;
}

template <class T, bool kActivate, int kHeld>
Status launch(const GridArguments& a, const GridPlan& plan, bool fp32_affine, const LaunchContext& context) {
  LaunchShape shape = stripe_shape(plan.stripe, plan.blocks(), plan.shared_bytes());
  shape.cooperative = true;
  const auto kernel = fp32_affine ? grid_kernel<T, kActivate, kHeld, float> : grid_kernel<T, kActivate, kHeld, T>;
  return launch_kernel("groupnorm ptx_sm90a_grid", kernel, shape, context.stream, a);
}

}  // namespace

Status launch_ptx_sm90a_grid(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                             const LaunchContext& context) {
  const int sm_count = context.device->sm_count;
  const auto plan =
      context.choice.empty() ? choose_grid_plan(p, sm_count) : parse_grid_choice(p, sm_count, context.choice);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm ptx_sm90a_grid");
  const GridArguments a = make_arguments(p, unpacked(p, dtype, t), *plan, scratch.workspace);
  return with_half_type(dtype, [&]<class T>(T) {
    const bool none = p.fusion == Fusion::none;
    const auto run = plan->stripe.held == 0 ? (none ? launch<T, false, 0> : launch<T, true, 0>)
                                            : (none ? launch<T, false, kGridHeld> : launch<T, true, kGridHeld>);
    return run(a, *plan, p.fp32_affine, context);
  });
}

}  // namespace noisefloor::groupnorm
