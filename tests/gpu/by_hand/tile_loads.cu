// What an SM takes in per k-step of a small product, by tile and by how many blocks share a load. Run by hand; no test.
//
//   nvcc -gencode=arch=compute_90a,code=sm_90a -O2 -std=c++20 -cudart static -I. tests/gpu/by_hand/tile_loads.cu
//
// Blocks load tiles of A [64 rows] and B [`rows_b` rows] of 64 bf16 a row through a ring, as kernels/product does, and
// multiply nothing. `share_a` neighbours in n take a part of A's rows each and send it to all of them; `share_b`
// neighbours in m do so with B. All operands fit L2. A line has the time of a step (the difference of 60 and 15 steps),
// and the bytes that arrive in an SM, and that it asks L2 for, a nanosecond.
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/tma.cuh"

namespace {

namespace ptx = noisefloor::ptx;

constexpr int kRowsA = 64, kRowBytes = 128, kStepColumns = 64;
constexpr int kMostSteps = 60, kFewSteps = 15;
constexpr int kSharedBytes = 200 * 1024, kMostStages = 16;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "tile_loads: error: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

struct Shape {
  int rows_b, share_a, share_b, m_tiles, n_tiles;

  int cluster() const { return share_a * share_b; }
  int blocks() const { return m_tiles * n_tiles; }
  __host__ __device__ int stage_bytes() const { return (kRowsA + rows_b) * kRowBytes; }
  int asked_bytes() const { return (kRowsA / share_a + rows_b / share_b) * kRowBytes; }
  int stages() const { return std::min(kMostStages, kSharedBytes / stage_bytes()); }
};

// Blocks of a cluster: n_rank varies first. The first warp loads, the second frees what has arrived.
__global__ void __launch_bounds__(64)
    load_tiles(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, Shape shape,
               int stages, int steps) {
  extern __shared__ unsigned char shared[];
  __shared__ alignas(8) unsigned long long barriers[2 * kMostStages];
  const auto tiles = (static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + 1023) / 1024 * 1024;
  const auto full = static_cast<std::uint32_t>(__cvta_generic_to_shared(barriers)), empty = full + 8 * kMostStages;
  const int rank = static_cast<int>(ptx::cluster_rank());
  const int n_rank = rank % shape.share_a, m_rank = rank / shape.share_a;
  const int n_clusters = shape.n_tiles / shape.share_a, cluster = static_cast<int>(ptx::cluster_index());
  const int n_tile = cluster % n_clusters * shape.share_a + n_rank;
  const int m_tile = cluster / n_clusters * shape.share_b + m_rank;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages; ++stage) {
      ptx::mbarrier_init(full + 8 * stage, 1);
      ptx::mbarrier_init(empty + 8 * stage, static_cast<std::uint32_t>(shape.share_a + shape.share_b - 1));
    }
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  ptx::cluster_sync();
  ptx::Ring ring;
  if (threadIdx.x / 32 == 0 && ptx::elect_one()) {
    const int part_a = kRowsA / shape.share_a, part_b = shape.rows_b / shape.share_b;
    const auto row = static_cast<std::uint16_t>(((1u << shape.share_a) - 1) << (m_rank * shape.share_a));
    std::uint32_t column = 0;
    for (int m = 0; m < shape.share_b; ++m) column |= 1u << (m * shape.share_a + n_rank);
    for (int step = 0; step < steps; ++step, ring.advance(stages)) {
      const std::uint32_t to = tiles + ring.stage * shape.stage_bytes(), barrier = full + 8 * ring.stage;
      ptx::mbarrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(barrier, static_cast<std::uint32_t>(shape.stage_bytes()));
      ptx::tma_load_2d_multicast(to + n_rank * part_a * kRowBytes, &map_a, barrier, step * kStepColumns,
                                 m_tile * kRowsA + n_rank * part_a, row);
      ptx::tma_load_2d_multicast(to + (kRowsA + m_rank * part_b) * kRowBytes, &map_b, barrier, step * kStepColumns,
                                 n_tile * shape.rows_b + m_rank * part_b, static_cast<std::uint16_t>(column));
    }
  } else if (threadIdx.x == 32) {
    for (int step = 0; step < steps; ++step, ring.advance(stages)) {
      const int stage = ring.stage;
      ptx::mbarrier_wait(full + 8 * stage, ring.parity);
      for (int n = 0; n < shape.share_a; ++n)
        ptx::mbarrier_arrive_cluster_relaxed(ptx::map_to_rank(empty + 8 * stage, m_rank * shape.share_a + n));
      for (int m = 0; m < shape.share_b; ++m)
        if (m != m_rank)
          ptx::mbarrier_arrive_cluster_relaxed(ptx::map_to_rank(empty + 8 * stage, m * shape.share_a + n_rank));
    }
  }
  __syncthreads();
  ptx::cluster_sync();  // no block leaves while another arrives on it
}

