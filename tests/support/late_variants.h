// Variants that are right when they are verified, and wrong in timed launches. They exist in tests only, to show that
// every phase is judged.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "bench/measure/case_runner.h"
#include "tests/support/catalogue_cases.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {

// `right`, whose launches do nothing where `idle` says so.
inline AnyVariant idle_variant(const AnyVariant& right, const std::function<bool(const LaunchContext&)>& idle) {
  return launched_by(right, [idle](const auto& own, auto pointers, const LaunchContext& context) {
    return idle(context) ? success() : own(pointers);
  });
}

// `right`, which computes once and gives that result for ever after. `platform` must outlive it.
inline AnyVariant keeping_variant(const AnyVariant& right, Platform& platform, const std::vector<TensorSpec>& specs) {
  const auto kept = std::make_shared<std::vector<Buffer>>();
  return launched_by(right, [&platform, specs, kept](const auto& own, auto pointers, const auto&) {
    const bool first = kept->empty();
    if (first) {
      if (const Status status = own(pointers); !status.ok()) return status;
      for (const TensorSpec& spec : specs) kept->emplace_back(platform, spec.bytes());
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].role == Role::in) continue;
      void *const here = pointers[i], *const there = (*kept)[i].data();
      platform.copy(first ? there : here, first ? here : there, specs[i].bytes());
    }
    return success();
  });
}

// Each way of being wrong later makes the row so; the right variant's row is `ok`. `recording` says whether launches
// are being recorded into a graph.
inline void expect_late_is_caught(Platform& platform, const CatalogueCase& one, const ProblemEntry& problem,
                                  DType dtype, const std::function<bool(const LaunchContext&)>& recording) {
  const AnyVariant& right = *one.implementation->variant();
  RunnerOptions options;
  options.counters = CounterMode::off;
  options.watch_others = false;  // whether it is ok shall not depend on what else this machine does
  options.slots = 3;
  options.cold = {0.005, 4, 8, 0.005};
  options.warm = {0.005, 2, 4, 0.002};
  CaseRunner runner(platform, nullptr, options);
  const auto run = [&](const AnyVariant& variant) {
    return runner.run({one.entry, implementation_of(variant), problem.problem, dtype, problem.text}).row;
  };
  const SweepRow good = run(right);
  ASSERT_EQ(good.status, Outcome::ok) << good.reason;
  const auto expect_caught = [&](const char* what, const AnyVariant& wrong) {
    const SweepRow row = run(wrong);
    EXPECT_TRUE(row.status == Outcome::incorrect || row.status == Outcome::cuda_error)
        << what << ": " << to_string(row.status);
    EXPECT_FALSE(row.time_cold_us || row.time_warm_us || row.time_warm_serial_us) << what;
  };
  const auto launches = std::make_shared<int>(0);
  expect_caught("nothing from the third launch",
                idle_variant(right, [=](const LaunchContext&) { return ++*launches > 2; }));
  const auto specs = one.entry->workload->tensors(problem.problem, dtype);
  if (std::any_of(specs.begin(), specs.end(),
                  [](const TensorSpec& spec) { return spec.role == Role::in && spec.fill.kind == Fill::Kind::normal; }))
    expect_caught("the result of the first inputs", keeping_variant(right, platform, specs));
  if (platform.description().is_host) return;  // it has neither of these
  expect_caught("nothing inside a graph", idle_variant(right, recording));
  expect_caught("nothing under programmatic launch",
                idle_variant(right, [](const LaunchContext& context) { return context.programmatic_launch; }));
}

}  // namespace noisefloor
