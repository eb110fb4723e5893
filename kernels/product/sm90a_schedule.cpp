#include "kernels/product/sm90a_schedule.h"

#include <algorithm>
#include <limits>

namespace noisefloor::product {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// SMs that blocks of this schedule can use. Clusters of more than two blocks do not fill every GPC (one of an H200 has
// 16 or 18 SMs, of 132 in all): how many blocks run at once in clusters of 1 to 8, each block with an SM to itself (the
// largest grids that took one wave, where grids were tried; 4 and 8 by the GPCs).
std::int64_t usable_sms(const Sm90aSchedule& schedule, int sm_count) {
  constexpr int kBlocksOf132[kLargestCluster] = {132, 132, 108, 120, 100, 96, 98, 120};
  return std::int64_t{sm_count} * kBlocksOf132[schedule.cluster() - 1] / 132;
}

// Blocks that can be on the device at once, in whole clusters.
std::int64_t resident_blocks(const Sm90aTile& tile, const Sm90aSchedule& schedule, int sm_count) {
  const std::int64_t blocks = usable_sms(schedule, sm_count) * (schedule.alone ? 1 : tile.blocks_per_sm);
  return std::max<std::int64_t>(blocks / schedule.cluster(), 1) * schedule.cluster();
}

// Of a schedule that shares_widely(): whether all of its blocks have a tile, and whole swizzle atoms to bring. A stage
// that a block fills alone comes back when its neighbours have released theirs: in a row of blocks each is a giver of
// each other, so that none runs ahead by more than a filling; two that lie diagonally are not, and one could release a
// stage twice before the other has once.
bool can_share(const Sm90aKernel& kernel, const Sm90aProduct& product, const Sm90aSchedule& schedule) {
  const Sm90aTile& shape = kernel.tiles[static_cast<std::size_t>(schedule.tile)];
  const bool both = schedule.multicast > 1 && schedule.multicast_a > 1;
  if (both && product.own_stages && schedule.splits == 1) return false;
  return (schedule.multicast_a == 1 || kernel.shares_a) && schedule.n_tiles % schedule.multicast_a == 0 &&
         (schedule.multicast <= 2 || (ceil_div(product.unit_rows, shape.block_m()) % schedule.multicast == 0 &&
                                      shape.block_n / schedule.multicast % 8 == 0));
}

MeasuredCut cut_of(const Sm90aKernel& kernel, const Sm90aSchedule& schedule) {
  const Sm90aTile& tile = kernel.tiles[static_cast<std::size_t>(schedule.tile)];
  return {tile.block_m(),     tile.block_n,    tile.pingpong ? 1 : 0,
          schedule.multicast, schedule.splits, schedule.multicast_a};
}

// make_schedule() where the kernel can run it, else none.
std::optional<Sm90aSchedule> find_schedule(const Sm90aKernel& kernel, const Sm90aProduct& product, int tile,
                                           int multicast, int multicast_a, int splits, int sm_count) {
  const Sm90aTile& shape = kernel.tiles[static_cast<std::size_t>(tile)];
  const auto shares = [](int blocks) { return blocks == 1 || blocks == 2 || blocks == 4; };
  if (!shares(multicast) || !shares(multicast_a) || splits < 1) return std::nullopt;
  if (product.columns == 0 || multicast * multicast_a * splits > kLargestCluster) return std::nullopt;
  if (multicast > 1 && product.unit_rows <= shape.block_m()) return std::nullopt;
  if (splits > product.k_steps || (splits > 1 && !kernel.can_split(shape, splits))) return std::nullopt;
  const Sm90aSchedule schedule = make_schedule(kernel, product, tile, multicast, splits, sm_count, multicast_a);
  if (schedule.shares_widely() && !can_share(kernel, product, schedule)) return std::nullopt;
  return schedule;
}

std::optional<Sm90aSchedule> measured_schedule(const Sm90aModel& model, const MeasuredCut& cut, int sm_count) {
  for (int tile = 0; tile < static_cast<int>(model.kernel.tiles.size()); ++tile) {
    const Sm90aTile& shape = model.kernel.tiles[static_cast<std::size_t>(tile)];
    if (shape.block_m() == cut.rows && shape.block_n == cut.columns && (shape.pingpong ? 1 : 0) == cut.pingpong)
      return find_schedule(model.kernel, model.product_for(shape), tile, cut.multicast, cut.multicast_a, cut.splits,
                           sm_count);
  }
  return std::nullopt;
}

}  // namespace

Sm90aSchedule make_schedule(const Sm90aKernel& kernel, const Sm90aProduct& product, int tile, int multicast, int splits,
                            int sm_count, int multicast_a) {
  const Sm90aTile& shape = kernel.tiles[static_cast<std::size_t>(tile)];
  Sm90aSchedule schedule;
  schedule.tile = tile;
  schedule.multicast = multicast;
  schedule.multicast_a = multicast_a;
  schedule.splits = splits;
  schedule.unit_clusters = ceil_div(ceil_div(product.unit_rows, shape.block_m()), multicast);
  schedule.m_clusters = product.units * schedule.unit_clusters;
  schedule.n_tiles = ceil_div(product.columns, shape.block_n);
  schedule.alone = schedule.blocks() <= usable_sms(schedule, sm_count);
  // A block alone has one tile. A stage that it never fills costs the making of two barriers before its first load.
  const std::int64_t filled = ceil_div(product.k_steps, splits) + kMostOfResidual;
  schedule.stages = schedule.alone ? static_cast<int>(std::clamp<std::int64_t>(filled, shape.stages, shape.deep_stages))
                                   : shape.stages;
  schedule.grid =
      splits > 1 ? schedule.blocks() : std::min(schedule.blocks(), resident_blocks(shape, schedule, sm_count));
  return schedule;
}

