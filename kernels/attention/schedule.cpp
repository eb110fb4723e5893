#include "kernels/attention/schedule.h"

#include <string>
#include <tuple>

#include "kernels/core/measured.h"

namespace noisefloor::attention {
namespace {

std::string text_of(const Schedule& schedule) {
  const Tile& tile = kTiles[static_cast<std::size_t>(schedule.tile)];
  const auto field = [](const char* name, int value) { return name + std::to_string(value); };
  return field("rows=", tile.rows()) + field(",keys=", tile.keys) + field(",blocks=", tile.blocks) +
         field(",overlap=", tile.overlap) + field(",polynomial=", tile.polynomial) + field(",turns=", schedule.turns) +
         field(",lazy=", schedule.lazy) + field(",splits=", schedule.splits);
}

// The smallest head size of a tile that holds a head of `dim`.
int tile_dim(std::int64_t dim) {
  for (const Tile& tile : kTiles)
    if (dim <= tile.dim) return tile.dim;
  return 0;
}

// Every schedule for a problem, the first one for what was not timed. Keys are split where that leaves at most two
// blocks an SM, and every block a tile.
template <class Visit>
void visit_schedules(const Problem& p, int sm_count, const Visit& visit) {
  const int wanted = tile_dim(p.dim);
  for (std::size_t i = 0; i < kTiles.size(); ++i) {
    const Tile& tile = kTiles[i];
    if (tile.dim != wanted) continue;
    const std::int64_t blocks = p.batch * p.heads * ((p.seq_q + tile.rows() - 1) / tile.rows());
    for (int splits = 1; splits <= (tile.splits ? 8 : 1); splits *= 2) {
      if (splits > 1 && (splits > (p.seq_kv + tile.keys - 1) / tile.keys || blocks * splits > 2 * sm_count)) break;
      for (const bool turns : {true, false}) {
        visit(Schedule{static_cast<int>(i), turns, true, splits});
        if (tile.splits && splits == 1) visit(Schedule{static_cast<int>(i), turns, false, splits});
      }
    }
  }
}

}  // namespace

Schedule choose(const Problem& p, int sm_count, const MeasuredSchedules& measured) {
  std::optional<Schedule> first;
  if (sm_count == measured.sm_count) {
    const auto shape_of = [](const auto& row) {
      return std::tuple(row.batch, row.heads, row.seq_q, row.seq_kv, row.dim);
    };
    if (const MeasuredSchedule* row = find_measured(measured.schedules, shape_of(p), shape_of))
      visit_schedules(p, sm_count, [&](const Schedule& s) {
        const Tile& t = kTiles[static_cast<std::size_t>(s.tile)];
        if (std::tuple(t.rows(), t.keys, t.blocks, int{t.overlap}, t.polynomial, int{s.turns}, int{s.lazy}, s.splits) ==
            std::tuple(row->rows, row->keys, row->blocks, row->overlap, row->polynomial, row->turns, row->lazy,
                       row->splits))
          first = s;
      });
  }
  visit_schedules(p, sm_count, [&](const Schedule& schedule) {
    if (!first) first = schedule;
  });
  return *first;
}

std::vector<Choice> schedule_choices(const Problem& problem, DType, const DeviceInfo& device) {
  const std::string chosen = text_of(choose(problem, device.sm_count, {}));
  std::vector<Choice> choices{{chosen, true}};
  visit_schedules(problem, device.sm_count, [&](const Schedule& schedule) {
    if (const std::string text = text_of(schedule); text != chosen) choices.push_back({text, false});
  });
  return choices;
}

std::optional<Schedule> parse_schedule(const Problem& problem, std::string_view choice, int sm_count) {
  std::optional<Schedule> found;
  visit_schedules(problem, sm_count, [&](const Schedule& schedule) {
    if (text_of(schedule) == choice) found = schedule;
  });
  return found;
}

}  // namespace noisefloor::attention
