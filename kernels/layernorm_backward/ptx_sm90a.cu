// layernorm_backward for sm_90a: rows of x and dy fetched by the bulk copy engine (kernels/device/bulk_pipeline.cuh),
// and read from shared memory as often as it takes: by a warp for dx, in three passes, then by a thread for the sums of
// a vector of channels. A block keeps those over its rows, all of one image; two launches add blocks and images as
// tiled.
//
// Better than tiled: the loads in flight do not wait for a row's two reductions, and a row's are within a warp.
//
// Requires: channels that are a multiple of 16 bytes, and at most 4 KiB; fewer than 2^31 images * channels, and rows.
// Bound: memory traffic; expected limiter at rows=65536, channels=1280: four reads of shared memory.
// Workspace, fp32: blocks' sums [images, blocks, 2, channels], sums [images, 2, channels].
// Numerics: fp32; deviations from the mean are squared; all sums in fixed order.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/layernorm_backward/images.cuh"
#include "kernels/ptx/fence.cuh"

namespace noisefloor::layernorm_backward {
namespace {

constexpr std::uint32_t kMaxVectors = kBulkConsumers;  // of a row
constexpr std::uint32_t kWarps = kBulkConsumers / 32, kMaxRows = 64, kTileBytes = 16 * 1024;
constexpr int kBlocksOfSm = 4;  // at least, where there are as many tiles: each leaves two rows of sums

// A tile is `rows` rows of an image, of x, then of dy; at least one a warp. An image's last tiles may have fewer rows
// or none, so that all blocks have `per_block` of them.
struct Tiles {
  std::uint32_t rows, per_block, blocks;  // blocks: of an image

  Tiles(const Problem& p, DType dtype, int sm_count) {
    const auto row_bytes = static_cast<std::uint32_t>(p.channels) * static_cast<std::uint32_t>(size_of(dtype));
    rows = std::clamp(kTileBytes / (2 * row_bytes) / kWarps * kWarps, kWarps, kMaxRows);
    const auto of_image = static_cast<std::uint32_t>((p.rows_per_image() + rows - 1) / rows);
    const auto wanted = static_cast<std::uint32_t>(std::max<std::int64_t>(1, kBlocksOfSm * sm_count / p.images));
    per_block = (of_image + wanted - 1) / wanted;
    blocks = (of_image + per_block - 1) / per_block;
  }
};

template <class T>
struct RowsWork {
  static constexpr int kLanes = kVectorLanes<T>;
  struct Sums {
    float sum[kLanes], sum_xh[kLanes];
    float2* statistics;  // [2][kMaxRows] of a block: mean and rstd of a tile's rows, and of the next one's
    float* factors;      // [channels]: gamma (1 + scale)
  };
  Tensors t;
  Tiles cut;
  std::uint32_t tiles, stage_bytes, vectors, row_bytes, tiles_of_image, rows_of_image;
  float* partials;
  float inverse, eps, residual_scale;

  RowsWork(const Problem& p, const Tensors& tensors, const Tiles& the_cut, float* the_partials)
      : t(tensors), cut(the_cut), partials(the_partials) {
    vectors = vectors_of<T>(p.channels);
    row_bytes = vectors * 16;
    rows_of_image = static_cast<std::uint32_t>(p.rows_per_image());
    tiles_of_image = cut.per_block * cut.blocks;
    tiles = tiles_of_image * static_cast<std::uint32_t>(p.images);
    stage_bytes = (2 * cut.rows * row_bytes + 127) / 128 * 128;
    inverse = 1.0f / static_cast<float>(p.channels);
    eps = static_cast<float>(p.eps);
    residual_scale = static_cast<float>(p.residual_scale);
  }

