#include "kernels/gemm/schedule.h"

#include <bit>

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

}  // namespace

product::Sm90aModel model_of(const Problem& problem) {
  return {kKernel, [problem](const Tile& tile) {
            return product::Sm90aProduct{.unit_rows = problem.m,
                                         .columns = fits(problem, tile) ? problem.b_rows() : 0,
                                         .k_steps = (problem.k + kBlockK - 1) / kBlockK,
                                         .own_stages = problem.residual && !tile.pingpong};
          }};
}

Schedule choose(const Problem& p, int sm_count, const MeasuredSchedules& measured) {
  using Shape = std::array<std::int64_t, 6>;
  const auto shape_of = [](const MeasuredSchedule& row) {
    return Shape{row.m, row.n, row.k, row.gated, row.residual, row.part_columns};
  };
  const Shape shape{p.m, p.n, p.k, p.gated(), p.residual + p.blend, p.part_columns};
  const bool may_be_measured = p.forward() && sm_count == measured.sm_count;
  const auto* row = may_be_measured ? find_measured(measured.schedules, shape, shape_of) : nullptr;
  return model_of(p).choose(sm_count, row != nullptr ? &row->cut : nullptr);
}

std::vector<Choice> schedule_choices(const Problem& problem, DType, const DeviceInfo& device) {
  return model_of(problem).choices(device.sm_count);
}

}  // namespace noisefloor::gemm
