// groupnorm in one read and one write: a cluster of 1 to 16 blocks holds one image's bundle of groups in shared memory
// and registers. Each block fetches its rows once, sums what it holds, sends its moments to the other blocks through
// distributed shared memory, and writes y from the same copy. cluster_plan.cpp chooses bundle, cluster and threads.
//
// Better than tiled and tensor_core_sm80: x is read once instead of twice, all of it in flight at once, and one launch
// takes the place of three. A skip is read where it lies, each thread reading one of the two tensors. With down_w a
// thread's rows are quads of pixels, whose means it writes itself: of x as they arrive, of y in the end.
//
// Requires: bf16 or fp16; a bundle of groups that is a multiple of 8 channels and whose rows fit the shared memory and
// registers of 16 blocks; skip_channels a multiple of 8; n * groups <= 2^21; n * channels < 2^31, half that with packed
// scale and shift. Honours programmatic dependent launch, but where blocks that all run at once share SMs.
// Bound: memory, one read and one write. Expected limiter at n=32, hw=4096, channels=576: the start, when all blocks
// load, and the end, when all write.
// Numerics: fp32; moments about a value of the group in the thread's first row, merged by Chan's formula; silu by
// tanh.approx. Source: original; one pass over groups held on chip after NVIDIA apex's group_norm_nhwc.
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/cluster.cuh"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {
namespace {

ClusterArguments make_arguments(const Problem& p, const Tensors& t, const ClusterPlan& plan, int sm_count) {
  ClusterArguments a{};
  static_cast<StripeArguments&>(a) = make_stripe_arguments(p, t, plan, plan.pixels);
  const auto units = static_cast<int>(p.n) * a.bundles;
  const int resident = resident_clusters(plan, sm_count);
  a.early = 2 * units <= resident;  // half of the GPU is free: the next launch need not wait for these blocks
  a.staggered = units > resident ? resident : 0;
  a.x_channels = static_cast<int>(p.x_channels());
  a.quads = make_quads(p);
  a.stagger_cycles = static_cast<float>(p.hw * plan.columns * 16) / kBytesPerCycle;
  return a;
}

template <class T, bool kActivate, int kHeld>
Status launch_held(const ClusterArguments& a, const ClusterPlan& plan, const Problem& p, const LaunchContext& context) {
  const int units = static_cast<int>(p.n) * a.bundles;
  const ClusterResidence residence = cluster_residence(plan, units, context.device->sm_count);
  LaunchShape shape = stripe_shape(plan, units * plan.blocks, residence.shared_bytes);
  shape.cluster = plan.blocks > 1 ? static_cast<unsigned>(plan.blocks) : 0;
  shape.programmatic = context.programmatic_launch && residence.programmatic;
  auto kernel = p.fp32_affine         ? cluster_kernel<T, kActivate, kHeld, Row::of_x, float>
                : a.t.skip != nullptr ? cluster_kernel<T, kActivate, kHeld, Row::of_two, T>
                                      : cluster_kernel<T, kActivate, kHeld, Row::of_x, T>;
  if constexpr (kHeld % kQuad == 0) {
    if (a.t.x_down != nullptr) kernel = cluster_kernel<T, kActivate, kHeld, Row::quad, T>;
  }
  return launch_kernel("groupnorm ptx_sm90a", kernel, shape, context.stream, a);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  if (!p.reads_x() && context.choice.empty()) return launch_finish_sm90a(p, dtype, t, context);
  const auto plan = context.choice.empty() ? choose_cluster_plan(p, context.device->sm_count)
                                           : parse_cluster_choice(p, context.choice);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm ptx_sm90a");
  const ClusterArguments a = make_arguments(p, unpacked(p, dtype, t), *plan, context.device->sm_count);
  return with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kHeldByPairs / 2 + 1>(plan->held / 2, [&]<int kHalf>() {
      const auto launch = p.fusion == Fusion::none ? launch_held<T, false, 2 * kHalf> : launch_held<T, true, 2 * kHalf>;
      return launch(a, *plan, p, context);
    });
  });
}

}  // namespace noisefloor::groupnorm