  // A tile's first row, of all images, and its rows.
  __device__ __forceinline__ uint2 rows_of(std::uint32_t tile) const {
    const std::uint32_t image = tile / tiles_of_image, first = (tile - image * tiles_of_image) * cut.rows;
    return {image * rows_of_image + first, first < rows_of_image ? min(cut.rows, rows_of_image - first) : 0};
  }
  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    const uint2 rows = rows_of(tile);
    const std::uint32_t bytes = rows.y * row_bytes;
    const std::int64_t place = static_cast<std::int64_t>(rows.x) * row_bytes;
    ptx::mbarrier_arrive_expect_tx(barrier, 2 * bytes);
    if (bytes == 0) return;
    ptx::bulk_load(stage, static_cast<const char*>(t.x) + place, bytes, barrier);
    ptx::bulk_load(stage + cut.rows * row_bytes, static_cast<const char*>(t.dy) + place, bytes, barrier);
  }
  __device__ __forceinline__ Sums begin(std::uint32_t first_tile) const {
    __shared__ float2 statistics[2 * kMaxRows];
    __shared__ __align__(16) float factors[kMaxVectors * kLanes];
    const std::int64_t row = static_cast<std::int64_t>(first_tile / tiles_of_image) * vectors * kLanes;
    for (std::uint32_t c = threadIdx.x; c < vectors * kLanes; c += kBulkConsumers)
      factors[c] = parameter<T>(t.gamma, c, 1.0f) * (1.0f + parameter<T>(t.scale, row + c, 0.0f));
    ptx::named_barrier_sync(1, kBulkConsumers);
    return {{}, {}, statistics, factors};
  }
  // Vector v of a row of x and of dy, in shared memory.
  __device__ __forceinline__ void load(std::uint32_t at, std::uint32_t v, float (&x)[kLanes],
                                       float (&dy)[kLanes]) const {
    unpack_vector<T>(ptx::load_shared_16(at + v * 16), x);
    unpack_vector<T>(ptx::load_shared_16(at + cut.rows * row_bytes + v * 16), dy);
  }
  // dx of row `row`, which lies at `at`, by a warp; returns its mean and rstd.
  __device__ __forceinline__ float2 backward_row(std::uint32_t at, std::uint32_t row, const float* factors) const {
    const auto each = [&](const auto& body) {
#pragma unroll 2
      for (std::uint32_t v = threadIdx.x % 32; v < vectors; v += 32) {
        float x[kLanes], dy[kLanes];
        load(at, v, x, dy);
#pragma unroll
        for (int i = 0; i < kLanes; ++i) dy[i] *= factors[v * kLanes + i];
        body(v, x, dy);
      }
    };
    float2 sums{0, 0}, moments{0, 0};
    each([&](std::uint32_t, const float(&x)[kLanes], const float(&dh)[kLanes]) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) sums = {sums.x + x[i], sums.y + dh[i]};
    });
    sums = lane_sum(sums);
    const float mean = sums.x * inverse, mean_dh = sums.y * inverse;
    each([&](std::uint32_t, const float(&x)[kLanes], const float(&dh)[kLanes]) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float deviation = x[i] - mean;
        moments = {moments.x + deviation * deviation, moments.y + dh[i] * deviation};
      }
    });
    moments = lane_sum(moments);
    const float rstd = rsqrtf(moments.x * inverse + eps), of_deviation = moments.y * inverse * rstd * rstd;
    each([&](std::uint32_t v, const float(&x)[kLanes], float(&dh)[kLanes]) {
      const std::int64_t place = (static_cast<std::int64_t>(row) * vectors + v) * kLanes;
      float residual[kLanes] = {};
      if (t.residual != nullptr)
        load_vector<T, CacheHint::read_only>(static_cast<const T*>(t.residual) + place, residual);
#pragma unroll
      for (int i = 0; i < kLanes; ++i)
        dh[i] = rstd * (dh[i] - mean_dh - (x[i] - mean) * of_deviation) + residual_scale * residual[i];
      store_vector<T>(static_cast<T*>(t.dx) + place, dh);
    });
    return {mean, rstd};
  }
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait, Sums& sums) const {
    const uint2 rows = rows_of(tile);
    const std::uint32_t stage = wait();
    float2* const statistics = sums.statistics + tile % 2 * kMaxRows;
    for (std::uint32_t r = threadIdx.x / 32; r < rows.y; r += kWarps) {
      const float2 own = backward_row(stage + r * row_bytes, rows.x + r, sums.factors);
      if (threadIdx.x % 32 == 0) statistics[r] = own;
    }
    if (partials == nullptr) return;
    ptx::named_barrier_sync(1, kBulkConsumers);
    if (threadIdx.x >= vectors) return;
#pragma unroll 2
    for (std::uint32_t r = 0; r < rows.y; ++r) {
      float x[kLanes], dy[kLanes];
      load(stage + r * row_bytes, threadIdx.x, x, dy);
      const float2 own = statistics[r];
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sums.sum[i] += dy[i];
        sums.sum_xh[i] += dy[i] * ((x[i] - own.x) * own.y);
      }
    }
  }
  __device__ __forceinline__ void end(const Sums& sums) const {
    if (partials == nullptr || threadIdx.x >= vectors) return;
    const std::int64_t channels = vectors * kLanes;
    store_partial(sums.sum, sums.sum_xh, partials + blockIdx.x * 2 * channels + threadIdx.x * kLanes, channels);
  }
};

}  // namespace

std::size_t ptx_sm90a_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return partial_bytes(p, Tiles(p, dtype, device.sm_count).blocks);
}

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                        const LaunchContext& context) {
  auto* const partials = p.sums() ? static_cast<float*>(scratch.workspace) : nullptr;
  const Tiles tiles(p, dtype, context.device->sm_count);
  return with_type(dtype, [&]<class T>(T) {
    const Status status = launch_bulk(RowsWork<T>(p, t, tiles, partials), context, tiles.per_block);
    return status.ok() ? launch_images<T>(p, t, tiles.blocks, partials, context) : status;
  });
}

}  // namespace noisefloor::layernorm_backward
