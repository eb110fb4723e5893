// A library that offers algorithms for a gemm: what they take, refuse and get wrong is the test's.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "baselines/baseline.h"
#include "kernels/catalogue.h"
#include "tests/support/scripted_platform.h"

namespace noisefloor {

inline const AnyVariant& host_gemm() {
  const auto& variants = find_op("gemm")->variants;
  return *std::find_if(variants.begin(), variants.end(),
                       [](const AnyVariant& variant) { return variant.kind == Kind::host; });
}

inline constexpr int kNoLaunch = std::numeric_limits<int>::max();

struct Algorithm {
  double us = 1;
  bool right = true;
  int refuses_from = kNoLaunch;  // the launch, from 0
  int slow_from = kNoLaunch;     // a hundred times slower
  StatusCode refusal = StatusCode::unsupported_problem;
  bool loses_device = false;
  int launches = 0;
};

class ScriptedLibrary {
 public:
  // `platform` must outlive what is made here; the library its implementation.
  ScriptedLibrary(ScriptedPlatform& platform, std::vector<Algorithm> offered)
      : algorithms(std::move(offered)), platform_(&platform) {}

  Status launch(int index, const AnyProblem& problem, DType dtype, std::span<void* const> pointers, void* workspace,
                const LaunchContext& context) {
    Algorithm& algorithm = algorithms.at(static_cast<std::size_t>(index));
    const int launch = algorithm.launches++;
    if (algorithm.loses_device) throw DeviceError("the device fell off the bus", true);
    if (launch >= algorithm.refuses_from) return failure(algorithm.refusal, "not this one");
    constexpr int kSlower = 100;
    platform_->clock_us += algorithm.us * (launch >= algorithm.slow_from ? kSlower : 1);
    const Status status = host_gemm().launch(problem, dtype, pointers, {workspace}, context);
    if (!algorithm.right) store_element(dtype, pointers.back(), 0, 1e3);
    return status;
  }

  // Keeps the fastest accurate algorithm. It runs on the host, which the vendors' do not.
  ImplementationPtr implementation();

  std::vector<Algorithm> algorithms;

 private:
  ScriptedPlatform* platform_;
};

class ScriptedRun final : public BaselineRun {
 public:
  ScriptedRun(ScriptedLibrary& library, const AnyProblem& problem, DType dtype)
      : library_(&library), problem_(problem), dtype_(dtype) {}

  std::size_t workspace_bytes() const override { return host_gemm().workspace_bytes(problem_, dtype_, {}); }
  Status tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
              Ranker& ranker) override {
    const auto launch = [&](int index) {
      return library_->launch(index, problem_, dtype_, pointers, scratch.workspace, context);
    };
    const Ranking ranking = ranker.rank(static_cast<int>(library_->algorithms.size()), launch);
    if (!ranking.status.ok()) return ranking.status;
    for (const Timed& timed : ranking.fastest) {
      chosen_ = timed.index;
      if (ranker.accurate([&] { return launch(chosen_); })) return success();
    }
    return failure(StatusCode::unsupported_problem, "no algorithm is accurate");
  }
  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context) override {
    return library_->launch(chosen_, problem_, dtype_, pointers, scratch.workspace, context);
  }
  std::string description() const override { return "algorithm " + std::to_string(chosen_); }

 private:
  ScriptedLibrary* library_;
  AnyProblem problem_;
  DType dtype_;
  int chosen_ = -1;
};

inline ImplementationPtr ScriptedLibrary::implementation() {
  static ScriptedLibrary* making = nullptr;  // Baseline::create is told of no library
  static const Baseline baseline{"gemm", "scripted", [](const AnyProblem&, DType) { return supported(); },
                                 [](const AnyProblem& problem, DType dtype, const DeviceInfo&) {
                                   return std::unique_ptr<BaselineRun>(new ScriptedRun(*making, problem, dtype));
                                 }};
  class OnHost final : public Implementation {
   public:
    explicit OnHost(ScriptedLibrary& library) : library_(&library), of_baseline_(implementation_of(baseline)) {
      name = of_baseline_->name;
      kind = of_baseline_->kind;
      on_host = true;
    }
    std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype,
                                KnownTimes& known) const override {
      making = library_;
      return of_baseline_->make(platform, problem, dtype, known);
    }

   private:
    ScriptedLibrary* library_;
    ImplementationPtr of_baseline_;
  };
  return std::make_shared<OnHost>(*this);
}

}  // namespace noisefloor
