// One read, one write: a cluster of blocks holds one image's bundle of groups in shared memory and registers.
//
// Better than tiled and tensor_core_sm80, which read x twice and run three kernels: each block fetches its rows of the
// bundle once, all of it in flight at once, takes the statistics from there, tells them to the other blocks of the
// cluster through distributed shared memory, and writes y from the same copy. One launch, so that a small problem costs
// one launch latency.
//
// Work unit: one image, one bundle of groups (a multiple of 16 bytes of each row); its rows are shared out over a
// cluster of 1 to 16 blocks. cluster_plan.cpp chooses, as a pure function that the host tests: by a table of plans that
// were timed (measured_plans.cpp), else by an estimate.
//
// Steps: 1. Fetch: the first 0, 2, 4 or 6 rows of each thread to registers, the others to shared memory (cp.async, in
// up to 4 commit groups); parameters prefetched to L2. 2. Each thread sums x - shift and its squares over the 16 bytes
// (8 channels) of the rows that it has fetched itself, the first while the last travel, with no barrier between, and
// leaves mean and M2 of each of the two groups that 8 channels lie in. 3. 16 lanes per group merge them (Chan's
// formula) into the block's mean and M2 and store those into every block of the cluster, on an mbarrier. 4. Each block
// merges the moments of the blocks and writes fusion(x * a + b).
//
// Waves: where more clusters are launched than fit, the first that do start one after another, as fast as memory can
// serve them: in step, all would load, then all reduce, then all write, and memory would idle in between.
//
// Programmatic dependent launch: barrier, indices and L2 prefetch of parameters come before griddepcontrol.wait, every
// load of a tensor and every write behind it. The next launch may start when this one's rows have arrived, if both fit
// the GPU at once; else when it begins to write: a launch that starts beside a full GPU fills the SMs unevenly.
//
// Tile: rows x bundle, unpadded: a warp reads consecutive 16 bytes. Threads: 64 to 480.
//
// Shared memory at n=32, hw=4096, channels=576 in bundles of 8 groups and clusters of 16 blocks of 14 rows of 18
// threads: 256 - 4 * 14 rows * 18 * 16 bytes = 56.3 KiB; moments of the threads 18 * 2 * 15 * 8 = 4320 bytes, of the
// blocks 17 * 8 * 8 = 1088: 3 blocks an SM, where without rows in registers 2 fit.
// Registers: 56 (16 sums, 8 shifts, 8 values; then 16 coefficients, 8 values), and 4 for each row held.
// At n=28, hw=9216, channels=960, 4 groups of 576 rows are 135 KiB a block: with 6 * 25 rows in 80 registers, 106 KiB
// of shared memory, 2 blocks an SM instead of 1.
//
// SiLU: one tanh.approx an element: silu(v) = v / 2 * (1 + tanh(v / 2)), the halves folded into a and b: one special
// function and one multiply-add, where an exponential and a reciprocal take two and four more instructions.
//
// Bound: memory, one read and one write. Limiter at that problem: the start, when all load, and the end, when all
// write.
//
// Requirements: sm_90a; bf16 or fp16; some bundle of groups that is a multiple of 8 channels and whose hw rows fit the
// shared memory of 16 blocks (16 * 227 KiB, less the moments, and what registers hold); n * groups <= 2^21;
// n * channels < 2^31, half that with scale and shift packed. Honours programmatic dependent launch.
//
// Numerics: fp32; shift is a value of the group in the thread's first row, M2 = sum of squares - sum^2 / count about
// it: a shift s standard deviations off the mean costs 2 log2(s) of the 24 bits. tanh.approx puts silu off by
// 1e-5 at most (found by trying 2e5 arguments in each half unit), a thirtieth of fp16's tolerance.
//
// Source: original. One pass over groups held on chip: the idea of NVIDIA apex's group_norm_nhwc.
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/cluster.cuh"
#include "kernels/groupnorm/launchers.h"

namespace noisefloor::groupnorm {
namespace {

ClusterArguments make_arguments(const Problem& p, const Tensors& t, const ClusterPlan& plan, int sm_count) {
  ClusterArguments a{};
  static_cast<StripeArguments&>(a) = make_stripe_arguments(p, t, plan);
  const auto units = static_cast<int>(p.n) * a.bundles;
  const int resident = resident_clusters(plan, sm_count);
  a.early = 2 * units <= resident;  // where the next launch fits beside this one, it need not wait for its blocks
  a.staggered = units > resident ? resident : 0;
  a.stagger_cycles = static_cast<float>(p.hw * plan.columns * 16) / kBytesPerCycle;
  return a;
}

template <class T, bool kActivate, int kHeld>
Status launch_held(const ClusterArguments& a, int images, const LaunchContext& context) {
  const LaunchShape shape{.grid = static_cast<unsigned>(images * a.bundles * a.plan.blocks),
                          .block = dim3(static_cast<unsigned>(a.plan.columns), static_cast<unsigned>(a.plan.tile_rows)),
                          .shared_bytes = static_cast<std::size_t>(a.plan.shared_bytes()),
                          .shared_limit = kSharedBytesPerBlock,
                          .cluster = a.plan.blocks > 1 ? static_cast<unsigned>(a.plan.blocks) : 0,
                          .programmatic = context.programmatic_launch};
  return launch_kernel("groupnorm ptx_sm90a", cluster_kernel<T, kActivate, kHeld>, shape, context.stream, a);
}

template <class T, bool kActivate>
Status launch_cluster(const ClusterArguments& a, int images, const LaunchContext& context) {
  switch (a.plan.held) {
    case 2:
      return launch_held<T, kActivate, 2>(a, images, context);
    case 4:
      return launch_held<T, kActivate, 4>(a, images, context);
    case kHeldByPairs:
      return launch_held<T, kActivate, kHeldByPairs>(a, images, context);
    default:
      return launch_held<T, kActivate, 0>(a, images, context);
  }
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  const auto plan = choose_cluster_plan(p, context.device->sm_count);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm ptx_sm90a");
  return launch_cluster_plan(p, dtype, t, *plan, context);
}

Status launch_cluster_plan(const Problem& p, DType dtype, const Tensors& t, const ClusterPlan& plan,
                           const LaunchContext& context) {
  const ClusterArguments a = make_arguments(p, unpacked(p, dtype, t), plan, context.device->sm_count);
  const auto images = static_cast<int>(p.n);
  if (p.fusion == Fusion::none)
    return dtype == DType::bf16 ? launch_cluster<__nv_bfloat16, false>(a, images, context)
                                : launch_cluster<__half, false>(a, images, context);
  return dtype == DType::bf16 ? launch_cluster<__nv_bfloat16, true>(a, images, context)
                              : launch_cluster<__half, true>(a, images, context);
}

}  // namespace noisefloor::groupnorm
