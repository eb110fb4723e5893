// The device code of ptx_sm90a; ptx_sm90a.cu says what it does and why.
#pragma once

#include "kernels/groupnorm/quads.cuh"
#include "kernels/groupnorm/stripe.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/prefetch.cuh"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::groupnorm {
namespace {

struct ClusterArguments : StripeArguments {
  bool early;            // the next launch may start once this one's rows have arrived; else before it writes
  int staggered;         // the first so many clusters start one after another
  float stagger_cycles;  // between them
  int x_channels;        // of x; the others are skip's
  Quads quads;           // with down_w
};

// What a row of a block is: a pixel of x; of x and skip, where a thread's eight channels lie in one or the other, whose
// rows are of other lengths than y's; or a quad of pixels, with down_w.
enum class Row { of_x, of_two, quad };

// Chan's formula over the blocks of the cluster, about the first one's mean; mean and rstd, to all lanes of a team.
// kPixels: of a row.
template <int kPixels>
__device__ __forceinline__ float2 merge_blocks(const StripeArguments& a, const float2* moments, int j) {
  const float first = moments[j].x;
  float sum = 0, squares = 0;
#pragma unroll 1
  for (int rank = linear_thread() % kTeam; rank < a.plan.blocks; rank += kTeam) {
    const float2 block = moments[rank * a.plan.bundle + j];
    const float count = static_cast<float>(rows_of(a, rank) * kPixels * a.width);
    const float delta = block.x - first;
    sum += count * delta;
    squares += block.y + count * delta * delta;
  }
  sum = lane_sum<kTeam>(sum);
  const float offset = sum * a.size_inverse;
  return mean_and_rstd(a, first + offset, fmaxf(lane_sum<kTeam>(squares) - sum * offset, 0.0f));
}

// 1. Each thread fetches its first kHeld rows to registers and the others to shared memory (cp.async), parameters to
// L2. 2. It sums what it has fetched itself, the first rows while the last travel. 3. 16 lanes per group merge that to
// the block's mean and M2 and store those into every block of the cluster, on an mbarrier. 4. Each block merges the
// blocks' moments and writes fusion(x * a + b).
//
// Programmatic dependent launch: what touches no tensor but parameters' L2 lines comes before griddepcontrol.wait. The
// next launch may start when this one's rows have arrived, if half of the GPU is free (`early`); else when it begins
// to write: a launch that starts beside a full GPU fills the SMs unevenly.
//
// A: of gamma and beta. Registers: 16 sums, 8 shifts, 8 values, then 16 coefficients and 8 values, of quads 8 of a mean
// more: cluster_registers.
template <class T, bool kActivate, int kHeld, Row kRow, class A>
__global__ void __launch_bounds__(max_cluster_threads(kHeld), 2)
    cluster_kernel(const __grid_constant__ ClusterArguments a) {
  constexpr int kPixels = kRow == Row::quad ? kQuad : 1;
  constexpr int kHeldRows = kHeld / kPixels;
  constexpr int kUnrolled = kRow == Row::quad ? 1 : 2;  // rows in shared memory
  static_assert(kHeld % kPixels == 0, "a thread holds whole quads");
  extern __shared__ __align__(16) char tile[];  // [rows][columns] of 16 bytes
  const StripePlan& plan = a.plan;
  const int pitch = plan.columns * 16;
  auto* sums =
      reinterpret_cast<float2*>(tile + plan.shared_rows * kPixels * pitch);  // [columns][entries][tile_rows | 1]
  float2* moments = sums + plan.sums();                                      // [blocks][bundle]
  float2* finals = moments + plan.blocks * plan.bundle;                      // [bundle]: mean, rstd
  const std::uint32_t arrived = ptx::shared_address(finals + plan.bundle);   // mbarrier: moments are complete
  const int rank = static_cast<int>(ptx::cluster_rank());
  const int unit = static_cast<int>(ptx::cluster_index());
  const int image = divide(unit, a.bundles_inverse);
  const int bundle = unit - image * a.bundles;
  const int rows = rows_of(a, rank);
  const int first = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(threadIdx.x);
  const int channel = (bundle * plan.columns + column) * 8;
  const std::int64_t offset =
      (static_cast<std::int64_t>(image) * a.hw + rank * plan.rows + first) * a.channels + channel;
  const std::int64_t step = static_cast<std::int64_t>(plan.tile_rows) * a.channels;
  const int tile_offset = first * pitch + column * 16;
  const int tile_step = plan.tile_rows * pitch;
  const int corner_step = plan.shared_rows * pitch;  // of quads

  if (plan.blocks > 1) {
    if (linear_thread() == 0) {
      ptx::mbarrier_init(arrived, 1);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
  // The parameters of the thread's channels travel to L2 while x does, and to registers while the statistics are
  // merged. L2 is coherent: to fetch there what an earlier kernel still writes is harmless.
  const bool scale_shift = a.t.scale != nullptr;
  const auto parameter = [](const void* base, int index) { return static_cast<const T*>(base) + index; };
  const int row = image * a.scale_shift_stride + channel;
  if (first == 0) {
    ptx::prefetch_l2(static_cast<const A*>(a.t.gamma) + channel);
    ptx::prefetch_l2(static_cast<const A*>(a.t.beta) + channel);
    if (scale_shift) {
      ptx::prefetch_l2(parameter(a.t.scale, row));
      ptx::prefetch_l2(parameter(a.t.shift, row));
    }
  }
  ptx::griddepcontrol_wait();  // x, scale and shift are there, y, mean and rstd may be written
  if (unit < a.staggered) wait_staggered(unit, a.stagger_cycles);

  // The thread's first kHeld rows travel to registers, the others to shared memory, in stages, so that the first are
  // summed while the last travel. A thread sums what it has fetched itself: no barrier between.
  uint4 held[kHeld + 1];
  if constexpr (kRow == Row::quad) {
    const T* source =
        static_cast<const T*>(a.t.x) + static_cast<std::int64_t>(image) * kQuad * a.hw * a.channels + channel;
    const int begin = rank * plan.rows;
#pragma unroll
    for (int k = 0; k < kHeldRows; ++k) {
      const int r = first + k * plan.tile_rows;
      if (r >= rows) continue;
      const T* quad = first_of_quad(a, a.quads, source, begin + r);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) held[kQuad * k + i] = load_16_bytes(quad + corner_offset(a, a.quads, i));
    }
    fetch_quads(a, a.quads, source, begin, ptx::shared_address(tile) + tile_offset, tile_step, corner_step,
                first + kHeldRows * plan.tile_rows, rows);
  } else {
    const T* source = static_cast<const T*>(a.t.x) + offset;
    std::int64_t source_step = step;
    if constexpr (kRow == Row::of_two) {
      const bool in_skip = channel >= a.x_channels;
      const int length = in_skip ? a.channels - a.x_channels : a.x_channels;
      source = static_cast<const T*>(in_skip ? a.t.skip : a.t.x) +
               (static_cast<std::int64_t>(image) * a.hw + rank * plan.rows + first) * length + channel -
               (in_skip ? a.x_channels : 0);
      source_step = static_cast<std::int64_t>(plan.tile_rows) * length;
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * plan.tile_rows < rows) held[k] = load_16_bytes(source + k * source_step);
    }
    fetch_stages(a, source + kHeld * source_step, source_step, ptx::shared_address(tile) + tile_offset, tile_step,
                 first + kHeld * plan.tile_rows, rows);
  }
  ChannelSums seen{};
  const int split = channels_in_first(a, column);
  // A row's pixels are in registers or shared memory: pixel(i) gives 16 bytes of the i-th.
  [[maybe_unused]] T* mean = static_cast<T*>(a.t.x_down) + offset;
  const auto sum = [&](const auto& pixel) {
    if constexpr (kRow == Row::quad)
      add_quad<T>(seen, mean, pixel);
    else
      add_row<T>(seen, pixel(0));
  };
  if (kHeld > 0 && first < rows) start_sums<T>(a, seen, held[0], split);
#pragma unroll
  for (int k = 0; k < kHeldRows; ++k) {
    if (first + k * plan.tile_rows < rows) sum([&](int i) { return held[kPixels * k + i]; });
    mean += step;
  }
  {
    const char* source = tile + tile_offset;
    int r = first + kHeldRows * plan.tile_rows;
#pragma unroll 1
    for (int later = a.stages - 1; later >= 0; --later) {
      wait_groups(later);
      if (kHeld == 0 && later == a.stages - 1 && first < rows)
        start_sums<T>(a, seen, *reinterpret_cast<const uint4*>(source), split);
#pragma unroll kUnrolled
      for (int k = 0; k < a.stage_accesses && r < rows; ++k, r += plan.tile_rows) {
        sum([&](int i) { return *reinterpret_cast<const uint4*>(source + i * corner_step); });
        source += tile_step;
        mean += step;
      }
    }
  }
  RowShare share(a, rows);
  if constexpr (kRow == Row::quad) share.count_pixels(kQuad);
  store_moments(a, seen, share.of(first), split, sums);
  if (a.early) ptx::griddepcontrol_launch_dependents();
  const int thread = linear_thread();
  const int teams = plan.threads / kTeam;  // of whole warps: the block's last, partial warp does not reduce
  const int team = thread / kTeam;
  const int team_lane = thread % kTeam;
  if (plan.blocks > 1) ptx::cluster_wait();  // every block runs: its shared memory may be written
  const auto parameters = load_parameters<T, A>(a.t, channel, row);
  __syncthreads();
  if (thread < plan.threads) {
#pragma unroll 1
    for (int base = 0; base < plan.bundle; base += teams) {
      const int j = base + team;
      const float2 own = group_moments(a, sums, share, rows * kPixels, min(j, plan.bundle - 1));
      if (j >= plan.bundle) continue;
      if (plan.blocks == 1) {
        if (team_lane == 0) finals[j] = mean_and_rstd(a, own.x, own.y);
      } else {
        const std::uint32_t place = ptx::shared_address(moments + rank * plan.bundle + j);
        for (int target = team_lane; target < plan.blocks; target += kTeam)
          ptx::store_async(ptx::map_to_rank(place, target), own, ptx::map_to_rank(arrived, target));
      }
    }
  }
  if (plan.blocks > 1) {
    // The barrier's one arrival, so that its phase cannot end before all bytes are announced; those that came before
    // have left its count of bytes below zero, as it may be. Here, behind a __syncthreads, racecheck sees it ordered
    // after the initialisation.
    if (thread == 0)
      ptx::mbarrier_arrive_expect_tx(arrived, plan.blocks * plan.bundle * static_cast<int>(sizeof(float2)));
    ptx::mbarrier_wait(arrived, 0);
    if (thread < plan.threads) {
#pragma unroll 1
      for (int base = 0; base < plan.bundle; base += teams) {
        const int j = base + team;
        const float2 total = merge_blocks<kPixels>(a, moments, min(j, plan.bundle - 1));
        if (j < plan.bundle && team_lane == 0) finals[j] = total;
      }
    }
  }
  __syncthreads();
  // Every thread has waited for the moments, so every block's stores to this barrier have arrived.
  if (plan.blocks > 1 && thread == 0) ptx::mbarrier_invalidate(arrived);
  if (a.t.mean != nullptr && rank == 0) {
    for (int j = thread; j < plan.bundle; j += static_cast<int>(blockDim.x * blockDim.y)) {
      a.t.mean[unit * plan.bundle + j] = finals[j].x;
      a.t.rstd[unit * plan.bundle + j] = finals[j].y;
    }
  }

  float ca[8], cb[8];
  fold_coefficients<T, kActivate>(a, parameters, column, finals, ca, cb);
  if (!a.early) ptx::griddepcontrol_launch_dependents();
  T* destination = static_cast<T*>(a.t.y) + offset;
  const auto write = [&](const auto& pixel) {
    if constexpr (kRow == Row::quad)
      write_quad<T, kActivate>(destination, ca, cb, pixel);
    else
      write_row<T, kActivate>(destination, pixel(0), ca, cb);
    destination += step;
  };
#pragma unroll
  for (int k = 0; k < kHeldRows; ++k) {
    if (first + k * plan.tile_rows < rows) write([&](int i) { return held[kPixels * k + i]; });
  }
  const char* source = tile + tile_offset;
#pragma unroll kUnrolled
  for (int r = first + kHeldRows * plan.tile_rows; r < rows; r += plan.tile_rows) {
    write([&](int i) { return *reinterpret_cast<const uint4*>(source + i * corner_step); });
    source += tile_step;
  }
}

}  // namespace
}  // namespace noisefloor::groupnorm
