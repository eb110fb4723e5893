// One read, one write: a cluster of blocks holds one image's bundle of groups in shared memory.
//
// Better than tiled and tensor_core_sm80, which read x twice and run three kernels: each block copies its rows of the
// bundle to shared memory once (cp.async, all of it in flight at once), takes the statistics from there, tells them to
// the other blocks of the cluster through distributed shared memory, and writes y from the same copy. One launch, so
// that a small problem costs one launch latency.
//
// Work unit: one image, one bundle of groups (a multiple of 16 bytes of each row); its rows are shared out over a
// cluster of 1 to 16 blocks. cluster_plan.cpp chooses, as a pure function that the host tests.
//
// Steps: 1. Copy, in up to 4 commit groups; parameters prefetched to L2. 2. Each thread sums x - shift and its squares
// over the 16 bytes (8 channels) that it has copied itself, the first rows while the last ones travel, with no barrier
// between; it leaves one pair of sums for each of the two groups that 8 channels lie in. 3. 16 lanes per group make the
// block's mean and M2 and store them into every block of the cluster, on an mbarrier. 4. Each block merges the moments
// (Chan's formula) and writes fusion(x * a + b).
//
// Tile: rows x bundle, unpadded: a warp reads consecutive 16 bytes. Threads: 64 to 480.
//
// Shared memory at n=32, hw=4096, channels=384 in bundles of 8 groups and clusters of 16 blocks of 288 threads: 256
// rows * 12 * 16 bytes = 48 KiB; sums 12 * 2 * 25 * 8 = 4800 bytes; moments 17 * 8 * 8 = 1088 bytes: 4 blocks an SM.
// Registers: 56 (16 sums, 8 shifts, 8 values; then 16 coefficients, 8 values).
//
// SiLU: one tanh.approx an element: silu(v) = v / 2 * (1 + tanh(v / 2)), the halves folded into a and b: one special
// function and one multiply-add, where an exponential and a reciprocal take two and four more instructions.
//
// Bound: memory, one read and one write. Limiter at that problem: latency; a block copies, sums, waits for its cluster
// and writes in turn, and the few blocks of an SM overlap these phases only in part.
//
// Requirements: sm_90a; bf16 or fp16; some bundle of groups that is a multiple of 8 channels and whose hw rows fit the
// shared memory of 16 blocks (16 * 227 KiB, less the sums); n * groups <= 2^21; n * channels < 2^31.
//
// Numerics: fp32; shift is the group's first value in the block, M2 = sum of squares - sum^2 / count about it: a shift
// s standard deviations off the mean costs 2 log2(s) of the 24 bits. tanh.approx puts silu off by
// 1e-5 at most (found by trying 2e5 arguments in each half unit), a thirtieth of fp16's tolerance.
//
// Source: original. One pass over groups held on chip: the idea of NVIDIA apex's group_norm_nhwc.
#include "kernels/core/cuda_status.h"
#include "kernels/groupnorm/cluster.cuh"
#include "kernels/groupnorm/launchers.h"

namespace noisefloor::groupnorm {
namespace {

ClusterArguments make_arguments(const Problem& p, const Tensors& t, const ClusterPlan& plan) {
  ClusterArguments a{};
  a.t = t;
  a.hw = static_cast<int>(p.hw);
  a.channels = static_cast<int>(p.channels);
  a.bundles = static_cast<int>(p.groups) / plan.bundle;
  a.width = static_cast<int>(p.channels_per_group());
  const int accesses = (plan.rows + plan.tile_rows - 1) / plan.tile_rows;
  a.stages = accesses >= 2 * kStages ? kStages : 1;
  a.stage_accesses = (accesses + a.stages - 1) / a.stages;
  a.eps = static_cast<float>(p.eps);
  a.size_inverse = static_cast<float>(1.0 / static_cast<double>(p.group_size()));
  a.bundles_inverse = 1.0f / static_cast<float>(a.bundles);
  a.width_inverse = 1.0f / static_cast<float>(a.width);
  a.plan = plan;
  return a;
}

template <class T, bool kActivate>
Status launch_cluster(const ClusterArguments& a, int images, cudaStream_t stream) {
  const auto kernel = cluster_kernel<T, kActivate>;
  NOISEFLOOR_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytesPerBlock));
  NOISEFLOOR_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(a.plan.blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(images * a.bundles * a.plan.blocks));
  config.blockDim = dim3(static_cast<unsigned>(a.plan.columns), static_cast<unsigned>(a.plan.tile_rows));
  config.dynamicSmemBytes = static_cast<std::size_t>(a.plan.shared_bytes());
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = a.plan.blocks > 1 ? 1 : 0;
  const cudaError_t launched = cudaLaunchKernelEx(&config, kernel, a);
  if (launched != cudaSuccess) static_cast<void>(cudaGetLastError());  // returned here, so not left for the next launch
  return cuda_status(launched, "groupnorm ptx_sm90a");
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  const auto plan = choose_cluster_plan(p, context.device->sm_count);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm ptx_sm90a");
  const ClusterArguments a = make_arguments(p, t, *plan);
  const auto images = static_cast<int>(p.n);
  if (p.fusion == Fusion::none)
    return dtype == DType::bf16 ? launch_cluster<__nv_bfloat16, false>(a, images, context.stream)
                                : launch_cluster<__half, false>(a, images, context.stream);
  return dtype == DType::bf16 ? launch_cluster<__nv_bfloat16, true>(a, images, context.stream)
                              : launch_cluster<__half, true>(a, images, context.stream);
}

}  // namespace noisefloor::groupnorm
