// Fits the constants of the products' model of schedules (product::Sm90aCosts) to what `noisefloor tune` timed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/core/op.h"
#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::fit {

// A kernel whose choices the model makes.
struct FittedKernel {
  std::string name;     // gemm, im2col or halo
  Op op;                // whose problems it runs
  std::string variant;  // of the op
  std::string source;   // where its constants stand
  bool turn_is_fill;    // a turn is taken to cost the fill, not fitted
  product::Sm90aModel (*model_of)(const AnyProblem&);

  product::Sm90aKernel present() const;  // with the constants that stand in the source
};
const std::vector<FittedKernel>& fitted_kernels();

struct TimedSchedule {
  product::Sm90aProduct product;
  product::Sm90aSchedule schedule;
  double cost = 0;  // its time to the best's of the problem, also of what was not timed to the end
};
struct TimedProblem {
  bool unseen = false;                   // in the half that a fit is judged on
  std::vector<TimedSchedule> schedules;  // as Sm90aModel::choose() meets them
};
struct Timings {
  std::string device;
  int sm_count = 0;
  std::vector<TimedProblem> problems;
};

// What a schedule counts that was not timed to the end: so much of the slowest that was, but for the estimate's choice,
// and at least so much of the best: `tune` keeps five, however fast others are, and what lies within a tenth.
inline constexpr double kNotTimed = 1.03, kLeastNotTimed = 1.10;

// Whether a problem is in the unseen half: by a hash of what the model sees of it, so that shapes that are one to the
// model are in one half.
bool is_unseen(const product::Sm90aModel& model);

// Warm and cold times together. Throws std::runtime_error naming file and line.
Timings read_timings(const FittedKernel& kernel, const std::filesystem::path& file);

// Geometric mean, over the problems of one half, of the time of the model's choice to the best timed.
double loss(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen);

// The constants of least loss on the half that is seen, of `rounds` tries: each changes some of the best so far by
// random factors, within what hardware of this kind could be. Of equals those nearer to the kernel's present ones are
// taken, so that what the timings say nothing of stays. A constant that is 0 does, too. One seed gives one result.
product::Sm90aCosts search(const FittedKernel& kernel, const Timings& timings, std::uint64_t seed, int rounds);

// As they stand in a schedule.cpp: ".costs = {...}". A constant that is 0 is not named.
std::string source_text(const product::Sm90aCosts& costs);

}  // namespace noisefloor::fit
