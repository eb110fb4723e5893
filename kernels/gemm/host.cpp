// gemm on the host: float, all cores, vector instructions chosen by the compiler.
//
// A and B are widened to float and packed once into the workspace, as kernels/product/host_product.h says. A task makes
// one kTileM x kTileN tile of D: a panel of B stays in L1 (16 KiB) while the tile's block of A (kTileM * kBlockK * 4
// bytes, at most 96 KiB) streams past it from L2. For geglu a panel holds kVector value rows, then the kVector gate
// rows of the same columns.
//
// What layouts nn and tn have the other way round is packed line by line, and multiplied by the same tiles.
//
// With fewer rows than half a micro-kernel's, packing B would cost more than the products: one dot product per output
// then.
//
// Bound: FMA throughput at 1024^3. Requires: nothing. Numerics: fp32 sums per block of k, added in order.
#include <algorithm>

#include "kernels/core/parallel.h"
#include "kernels/core/vector_math.h"
#include "kernels/gemm/launchers.h"
#include "kernels/product/host_product.h"

namespace noisefloor::gemm {
namespace {

using namespace host_product;

constexpr std::int64_t kTileM = 96;
constexpr std::int64_t kTileN = 256;
static_assert(kTileM % kMicroM == 0 && kTileN % kMicroN == 0, "a tile is a whole number of micro-kernels");

constexpr bool by_dot_products(const Problem& problem) {
  return problem.m < kMicroM / 2 && problem.layout == Layout::nt;
}

// Where the packed operands lie in the workspace, in floats.
struct Packing {
  std::int64_t rows_a, rows_b;  // padded to whole panels
  std::int64_t floats_a, floats_b;

  explicit Packing(const Problem& problem)
      : rows_a(round_up(problem.m, kMicroM)),
        rows_b(problem.gated() ? 2 * round_up(problem.n, kVector) : round_up(problem.n, kMicroN)),
        floats_a(round_up(rows_a * problem.k, kVector)),
        floats_b(rows_b * problem.k) {}
};

// The row of B behind packed row `packed`, or -1 in the padding.
std::int64_t b_row(const Problem& problem, std::int64_t packed) {
  if (!problem.gated()) return packed < problem.n ? packed : -1;
  const std::int64_t column = packed / kMicroN * kVector + packed % kVector;
  if (column >= problem.n) return -1;
  return packed % kMicroN < kVector ? column : problem.n + column;
}

// Packs the panels of kPanel rows of a row-major [rows, k] matrix; source_row gives the row behind a packed one.
template <int kPanel, class SourceRow>
void pack(DType dtype, const void* matrix, std::int64_t k, std::int64_t packed_rows, const SourceRow& source_row,
          float* packed) {
  constexpr std::int64_t kChunk = 64;  // of k, so that the rows of a chunk stay in L1 while they are transposed
  parallel_for(packed_rows / kPanel, 1, [&](std::int64_t begin, std::int64_t end) {
    float chunk[kPanel][kChunk];
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (std::int64_t k0 = 0; k0 < k; k0 += kChunk) {
        const std::int64_t depth = std::min(kChunk, k - k0);
        for (int r = 0; r < kPanel; ++r) {
          const std::int64_t row = source_row(panel * kPanel + r);
          if (row < 0)
            std::fill_n(chunk[r], kChunk, 0.0f);
          else
            load_floats(dtype, matrix, row * k + k0, depth, chunk[r]);
        }
        static_assert(kBlockK % kChunk == 0, "a chunk lies in one block of k");
        const std::int64_t block = k0 / kBlockK * kBlockK;
        const std::int64_t block_depth = std::min(kBlockK, k - block);
        float* out = packed + block * packed_rows + panel * kPanel * block_depth + (k0 - block) * kPanel;
        for (std::int64_t i = 0; i < depth; ++i)
          for (int r = 0; r < kPanel; ++r) out[i * kPanel + r] = chunk[r][i];
      }
    }
  });
}

// The same of a matrix that lies as [k, rows]: a line is spread over the panels.
template <int kPanel>
void pack_lines(DType dtype, const void* matrix, std::int64_t k, std::int64_t rows, std::int64_t packed_rows,
                float* packed) {
  constexpr std::int64_t kWidth = 16 * kPanel;  // of a task: few enough panels that their ends stay in L1
  const std::int64_t widths = (packed_rows + kWidth - 1) / kWidth;
  parallel_for((k + kBlockK - 1) / kBlockK * widths, 1, [&](std::int64_t begin, std::int64_t end) {
    float line[kWidth];
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t k0 = task / widths * kBlockK, depth = std::min(kBlockK, k - k0);
      const std::int64_t first = task % widths * kWidth, width = std::min(kWidth, packed_rows - first);
      const std::int64_t given = std::min(width, rows - first);
      std::fill(line + given, line + width, 0.0f);
      float* out = packed + k0 * packed_rows + first * depth;
      for (std::int64_t i = 0; i < depth; ++i) {
        load_floats(dtype, matrix, (k0 + i) * rows + first, given, line);
        for (std::int64_t r = 0; r < width; r += kPanel) std::copy_n(line + r, kPanel, out + r * depth + i * kPanel);
      }
    }
  });
}

