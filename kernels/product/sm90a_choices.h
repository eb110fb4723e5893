// The schedules of a ptx_sm90a variant as choices: what the tuner times, and tests force. Host code.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kernels/core/choice.h"
#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::product {

// "rows=128,columns=192,pingpong=0,multicast=2,splits=1" of a schedule of `kernel`; ",multicast_a=2" behind it of one
// that shares A.
std::string schedule_text(const Sm90aKernel& kernel, const Sm90aSchedule& schedule);

// All schedules, what choose() takes first and marked as the estimate. sm_count >= 1.
std::vector<Choice> schedule_choices(const Sm90aKernel& kernel, const ProductFor& product_for, int sm_count);

// The schedule of that text; none where it is not one of schedule_choices.
std::optional<Sm90aSchedule> parse_schedule(const Sm90aKernel& kernel, const ProductFor& product_for,
                                            std::string_view text, int sm_count);

// What a measured table says of a shape: a schedule as its text has it.
struct MeasuredCut {
  int rows, columns, pingpong, multicast, splits;
  int multicast_a = 1;
};
std::optional<Sm90aSchedule> find_schedule(const Sm90aKernel& kernel, const ProductFor& product_for,
                                           const MeasuredCut& cut, int sm_count);

}  // namespace noisefloor::product
