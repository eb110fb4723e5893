#include "kernels/product/sm90a_choices.h"

namespace noisefloor::product {

std::string schedule_text(const Sm90aKernel& kernel, const Sm90aSchedule& schedule) {
  const Sm90aTile& tile = kernel.tiles[static_cast<std::size_t>(schedule.tile)];
  const auto number = [](int value) { return std::to_string(value); };
  return "rows=" + number(tile.block_m()) + ",columns=" + number(tile.block_n) +
         ",pingpong=" + number(tile.pingpong ? 1 : 0) + ",multicast=" + number(schedule.multicast) +
         ",splits=" + number(schedule.splits);
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

}  // namespace noisefloor::product