CUtensorMap encoded(void* data, int rows, int box_rows) {
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &found));
  const auto encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(symbol);
  CUtensorMap map;
  const cuuint64_t extents[] = {kMostSteps * kStepColumns, static_cast<cuuint64_t>(rows)}, stride = extents[0] * 2;
  const cuuint32_t box[] = {kStepColumns, static_cast<cuuint32_t>(box_rows)}, ones[] = {1, 1};
  if (symbol == nullptr ||
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, extents, &stride, box, ones,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    std::exit((std::fprintf(stderr, "tile_loads: error: no tensor map\n"), 2));
  return map;
}

// Median microseconds of a launch, of 21 chains of ten.
float time(const Shape& shape, const CUtensorMap& a, const CUtensorMap& b, int steps) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(shape.cluster()), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(shape.blocks());
  config.blockDim = 64;
  config.dynamicSmemBytes = kSharedBytes + 1024;  // so that a block has its SM to itself
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int chain = 0; chain < 21; ++chain) {
    check(cudaEventRecord(begin));
    for (int i = 0; i < 10; ++i) check(cudaLaunchKernelEx(&config, load_tiles, a, b, shape, shape.stages(), steps));
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    times.push_back(milliseconds * 100);
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10];
}

}  // namespace

int main() {
  check(cudaFuncSetAttribute(load_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes + 1024));
  const std::size_t bytes = std::size_t{128} * 96 * kMostSteps * kStepColumns * 2;  // the most rows of any shape
  void *data_a = nullptr, *data_b = nullptr;
  check(cudaMalloc(&data_a, bytes));
  check(cudaMalloc(&data_b, bytes));
  check(cudaMemset(data_a, 0x3c, bytes));
  check(cudaMemset(data_b, 0x3c, bytes));
  std::printf("rows_b,share_a,share_b,m_tiles,n_tiles,stages,step_ns,arriving_bytes_per_ns,asked_bytes_per_ns\n");
  for (const int rows_b : {16, 32, 48, 64, 96, 128})
    for (const auto [m_tiles, n_tiles] : {std::pair{4, 16}, {4, 32}, {16, 8}})
      for (const auto [share_a, share_b] : {std::pair{1, 1}, {1, 2}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 2}}) {
        const Shape shape{rows_b, share_a, share_b, m_tiles, n_tiles};
        const CUtensorMap a = encoded(data_a, m_tiles * kRowsA, kRowsA / share_a);
        const CUtensorMap b = encoded(data_b, n_tiles * rows_b, rows_b / share_b);
        const float us = time(shape, a, b, kMostSteps) - time(shape, a, b, kFewSteps);
        const float step_ns = us * 1000 / (kMostSteps - kFewSteps);
        std::printf("%d,%d,%d,%d,%d,%d,%.1f,%.1f,%.1f\n", rows_b, share_a, share_b, m_tiles, n_tiles, shape.stages(),
                    step_ns, shape.stage_bytes() / step_ns, shape.asked_bytes() / step_ns);
        std::fflush(stdout);
      }
}
