// Timings made from the model itself, with constants that are not the present ones: a fit must find choices as good.
#include "tools/fit/fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "kernels/product/sm90a_schedule.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::fit {
namespace {

constexpr int kFitSms = 132;
constexpr const char* kFitHeader =
    "device,sm_count,commit,problem,dtype,variant,choice,estimated,warm_us,cold_us,asked\n";

std::vector<std::string> problems_of(const FittedKernel& kernel) {
  std::vector<std::string> problems;
  if (kernel.name == "gemm") {
    for (const int m : {64, 77, 256, 512, 1024, 2048, 4096, 8192})
      for (const int n : {320, 640, 768, 1280, 1536, 2560})
        for (const int k : {320, 768, 1280, 2560, 5120}) problems.push_back(fmt::format("m={},n={},k={}", m, n, k));
    return problems;
  }
  for (const int images : {1, 2, 8})
    for (const int pixels : {8, 16, 32, 64})
      for (const int cin : {192, 320, 768})
        for (const int cout : {192, 640})
          problems.push_back(fmt::format("n={},h={},w={},cin={},cout={}", images, pixels, pixels, cin, cout));
  return problems;
}

// As `noisefloor tune` writes them: the choices within `kKept` of the best, of what `costs` make of the model.
std::string timings_by(const FittedKernel& kernel, const product::Sm90aCosts& costs) {
  constexpr double kKept = 1.3, kCyclesPerUs = 1755;
  std::string text = kFitHeader;
  for (const std::string& problem : problems_of(kernel)) {
    const product::Sm90aModel model = kernel.model_of(kernel.op.parse(problem));
    product::Sm90aKernel real = model.kernel;
    real.costs = costs;
    std::vector<std::pair<double, std::string>> timed;
    const auto time = [&](const product::Sm90aProduct& product, const product::Sm90aSchedule& schedule) {
      timed.emplace_back(product::modelled_cycles(real, product, schedule, kFitSms) / kCyclesPerUs,
                         product::schedule_text(real, schedule));
    };
    model.visit_schedules(kFitSms, time);
    const double best = std::ranges::min(timed).first;
    for (const auto& [us, choice] : timed)
      if (us <= kKept * best)
        text += fmt::format("GPU,{},abc,\"{}\",bf16,{},\"{}\",0,{},{},0\n", kFitSms, problem, kernel.variant, choice,
                            us, us);
  }
  return text;
}

product::Sm90aCosts other_costs(product::Sm90aCosts costs) {
  costs.bytes_per_cycle *= 0.6;
  costs.load_latency *= 1.4;
  costs.fill *= 2;
  costs.store *= 2.5;
  costs.exchange *= 0.5;
  costs.meet *= 0.4;
  costs.multicast *= 2;
  return costs;
}

class Fit : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(folder_ / "timings.csv") << text;
    return (folder_ / "timings.csv").string();
  }
  TemporaryFolder folder_;
};

TEST_F(Fit, FindsConstantsWhoseChoicesAreAsGood) {
  for (const FittedKernel& kernel : fitted_kernels()) {
    SCOPED_TRACE(kernel.name);
    product::Sm90aKernel fitted = kernel.present();
    const Timings timings = read_timings(kernel, write(timings_by(kernel, other_costs(fitted.costs))));
    EXPECT_EQ(timings.problems.size(), problems_of(kernel).size());
    EXPECT_GT(loss(fitted, timings, true), 1.02) << "the present constants must have something to lose";
    for (const std::uint64_t seed : {1, 2, 3, 4}) {  // of a search that is sound, none is a lucky one
      SCOPED_TRACE(seed);
      fitted.costs = search(kernel, timings, seed, 3000);
      EXPECT_LE(loss(fitted, timings, false), 1.005);
      EXPECT_LE(loss(fitted, timings, true), 1.005);
    }
  }
}