void pack_operands(const Problem& problem, DType dtype, const Tensors& tensors, const Packing& packing, float* a,
                   float* b) {
  const std::int64_t k = problem.k;
  if (problem.layout == Layout::tn)
    pack_lines<kMicroM>(dtype, tensors.a, k, problem.m, packing.rows_a, a);
  else
    pack<kMicroM>(
        dtype, tensors.a, k, packing.rows_a, [&](std::int64_t row) { return row < problem.m ? row : -1; }, a);
  if (problem.layout == Layout::nt)
    pack<kMicroN>(
        dtype, tensors.b, k, packing.rows_b, [&](std::int64_t row) { return b_row(problem, row); }, b);
  else
    pack_lines<kMicroN>(dtype, tensors.b, k, problem.n, packing.rows_b, b);
}

void activate(Activation act, float* x, std::int64_t count) {
  switch (act) {
    case Activation::none:
    case Activation::geglu:  // gates a second sum: see the callers
      return;
    case Activation::silu:
      for (std::int64_t i = 0; i < count; ++i) x[i] = vector_silu(x[i]);
      return;
    case Activation::gelu:
      for (std::int64_t i = 0; i < count; ++i) x[i] = vector_gelu(x[i]);
      return;
    case Activation::gelu_tanh:
      for (std::int64_t i = 0; i < count; ++i) x[i] = vector_gelu_tanh(x[i]);
      return;
  }
}

// Adds the shift of row `row`'s image to its outputs [column, column + count) before they are activated.
void shift_row(const Problem& problem, DType dtype, const Tensors& tensors, std::int64_t row, std::int64_t column,
               std::int64_t count, float* x) {
  if (!problem.image_shift) return;
  float shift[kTileN];
  load_floats(dtype, tensors.image_shift, row / problem.rows_per_image() * problem.n + column, count, shift);
  for (std::int64_t i = 0; i < count; ++i) x[i] += shift[i];
}

// Adds row `row` of the residual, blends and stores outputs [column, column + count) of D.
void store_row(const Problem& problem, DType dtype, const Tensors& tensors, std::int64_t row, std::int64_t column,
               std::int64_t count, float* x) {
  if (problem.residual) {
    float residual[kTileN];
    load_floats(dtype, tensors.residual, row * problem.n + column, count, residual);
    for (std::int64_t i = 0; i < count; ++i) x[i] += residual[i];
  }
  if (problem.blend) {
    float other[kTileN];
    load_floats(dtype, tensors.blend, row * problem.n + column, count, other);
    for (std::int64_t i = 0; i < count; ++i) x[i] += *tensors.share * (other[i] - x[i]);
  }
  for (const std::int64_t part = problem.part(); count > 0;) {
    const std::int64_t first = column % part, run = std::min(count, part - first);
    store_floats(problem.output_dtype(dtype), tensors.d, (column / part * problem.m + row) * part + first, run, x);
    column += run, count -= run, x += run;
  }
}

