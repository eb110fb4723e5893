#include "kernels/gemm/schedule.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/core/by_shape.h"
#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::gemm {
namespace {

// tools/fit gemm, seed 2, of timings of all schedules of 371 products of diffusion networks on an H100.
constexpr product::Sm90aKernel kKernel{
    .tiles = kTiles,
    .costs = {.fma_per_cycle = 2048,
              .bytes_per_cycle = 62.7,
              .load_latency = 2680,
              .least_step = 196,
              .byte = 0.000686,
              .fill = 850,
              .store = 0.0116,
              .exchange = 0.278,
              .meet = 884,
              .meet_per_block = 103,
              .multicast = 236,
              .turn = 200},
    // Each block finishes an equal share of the rows.
    .can_split = [](const Tile& tile,
                    int splits) { return can_split(tile) && std::has_single_bit(static_cast<unsigned>(splits)); },
    .shares_a = true};

// Layout nn brings B in boxes of 64 columns, or of 32 where 64 do not divide the tile: a row of 64 bytes takes longer
// than half of one of 128. By timings of 41 1x1 gradients on an H200, by which 1.4 to 2 choose the same.
constexpr double kNarrowBoxes = 1.5;

}  // namespace

product::Sm90aModel model_of(const Problem& problem) {
  return {kKernel, [problem](const Tile& tile) {
            return product::Sm90aProduct{
                .unit_rows = problem.m,
                .columns = fits(problem, tile) ? problem.b_rows() : 0,
                .k_steps = (problem.k + kBlockK - 1) / kBlockK,
                .b_share = problem.layout == Layout::nn && tile.block_n % 64 != 0 ? kNarrowBoxes : 1,
                .own_stages = problem.residual && !tile.pingpong};
          }};
}

namespace {

// Cycles of the kernel that adds the parts, and bytes that all SMs write and read in one.
constexpr double kAddParts = 7000, kPartBytes = 1600;

// One part of k.
Problem part_of(Problem problem, int parts) {
  if (parts > 1) problem.k = part_steps(problem, parts) * kBlockK;
  return problem;
}

int choose_k_parts(const Problem& problem, int sm_count) {
  const int most = std::min(16, sm_count);
  constexpr int kFewestSteps = product::kLargestCluster + 1;  // every split of every part has a step
  int best = 1;
  if (problem.layout != Layout::tn) return best;
  double least = std::numeric_limits<double>::infinity();
  for (int parts = 1; parts == 1 || (parts <= most && part_steps(problem, parts) >= kFewestSteps); ++parts) {
    const product::Sm90aModel model = model_of(part_of(problem, parts));
    const int sms = sm_count / parts;
    const Schedule schedule = model.choose(sms);
    if (parts > 1 && !schedule.alone) continue;
    const product::Sm90aProduct product = model.product_for(kTiles[static_cast<std::size_t>(schedule.tile)]);
    double cycles = product::modelled_cycles(model.kernel, product, schedule, sms);
    if (parts > 1) cycles += kAddParts + 2 * static_cast<double>(parts_bytes(problem, parts)) / kPartBytes;
    if (cycles < least) best = parts, least = cycles;
  }
  return best;
}

}  // namespace

int k_parts(const Problem& problem, int sm_count) {
  return remembered(std::array{problem.m, problem.n, problem.k, std::int64_t{problem.layout == Layout::tn},
                               std::int64_t{problem.row_sums}, std::int64_t{sm_count}},
                    [&] { return choose_k_parts(problem, sm_count); });
}

std::size_t parts_bytes(const Problem& problem, int parts) {
  if (parts == 1) return 0;
  return static_cast<std::size_t>(parts * problem.m * (problem.n + (problem.row_sums ? 1 : 0))) * sizeof(float);
}

Schedule choose(const Problem& p, int sm_count, const MeasuredSchedules& measured) {
  using Shape = std::array<std::int64_t, 6>;
  const auto shape_of = [](const MeasuredSchedule& row) {
    return Shape{row.m, row.n, row.k, row.gated, row.residual, row.part_columns};
  };
  const Shape shape{p.m, p.n, p.k, p.gated(), p.residual + p.blend, p.part_columns};
  const bool may_be_measured = p.forward() && sm_count == measured.sm_count;
  const auto* row = may_be_measured ? find_measured(measured.schedules, shape, shape_of) : nullptr;
  const int parts = k_parts(p, sm_count);
  return model_of(part_of(p, parts)).choose(sm_count / parts, row != nullptr ? &row->cut : nullptr);
}

std::vector<Choice> schedule_choices(const Problem& problem, DType, const DeviceInfo& device) {
  const int parts = k_parts(problem, device.sm_count);
  return model_of(part_of(problem, parts)).choices(device.sm_count / parts);
}

std::optional<Schedule> parse_choice(const Problem& problem, std::string_view text, int sm_count) {
  const int parts = k_parts(problem, sm_count);
  return model_of(part_of(problem, parts)).parse(text, sm_count / parts);
}

}  // namespace noisefloor::gemm
