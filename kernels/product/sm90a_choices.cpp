#include "kernels/product/sm90a_choices.h"

namespace noisefloor::product {
namespace {

MeasuredCut cut_of(const Sm90aKernel& kernel, const Sm90aSchedule& schedule) {
  const Sm90aTile& tile = kernel.tiles[static_cast<std::size_t>(schedule.tile)];
  return {tile.block_m(),     tile.block_n,    tile.pingpong ? 1 : 0,
          schedule.multicast, schedule.splits, schedule.multicast_a};
}

}  // namespace

std::string schedule_text(const Sm90aKernel& kernel, const Sm90aSchedule& schedule) {
  const MeasuredCut cut = cut_of(kernel, schedule);
  const auto field = [](const char* name, int value) { return name + std::to_string(value); };
  return field("rows=", cut.rows) + field(",columns=", cut.columns) + field(",pingpong=", cut.pingpong) +
         field(",multicast=", cut.multicast) + field(",splits=", cut.splits) +
         (cut.multicast_a > 1 ? field(",multicast_a=", cut.multicast_a) : "");
}

std::vector<Choice> schedule_choices(const Sm90aKernel& kernel, const ProductFor& product_for, int sm_count) {
  std::vector<Choice> choices{{schedule_text(kernel, choose(kernel, product_for, sm_count)), true}};
  visit_schedules(kernel, product_for, sm_count, [&](const Sm90aProduct&, const Sm90aSchedule& schedule) {
    const std::string text = schedule_text(kernel, schedule);
    if (text != choices.front().text) choices.push_back({text, false});
  });
  return choices;
}

std::optional<Sm90aSchedule> parse_schedule(const Sm90aKernel& kernel, const ProductFor& product_for,
                                            std::string_view text, int sm_count) {
  std::optional<Sm90aSchedule> found;
  visit_schedules(kernel, product_for, sm_count, [&](const Sm90aProduct&, const Sm90aSchedule& schedule) {
    if (!found && schedule_text(kernel, schedule) == text) found = schedule;
  });
  return found;
}

std::optional<Sm90aSchedule> find_schedule(const Sm90aKernel& kernel, const ProductFor& product_for,
                                           const MeasuredCut& cut, int sm_count) {
  for (int tile = 0; tile < static_cast<int>(kernel.tiles.size()); ++tile) {
    const Sm90aTile& shape = kernel.tiles[static_cast<std::size_t>(tile)];
    if (shape.block_m() == cut.rows && shape.block_n == cut.columns && (shape.pingpong ? 1 : 0) == cut.pingpong)
      return find_schedule(kernel, product_for(shape), tile, {cut.multicast, cut.multicast_a, cut.splits}, sm_count);
  }
  return std::nullopt;
}

}  // namespace noisefloor::product