TEST_F(Fit, ConstantsThatAreRightStay) {
  for (const FittedKernel& kernel : fitted_kernels()) {
    SCOPED_TRACE(kernel.name);
    const product::Sm90aKernel present = kernel.present();
    const Timings timings = read_timings(kernel, write(timings_by(kernel, present.costs)));
    for (const bool unseen : {false, true}) EXPECT_EQ(loss(present, timings, unseen), 1);
    const std::string text = source_text(search(kernel, timings, 1, 20));
    EXPECT_EQ(text, source_text(present.costs));
    EXPECT_TRUE(text.starts_with(".costs = {.fma_per_cycle = ")) << text;
  }
}

// A schedule of one problem, as a line of timings.
std::string fit_line(int splits, bool is_estimate, double cost) {
  return fmt::format(
      "GPU,132,abc,\"m=64,n=64,k=512\",bf16,ptx_sm90a,\"rows=64,columns=32,pingpong=0,multicast=1,splits={}\",{:d},{},{"
      "},0\n",
      splits, is_estimate, 10 * cost, 30 * cost);
}

// Of two schedules that were timed, the second `second` times as long, and the estimate's choice, if any, `estimated`
// times.
TEST_F(Fit, WhatWasNotTimedIsSlowerThanTheSlowestAndThanWhatTuneKeeps) {
  const auto expect = [&](double second, double estimated, double not_timed) {
    SCOPED_TRACE(fmt::format("{} {}", second, estimated));
    std::string text = kFitHeader + fit_line(1, false, 1) + fit_line(2, false, second);
    if (estimated > 0) text += fit_line(4, true, estimated);
    const auto all = read_timings(fitted_kernels().front(), write(text)).problems.at(0).schedules;
    const auto costing = [&](double cost) {
      return std::ranges::count_if(all, [&](const TimedSchedule& one) { return std::abs(one.cost - cost) < 1e-9; });
    };
    const std::ptrdiff_t others = std::ssize(all) - (estimated > 0 ? 3 : 2);
    ASSERT_GT(others, 0);
    EXPECT_EQ(costing(1), 1);
    EXPECT_EQ(costing(not_timed), others);
  };
  expect(2, 0, 2 * kNotTimed);
  expect(2, 5, 2 * kNotTimed);      // the estimate's choice stays, however slow
  expect(1.01, 0, kLeastNotTimed);  // five are kept, however near
  expect(1.01, 1.5, kLeastNotTimed);
}

// Problems that are one to the model are in one half: otherwise a fit would have seen what it is judged by.
TEST_F(Fit, FusionsOfAShapeAreInOneHalf) {
  const FittedKernel& kernel = fitted_kernels().front();
  const auto unseen = [&](const std::string& text) { return is_unseen(kernel.model_of(kernel.op.parse(text))); };
  int count = 0;
  for (const std::string& problem : problems_of(kernel)) {
    count += unseen(problem);
    for (const char* fusion : {",bias=0", ",act=silu", ",residual=1", ",residual=1,blend=1"})
      EXPECT_EQ(unseen(problem), unseen(problem + fusion)) << problem << fusion;
  }
  EXPECT_NEAR(count, 120, 30);
}

TEST_F(Fit, RefusesWhatItCannotRead) {
  const std::string line = fit_line(1, true, 1);
  for (const auto& [old, other] : {std::pair{"GPU", "Other"},
                                   {"10,30", "10,30"},  // the same choice again
                                   {"k=512", "l=512"},
                                   {"columns=32", "columns=33"},
                                   {"10,30", "10,x"},
                                   {"10,30", "10,nan"}}) {
    std::string changed = line;
    changed.replace(changed.find(old), std::string(old).size(), other);
    const std::string file = write(kFitHeader + line + changed);
    expect_parts(error_of([&] { return read_timings(fitted_kernels().front(), file); }), {":3: "});
  }
}

}  // namespace
}  // namespace noisefloor::fit
