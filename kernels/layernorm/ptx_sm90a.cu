// layernorm for sm_90a: whole rows fetched by the bulk copy engine (kernels/device/bulk_pipeline.cuh), and read from
// shared memory as often as it takes, by teams of 4 to 256 threads, a row each.
//
// Better than naive: accesses of 16 bytes, and a row is fetched once, by no thread. What differs from tiled, the
// variant before: the loads in flight do not depend on how far the rows before them have come, which the latency of two
// reductions decides there; but fewer rows are under way. Honours programmatic dependent launch.
//
// Requires: channels that are a multiple of 16 bytes; rows below 2^31; a row of x, and of the residual, that fit 96 KiB
// together.
// Bound: memory traffic; expected limiter: two reductions a row, one after the other, which keep a team waiting while
// its tile's other rows continue.
// Numerics: fp32; the mean, then the squares of the deviations from it, in a second pass over shared memory.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/fence.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr std::uint32_t kTileBytes = 16 * 1024;  // of x and as much of the residual; at least a row of each

template <class T>
std::uint32_t rows_of_tile(const Arguments<T>& a) {
  return std::max(1u, kTileBytes / (static_cast<std::uint32_t>(a.vectors) * 16 * (a.t.residual ? 2 : 1)));
}

template <class T, int kTeam>
struct RowWork {
  static constexpr std::uint32_t kTeams = kBulkConsumers / kTeam;
  static constexpr int kLanes = kVectorLanes<T>, kStride = kTeam < 32 ? kTeam : 32;
  Arguments<T> a;
  std::uint32_t tiles, stage_bytes, rows, row_bytes;

  explicit RowWork(const Arguments<T>& arguments) : a(arguments) {
    row_bytes = static_cast<std::uint32_t>(a.vectors) * 16;
    const std::uint32_t streams = a.t.residual ? 2 : 1;
    rows = rows_of_tile(a);
    if (rows > kTeams) rows = rows / kTeams * kTeams;
    tiles = (a.rows + rows - 1) / rows;
    stage_bytes = (streams * rows * row_bytes + 127) / 128 * 128;
  }
  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    const std::uint32_t first = tile * rows, bytes = min(rows, a.rows - first) * row_bytes;
    const std::int64_t place = static_cast<std::int64_t>(first) * row_bytes;
    ptx::mbarrier_arrive_expect_tx(barrier, a.t.residual ? 2 * bytes : bytes);
    ptx::bulk_load(stage, static_cast<const char*>(a.t.x) + place, bytes, barrier);
    if (a.t.residual)
      ptx::bulk_load(stage + rows * row_bytes, static_cast<const char*>(a.t.residual) + place, bytes, barrier);
  }
  // `turn` counts the team's rows: parts of one may be written while others read those of the row before.
  __device__ __forceinline__ Moments merge_warps(const Part& part, std::uint32_t team, std::uint32_t turn) const {
    __shared__ Part shared[2][kBulkConsumers / 32];
    Part* const parts = shared[turn % 2] + team * (kTeam / 32);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x % kTeam / 32] = part;
    ptx::named_barrier_sync(1 + team, kTeam);
    return merge(a, parts, share());
  }
  // Of a row's vectors, a warp's, or a smaller team's.
  __device__ __forceinline__ int share() const { return kTeam > 32 ? (a.vectors + kTeam - 1) / kTeam * 32 : a.vectors; }
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait) const {
    const int begin = kTeam > 32 ? static_cast<int>(threadIdx.x) % kTeam / 32 * share() : 0;
    const int lane = begin + static_cast<int>(threadIdx.x) % kStride;
    const std::uint32_t team = threadIdx.x / kTeam;
    const int end = kTeam > 32 ? min(a.vectors, begin + share()) : a.vectors;
    const std::uint32_t stage = wait();
    const bool has_residual = a.t.residual != nullptr;
    const std::uint32_t count = min(rows, a.rows - tile * rows);
    std::uint32_t turn = tile * ((rows + kTeams - 1) / kTeams);
    for (std::uint32_t base = 0; base < count; base += kTeams, ++turn) {  // every lane of a warp alike
      const std::uint32_t r = min(base + team, count - 1);
      const std::uint32_t at = stage + r * row_bytes;
      const auto load = [&](int v, float(&s)[kLanes]) {
        const uint4 bits = ptx::load_shared_16(at + v * 16);
        uint4 other{};
        if (has_residual) other = ptx::load_shared_16(at + rows * row_bytes + v * 16);
        sum_vector<T>(bits, other, has_residual, s);
      };
      const Part part = row_part<T, kStride>(lane, kTeam > 32 ? end : a.vectors,
                                             kTeam > 32 ? part_inverse(a, begin, share()) : a.length_inverse, load);
      const Moments m = kTeam > 32 ? merge_warps(part, team, turn)
                                   : Moments{part.mean, rsqrtf(part.squares * a.length_inverse + a.eps)};
      if (base + team >= count) continue;
#pragma unroll 1
      for (int v = lane; v < end; v += kStride) {
        float s[kLanes];
        load(v, s);
        finish_vector<CacheHint::keep>(a, m, tile * rows + r, v, s);
      }
    }
  }
};

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Arguments<T> a = make_arguments<T>(p, t);
    int team = team_of(a.vectors);  // a row of up to five vectors a lane; of longer ones, as many teams as rows
    if (a.vectors > 32 * 5)
      while (team < kBulkConsumers && team * rows_of_tile(a) < kBulkConsumers) team *= 2;
    return with_team<7>(team, [&](auto team) { return launch_bulk(RowWork<T, team()>(a), context); });
  });
}

}  // namespace noisefloor::layernorm