// The epilogue of one row of a tile: `sums` holds `width` packed columns, the first of which is packed column `packed`.
void finish_row(const Problem& problem, DType dtype, const Tensors& tensors, const float* bias, std::int64_t row,
                std::int64_t packed, std::int64_t width, float* sums) {
  const auto scale = static_cast<float>(problem.scale);
  for (std::int64_t i = 0; i < width; ++i) sums[i] = scale * sums[i] + bias[i];
  if (!problem.gated()) {
    const std::int64_t count = std::min(width, problem.n - packed);
    shift_row(problem, dtype, tensors, row, packed, count, sums);
    activate(problem.act, sums, count);
    store_row(problem, dtype, tensors, row, packed, count, sums);
    return;
  }
  float products[kTileN / 2];
  for (std::int64_t p = 0; p < width; p += kMicroN) {
    for (int i = 0; i < kVector; ++i) products[p / 2 + i] = sums[p + i] * vector_gelu(sums[p + kVector + i]);
  }
  const std::int64_t column = packed / 2;
  store_row(problem, dtype, tensors, row, column, std::min(width / 2, problem.n - column), products);
}

// sums[r] += the sum of packed row r over a block of k.
void add_rows(std::int64_t depth, const float* a, std::int64_t rows, float* sums) {
  for (std::int64_t first = 0; first < rows; first += kMicroM) {
    float panel[kMicroM] = {};
    for (std::int64_t i = 0; i < depth; ++i, a += kMicroM)
      for (int r = 0; r < kMicroM; ++r) panel[r] += a[r];
    for (int r = 0; r < kMicroM; ++r) sums[first + r] += panel[r];
  }
}

void by_tiles(const Problem& problem, DType dtype, const Tensors& tensors, float* workspace) {
  const Packing packing(problem);
  float* packed_a = workspace;
  float* packed_b = workspace + packing.floats_a;
  const std::int64_t k = problem.k;
  pack_operands(problem, dtype, tensors, packing, packed_a, packed_b);

  const std::int64_t tiles_m = (packing.rows_a + kTileM - 1) / kTileM;
  // Narrower where a gradient of few weights, summed over many rows, would be too few tiles for all threads.
  std::int64_t columns = kTileN;
  while (columns > kMicroN && tiles_m * (packing.rows_b / columns) < 2 * host_threads()) columns /= 2;
  const std::int64_t tiles_n = (packing.rows_b + columns - 1) / columns;
  parallel_for(tiles_m * tiles_n, 1, [&](std::int64_t begin, std::int64_t end) {
    alignas(kVectorBytes) float tile[kTileM * kTileN];
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row0 = t / tiles_n * kTileM;
      const std::int64_t column0 = t % tiles_n * columns;
      const std::int64_t height = std::min(kTileM, packing.rows_a - row0);
      const std::int64_t width = std::min(columns, packing.rows_b - column0);
      const bool sums_rows = problem.row_sums && column0 == 0;
      float row_sums[kTileM] = {};
      std::fill_n(tile, height * kTileN, 0.0f);
      for (std::int64_t k0 = 0; k0 < k; k0 += kBlockK) {
        const std::int64_t depth = std::min(kBlockK, k - k0);
        const float* a = packed_a + k0 * packing.rows_a + row0 * depth;
        const float* b = packed_b + k0 * packing.rows_b + column0 * depth;
        if (sums_rows) add_rows(depth, a, height, row_sums);
        for (std::int64_t j = 0; j < width; j += kMicroN)
          for (std::int64_t i = 0; i < height; i += kMicroM)
            micro_kernel(depth, a + i * depth, b + j * depth, tile + i * kTileN + j, kTileN);
      }
      float bias[kTileN] = {};
      if (problem.bias)
        for (std::int64_t j = 0; j < width; ++j)
          if (const std::int64_t row = b_row(problem, column0 + j); row >= 0)
            load_floats(dtype, tensors.bias, row, 1, bias + j);
      for (std::int64_t i = 0; i < std::min(height, problem.m - row0); ++i) {
        finish_row(problem, dtype, tensors, bias, row0 + i, column0, width, tile + i * kTileN);
        if (sums_rows) tensors.row_sums[row0 + i] = static_cast<float>(problem.scale) * row_sums[i];
      }
    }
  });
}

