// A library that offers algorithms for a gemm: what they take, refuse and get wrong is the test's.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "baselines/search.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/implementation.h"
#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {

inline const AnyVariant& host_gemm() {
  const auto& variants = find_op("gemm")->variants;
  return *std::find_if(variants.begin(), variants.end(),
                       [](const AnyVariant& variant) { return variant.kind == Kind::host; });
}

inline constexpr int kNoLaunch = std::numeric_limits<int>::max();

// In fp32.
inline Case gemm_case(ImplementationPtr implementation, const char* text = "m=4,n=4,k=4") {
  const SuiteEntry& gemm = *suite().find("gemm");
  return {&gemm, std::move(implementation), gemm.workload->parse(text), DType::fp32, text};
}

// What a row in fp32 is placed under: a hundred of each.
inline Ceilings low_ceilings() {
  Ceilings ceilings;
  for (const char* name : {"dram_copy", "dram_read", "fma_fp32"}) ceilings.rows.emplace_back().name = name;
  for (Ceiling& ceiling : ceilings.rows) ceiling.value = 100;
  return ceilings;
}

struct Algorithm {
  double us = 1;
  double warm_us = 0;  // 0: as cold
  bool right = true;
  int wrong_from = kNoLaunch;    // the launch
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
    const double us = platform_->warm && algorithm.warm_us > 0 ? algorithm.warm_us : algorithm.us;
    platform_->clock_us += us * (launch >= algorithm.slow_from ? kSlower : 1);
    const Status status = host_gemm().launch(problem, dtype, pointers, {workspace}, context);
    if (!algorithm.right || launch >= algorithm.wrong_from) store_element(dtype, pointers.back(), 0, 1e3);
    return status;
  }

  // Keeps the fastest accurate algorithms, in `kept` too. It runs on the host, which the vendors' do not.
  ImplementationPtr implementation(std::shared_ptr<SearchCache> kept = nullptr);

  std::vector<Algorithm> algorithms;
  int searches = 0;
  long version = 1;
  bool offers_no_more = false;  // what a search found earlier

 private:
  ScriptedPlatform* platform_;
};

class ScriptedRun final : public BaselineRun {
 public:
  ScriptedRun(ScriptedLibrary& library, const AnyProblem& problem, DType dtype, const Algorithms& earlier)
      : library_(&library), problem_(problem), dtype_(dtype) {
    if (earlier.empty()) return;
    if (library.offers_no_more) throw LibraryRefused("it is not offered any more");
    chosen_ = {std::stoi(earlier.at(0)), std::stoi(earlier.at(1))};
  }

  std::size_t workspace_bytes() const override { return host_gemm().workspace_bytes(problem_, dtype_, {}); }
  Status tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
              Ranker& ranker) override {
    ++library_->searches;
    const auto launch = [&](int index) {
      return library_->launch(index, problem_, dtype_, pointers, scratch.workspace, context);
    };
    const Found found = search(ranker, static_cast<int>(library_->algorithms.size()), launch, launch);
    chosen_ = found.algorithm;
    tally_ = found.tally;
    return found.status;
  }
  Status launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                Caches caches) override {
    return library_->launch(chosen_.of(caches), problem_, dtype_, pointers, scratch.workspace, context);
  }
  std::string description() const override {
    return "algorithm " + names_of({std::to_string(chosen_.cold), std::to_string(chosen_.warm)}) + "; " + tally_;
  }
  Algorithms algorithms() const override { return {std::to_string(chosen_.cold), std::to_string(chosen_.warm)}; }

 private:
  ScriptedLibrary* library_;
  AnyProblem problem_;
  DType dtype_;
  ColdWarm<int> chosen_{-1, -1};
  std::string tally_;
};

inline ImplementationPtr ScriptedLibrary::implementation(std::shared_ptr<SearchCache> kept) {
  static ScriptedLibrary* making = nullptr;  // Baseline::create is told of no library
  static const Baseline baseline{
      "gemm", "scripted", [](const AnyProblem&, DType) { return supported(); },
      [](const AnyProblem& problem, DType dtype, const DeviceInfo&, const Algorithms& earlier) {
        return std::unique_ptr<BaselineRun>(new ScriptedRun(*making, problem, dtype, earlier));
      },
      [] { return making->version; }};
  return std::make_shared<MadeBy>(
      baseline.name, Kind::baseline,
      [this, made = implementation_of(baseline, *find_op("gemm"), std::move(kept))](auto&&... given) {
        making = this;
        return made->make(given...);
      });
}

}  // namespace noisefloor