// A block walks its tiles one after the other; a step along k costs what its slowest resource needs, a tile adds the
// filling of the pipe and the epilogue, a split the exchange of partial sums in place of it.
double modelled_cycles(const Sm90aKernel& kernel, const Sm90aProduct& product, const Sm90aSchedule& schedule,
                       int sm_count) {
  const Sm90aCosts& costs = kernel.costs;
  const Sm90aTile& shape = kernel.tiles[static_cast<std::size_t>(schedule.tile)];
  const double elements = static_cast<double>(shape.block_m()) * shape.block_n;
  const double sharing = schedule.blocks() > sm_count ? shape.blocks_per_sm : 1;  // blocks that divide an SM
  const auto waves = static_cast<double>(ceil_div(schedule.blocks(), resident_blocks(shape, schedule, sm_count)));
  const auto steps = static_cast<double>(ceil_div(product.k_steps, schedule.splits));

  const double load_bytes = (shape.block_m() * product.a_share / schedule.multicast_a +
                             shape.block_n * product.b_share / schedule.multicast) *
                            kRowBytes;
  const double step =
      std::max({sharing * elements * kBlockK / costs.fma_per_cycle, sharing * load_bytes / costs.bytes_per_cycle,
                costs.load_latency / (schedule.alone ? shape.deep_stages : shape.stages), costs.least_step}) +
      costs.byte * load_bytes;
  const double once = schedule.multicast * schedule.multicast_a > 1 ? costs.multicast : 0;
  const double store = sharing * elements * costs.store;
  if (shape.pingpong) return once + costs.fill + 2 * store + waves * (steps * step + costs.turn);
  double tile = costs.fill + steps * step;
  if (schedule.splits > 1)
    tile += costs.meet + costs.meet_per_block * schedule.splits + sharing * elements * costs.exchange;
  else
    tile += store;
  return once + waves * tile;
}

void Sm90aModel::visit_schedules(int sm_count,
                                 const std::function<void(const Sm90aProduct&, const Sm90aSchedule&)>& visit) const {
  for (int tile = 0; tile < static_cast<int>(kernel.tiles.size()); ++tile) {
    const Sm90aProduct product = product_for(kernel.tiles[static_cast<std::size_t>(tile)]);
    for (const int multicast : {1, 2, 4})
      for (const int multicast_a : {1, 2, 4})
        for (int splits = 1; splits <= kLargestCluster; ++splits)
          if (const auto schedule = find_schedule(kernel, product, tile, multicast, multicast_a, splits, sm_count))
            visit(product, *schedule);
  }
}

Sm90aSchedule Sm90aModel::choose(int sm_count, const MeasuredCut* measured) const {
  if (measured != nullptr)
    if (const auto schedule = measured_schedule(*this, *measured, sm_count)) return *schedule;
  Sm90aSchedule best;
  double least = std::numeric_limits<double>::infinity();
  visit_schedules(sm_count, [&](const Sm90aProduct& product, const Sm90aSchedule& schedule) {
    const double cycles = modelled_cycles(kernel, product, schedule, sm_count);
    if (cycles < least) {
      least = cycles;
      best = schedule;
    }
  });
  return best;
}

std::string schedule_text(const Sm90aKernel& kernel, const Sm90aSchedule& schedule) {
  const MeasuredCut cut = cut_of(kernel, schedule);
  const auto field = [](const char* name, int value) { return name + std::to_string(value); };
  return field("rows=", cut.rows) + field(",columns=", cut.columns) + field(",pingpong=", cut.pingpong) +
         field(",multicast=", cut.multicast) + field(",splits=", cut.splits) +
         (cut.multicast_a > 1 ? field(",multicast_a=", cut.multicast_a) : "");
}

std::vector<Choice> Sm90aModel::choices(int sm_count) const {
  std::vector<Choice> choices{{schedule_text(kernel, choose(sm_count)), true}};
  visit_schedules(sm_count, [&](const Sm90aProduct&, const Sm90aSchedule& schedule) {
    const std::string text = schedule_text(kernel, schedule);
    if (text != choices.front().text) choices.push_back({text, false});
  });
  return choices;
}

std::optional<Sm90aSchedule> Sm90aModel::parse(std::string_view text, int sm_count) const {
  std::optional<Sm90aSchedule> found;
  visit_schedules(sm_count, [&](const Sm90aProduct&, const Sm90aSchedule& schedule) {
    if (!found && schedule_text(kernel, schedule) == text) found = schedule;
  });
  return found;
}

}  // namespace noisefloor::product
