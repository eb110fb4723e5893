// groupnorm_backward in one read of x and dy: a cluster of 1 to 16 blocks holds one image's bundle of groups of both in
// shared memory, as kernels/groupnorm's ptx_sm90a holds x. The blocks tell each other their sums of dv and dv xh; dx is
// written from the copies, and dv computed twice rather than kept in fewer bits. Of many units a cluster takes one
// after the other, in the place of rows that are done with. A second launch adds the images' sums to dgamma and dbeta.
// cluster_plan.cpp chooses bundle, cluster and threads: few where clusters take turns, since of eight rows a thread has
// half of its instructions whatever their number is.
//
// Better than tiled: three tensors are moved instead of five, and two launches take the place of four.
// Requires: bf16 or fp16; a bundle of groups that is a multiple of 8 channels and whose rows of x and dy fit the shared
// memory of 16 blocks; n * groups <= 2^21; n * channels < 2^31, half that with packed scale and shift. Honours
// programmatic dependent launch.
// Bound: memory, two reads (with residual three) and one write. Expected limiter at n=32, hw=4096, channels=192:
// instructions, some 16 an element and 26 with silu, and an exchange, as far as the SM's other blocks are not in step.
// Numerics: fp32; fusion as kernels/groupnorm's ptx_sm90a; sums of dv x lose the mean's share in the end; all in fixed
// order; silu' by tanh.approx, in fp16 by ex2.approx. Source: original.
#include "kernels/device/dispatch.cuh"
#include "kernels/groupnorm_backward/cluster.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

ClusterArguments make_arguments(const Problem& p, const Tensors& t, const ClusterPlan& plan, float* sums,
                                int sm_count) {
  ClusterArguments a{};
  fill_arguments(p, t, plan, a);
  a.sums = sums;
  a.owned = plan.owned();
  a.units = static_cast<int>(p.n) * a.bundles;
  const int resident = resident_clusters(plan, sm_count);
  a.staggered = a.units > resident ? resident : 0;
  a.stagger_cycles = static_cast<float>(2 * p.hw * plan.columns * 16) / groupnorm::kBytesPerCycle;
  return a;
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                        const LaunchContext& context) {
  const int sm_count = context.device->sm_count;
  const auto plan = context.choice.empty() ? choose_cluster_plan(p, sm_count) : parse_cluster_choice(p, context.choice);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm_backward ptx_sm90a");
  auto* const sums = static_cast<float*>(scratch.workspace);
  const Tensors t = unpacked(p, dtype, tensors);
  const ClusterArguments a = make_arguments(p, t, *plan, sums, sm_count);
  const int clusters = plan->stay ? std::min(a.units, resident_clusters(*plan, sm_count)) : a.units;
  LaunchShape shape = groupnorm::stripe_shape(*plan, clusters * plan->blocks, launch_bytes(*plan, a.units, sm_count));
  shape.cluster = plan->blocks > 1 ? static_cast<unsigned>(plan->blocks) : 0;
  shape.programmatic = context.programmatic_launch;
  const Status status = with_half_type(dtype, [&]<class T>(T) {
    const bool plain = p.fusion == Fusion::none;
    const auto kernel_of = [&]<class A, int kThreads>() {
      return plain ? cluster_kernel<T, false, A, kThreads> : cluster_kernel<T, true, A, kThreads>;
    };
    const auto of_affine = [&]<class A>() {
      return plan->wide ? kernel_of.template operator()<A, kWideThreads>()
                        : kernel_of.template operator()<A, kMaxClusterThreads>();
    };
    const auto kernel = p.fp32_affine ? of_affine.template operator()<float>() : of_affine.template operator()<T>();
    return launch_kernel("groupnorm_backward ptx_sm90a", kernel, shape, context.stream, a);
  });
  return launch_parameters(status, "groupnorm_backward parameters_kernel", p.n, p.channels, sums, t.dgamma, t.dbeta,
                           context);
}

}  // namespace noisefloor::groupnorm_backward
