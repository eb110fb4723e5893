// Fits the constants of the products' model of schedules (product::Sm90aCosts) to what `noisefloor tune` timed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/op.h"
#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::fit {

// A fit stays within what hardware of this kind could be: a constant that the timings say little of runs off otherwise.
struct Constant {
  const char* name;
  double product::Sm90aCosts::*place;
  double least, most;
};
std::span<const Constant> constants();  // in the order of the struct

// As they stand in a schedule.cpp: ".costs = {...}", to three significant digits. One that is 0 is not named.
std::string source_text(const product::Sm90aCosts& costs);

// A kernel whose choices the model makes.
struct FittedKernel {
  std::string name;     // gemm, im2col or halo
  Op op;                // whose problems it runs
  std::string variant;  // of the op
  std::string source;   // where its constants stand
  bool turn_is_fill;    // a turn is taken to cost the fill, not fitted
  // Calls back with its model of a problem, which lives as long as the call.
  std::function<void(const AnyProblem&, const std::function<void(const product::Sm90aModel&)>&)> with_model;

  product::Sm90aKernel present() const;  // with the constants that stand in the source
};
const std::vector<FittedKernel>& fitted_kernels();
const FittedKernel& require_kernel(std::string_view name);  // throws InvalidInput

struct TimedSchedule {
  product::Sm90aProduct product;
  product::Sm90aSchedule schedule;
  double cost = 0;  // its time to the best's of the problem, also of what was not timed to the end
};
struct TimedProblem {
  bool unseen = false;                   // in the half that a fit is judged on
  std::vector<TimedSchedule> schedules;  // as product::choose() meets them
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

// Warm and cold times together. Throws std::runtime_error naming file, line and what is valid.
Timings read_timings(const FittedKernel& kernel, const std::filesystem::path& file);

// Geometric mean, over the problems of one half, of the time of the model's choice to the best timed.
double loss(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen);

// The constants of least loss on the half that is seen, of `rounds` tries: each changes some of the best so far by
// random factors, within constants()' ranges. Of equals those nearer to the kernel's present ones are taken, so that
// what the timings say nothing of stays. A constant that is 0 does, too. One seed gives one result.
product::Sm90aCosts search(const FittedKernel& kernel, const Timings& timings, std::uint64_t seed, int rounds);

}  // namespace noisefloor::fit