// All rows of A times one row of B: widened a chunk at a time, while A is widened once, into the workspace.
void dots(const Problem& problem, DType dtype, const void* b, std::int64_t row, const float* a, float* sums) {
  constexpr std::int64_t kChunk = 1024;
  float chunk[kChunk];
  std::fill_n(sums, problem.m, 0.0f);
  for (std::int64_t k0 = 0; k0 < problem.k; k0 += kChunk) {
    const std::int64_t depth = std::min(kChunk, problem.k - k0);
    load_floats(dtype, b, row * problem.k + k0, depth, chunk);
    for (std::int64_t i = 0; i < problem.m; ++i) {
      const float* a_row = a + i * problem.k + k0;
      float sum = 0;
      for (std::int64_t p = 0; p < depth; ++p) sum += a_row[p] * chunk[p];
      sums[i] += sum;
    }
  }
}

void by_rows(const Problem& problem, DType dtype, const Tensors& tensors, float* a) {
  load_floats(dtype, tensors.a, 0, problem.m * problem.k, a);
  constexpr std::int64_t kColumnsPerTask = 16;
  parallel_for(problem.n, kColumnsPerTask, [&](std::int64_t begin, std::int64_t end) {
    constexpr int kMaxRows = kMicroM / 2;
    float value[kColumnsPerTask][kMaxRows], gate[kColumnsPerTask][kMaxRows];
    const auto scale = static_cast<float>(problem.scale);
    const auto linear = [&](std::int64_t row, float* sums) {
      dots(problem, dtype, tensors.b, row, a, sums);
      const float bias = problem.bias ? static_cast<float>(load_element(dtype, tensors.bias, row)) : 0.0f;
      for (std::int64_t i = 0; i < problem.m; ++i) sums[i] = scale * sums[i] + bias;
    };
    for (std::int64_t j = begin; j < end; ++j) {
      linear(j, value[j - begin]);
      if (problem.gated()) linear(problem.n + j, gate[j - begin]);
    }
    for (std::int64_t i = 0; i < problem.m; ++i) {
      float outputs[kColumnsPerTask];
      for (std::int64_t j = 0; j < end - begin; ++j)
        outputs[j] = problem.gated() ? value[j][i] * vector_gelu(gate[j][i]) : value[j][i];
      shift_row(problem, dtype, tensors, i, begin, end - begin, outputs);
      activate(problem.act, outputs, end - begin);
      store_row(problem, dtype, tensors, i, begin, end - begin, outputs);
    }
  });
}

}  // namespace

std::size_t host_workspace_bytes(const Problem& problem, DType, const DeviceInfo&) {
  const Packing packing(problem);
  const std::int64_t floats = by_dot_products(problem) ? problem.m * problem.k : packing.floats_a + packing.floats_b;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

Status launch_host(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                   const LaunchContext&) {
  auto* workspace = static_cast<float*>(scratch.workspace);
  if (by_dot_products(problem))
    by_rows(problem, dtype, tensors, workspace);
  else
    by_tiles(problem, dtype, tensors, workspace);
  return success();
}

}  // namespace noisefloor::gemm
