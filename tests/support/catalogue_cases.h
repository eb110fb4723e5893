// What the catalogue's tests loop over: every implementation of every op on every problem of tests/problems, named by
// op, implementation and problem, and what is asked of each on a platform.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/bound_case.h"
#include "bench/measure/fixture.h"
#include "bench/measure/verify.h"
#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "tests/support/host_platforms.h"
#include "tests/support/test_problems.h"

namespace noisefloor {

// Made wrong on purpose: a right variant whose output is then spoilt in one place.
enum class Tampering {
  one_element_off,
  last_element_off,
  one_nan,
  one_not_written,
  past_the_end,
  before_the_start,
  input_changed
};

// The last changes the fixture for good.
inline constexpr std::pair<Tampering, const char*> kAllTamperings[] = {
    {Tampering::one_element_off, "one element off"},
    {Tampering::last_element_off, "the last element off"},
    {Tampering::one_nan, "one NaN"},
    {Tampering::one_not_written, "one element not written"},
    {Tampering::past_the_end, "a write one element past the end"},
    {Tampering::before_the_start, "a write one element before the start"},
    {Tampering::input_changed, "an input changed"}};

inline double root_mean_square(Platform& platform, const TensorSpec& spec, const void* data) {
  std::vector<char> bytes(spec.bytes());
  platform.download(bytes.data(), data, bytes.size());
  double squares = 0;
  for (std::int64_t i = 0; i < spec.elements(); ++i) {
    const double value = load_element(spec.dtype, bytes.data(), i);
    squares += value * value;
  }
  return std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(1, spec.elements())));
}

// `right` with one output spoilt after each launch: the first, or the last for those that are about ends, so that ops
// with several outputs have all of them shown to be checked. `fixture` must outlive it.
inline AnyVariant wrong_variant(const AnyVariant& right, Tampering tampering, const Fixture& fixture) {
  return launched_by(right, [=, &fixture](const auto& own, auto pointers, const auto&) {
    const Status status = own(pointers);
    if (!status.ok()) return status;
    Platform& platform = fixture.platform();
    platform.synchronize();
    std::size_t output = 0, input = 0;
    for (std::size_t i = fixture.specs().size(); i-- > 0;) (fixture.specs()[i].role == Role::in ? input : output) = i;
    if (tampering == Tampering::last_element_off || tampering == Tampering::past_the_end ||
        tampering == Tampering::one_not_written)
      for (std::size_t i = 0; i < fixture.specs().size(); ++i)
        if (fixture.specs()[i].role != Role::in) output = i;
    const TensorSpec& spec = fixture.specs()[output];
    const auto size = static_cast<std::int64_t>(size_of(spec.dtype));
    char* const data = static_cast<char*>(pointers[output]);

    std::int64_t place = spec.elements() / 3;
    if (tampering == Tampering::last_element_off) place = spec.elements() - 1;
    if (tampering == Tampering::past_the_end) place = spec.elements();
    if (tampering == Tampering::before_the_start) place = -1;
    std::array<char, 8> element{};
    if (tampering == Tampering::input_changed) {
      platform.download(element.data(), pointers[input], 2);
      element[0] = static_cast<char>(element[0] ^ 1);
      platform.upload(pointers[input], element.data(), 2);
      return success();
    }
    platform.download(element.data(), data + place * size, static_cast<std::size_t>(size));
    const double value = load_element(spec.dtype, element.data(), 0);
    const double allowed = fixture.workload().tolerance(fixture.problem(), fixture.dtype()).max_error;
    double spoilt = value + 6 * allowed * (std::abs(value) + root_mean_square(platform, spec, data) + 1);
    if (tampering == Tampering::past_the_end || tampering == Tampering::before_the_start) spoilt = 1;
    if (tampering == Tampering::one_nan) spoilt = std::numeric_limits<double>::quiet_NaN();
    store_element(spec.dtype, element.data(), 0, spoilt);
    if (tampering == Tampering::one_not_written) element.fill(static_cast<char>(0xFF));
    platform.upload(data + place * size, element.data(), static_cast<std::size_t>(size));
    return success();
  });
}

// One of an op's implementations, and what it is tested on.
struct CatalogueCase {
  const SuiteEntry* entry;
  ImplementationPtr implementation;
  std::vector<std::pair<const ProblemEntry*, DType>> on;

  std::string name() const { return entry->name() + "_" + implementation->name; }
};

inline void PrintTo(const CatalogueCase& one, std::ostream* stream) {
  *stream << one.name() << " on " << one.on.size();
}

inline const std::vector<ProblemEntry>& test_problems() {
  static const auto all = load_problems(test_problem_folder());
  return all;
}

using Chosen = std::function<bool(const Implementation&, const ProblemEntry&, DType)>;

// The implementations of the catalogue's ops on this kind of platform, each with those of `problems`, which must
// outlive the cases, and of their element types that it runs and that are chosen.
inline std::vector<CatalogueCase> catalogue_cases(bool host, const std::vector<ProblemEntry>& problems,
                                                  const Chosen& chosen) {
  std::vector<CatalogueCase> cases;
  for (const SuiteEntry& entry : suite().entries()) {
    if (find_op(entry.name()) == nullptr) continue;  // networks
    for (const ImplementationPtr& implementation : entry.implementations) {
      if (!implementation->runs_on_platform(host) || implementation->in_worker) continue;
      CatalogueCase one{&entry, implementation, {}};
      for (const ProblemEntry& problem : problems)
        for (const DType dtype : entry.workload->dtypes)
          if (problem.entry == &entry && implementation->can_run(problem.problem, dtype) &&
              chosen(*implementation, problem, dtype))
            one.on.emplace_back(&problem, dtype);
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

// Our variants on a device, on each problem in the first of the op's element types that is chosen and that they run.
inline std::vector<CatalogueCase> own_device_cases(
    const std::vector<ProblemEntry>& problems, bool (*chosen)(DType) = [](DType) { return true; }) {
  auto cases = catalogue_cases(
      /*host=*/false, problems, [=](const Implementation& implementation, const ProblemEntry& problem, DType dtype) {
        for (const DType first : problem.op->dtypes)
          if (chosen(first) && implementation.can_run(problem.problem, first)) return first == dtype;
        return false;
      });
  std::erase_if(cases, [](const CatalogueCase& one) { return !one.implementation->own(); });
  return cases;
}

// Why it cannot run on this device at all; "" where it can.
inline std::string cannot_run_on(const Platform& device, const Implementation& implementation) {
  if (!implementation.built) return "not built for this machine's architectures";
  if (!runs_on(implementation.arch, device.description().info.compute_capability))
    return std::string("needs ") + to_string(implementation.arch);
  return "";
}

// The same cases, a problem each. One without any stays, and for_each_problem() fails on it.
inline std::vector<CatalogueCase> one_by_one(const std::vector<CatalogueCase>& cases) {
  std::vector<CatalogueCase> split;
  for (const CatalogueCase& one : cases) {
    const ProblemEntry* last = nullptr;
    for (const auto& [problem, dtype] : one.on) {
      if (problem != last) split.push_back({one.entry, one.implementation, {}});
      split.back().on.emplace_back(problem, dtype);
      last = problem;
    }
    if (one.on.empty()) split.push_back(one);
  }
  return split;
}

// The same cases, each on the cheapest problem alone, or on that of every kind.
using KindOf = std::function<std::vector<std::string>(const Workload&, const ProblemEntry&, DType)>;
inline std::vector<CatalogueCase> cheapest(
    std::vector<CatalogueCase> cases, const KindOf& kind_of = [](auto&&...) { return std::vector<std::string>(); }) {
  for (CatalogueCase& one : cases) {
    const Workload& workload = *one.entry->workload;
    const auto work = [&](const auto& on) {
      const Cost cost = workload.cost(on.first->problem, on.second);
      return cost.flops + cost.bytes;
    };
    std::map<std::vector<std::string>, std::pair<const ProblemEntry*, DType>> least;
    for (const auto& on : one.on) {
      const auto [found, added] = least.emplace(kind_of(workload, *on.first, on.second), on);
      if (!added && work(on) < work(found->second)) found->second = on;
    }
    one.on.clear();
    for (const auto& [kind, on] : least) one.on.push_back(on);
  }
  return cases;
}

// Of every set of tensors and element type. Verification knows a problem by its tensors alone: what it sees of one of
// them, it sees of the others.
inline std::vector<CatalogueCase> cheapest_of_each_kind(std::vector<CatalogueCase> cases) {
  return cheapest(std::move(cases), [](const Workload& workload, const ProblemEntry& problem, DType dtype) {
    std::vector<std::string> kind{to_string(dtype)};
    for (const TensorSpec& spec : workload.tensors(problem.problem, dtype))
      kind.push_back(std::string(spec.name) + to_string(spec.dtype) + std::to_string(static_cast<int>(spec.role)));
    return kind;
  });
}

// What a test's name may hold of `text`: "n=2,fusion=silu+ss" is n2_fusionsilu_ss.
inline std::string name_of(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
    if (c == ',' || c == '_' || c == '+') name += '_';
    if (c == '-') name += 'm';
    if (c == '.') name += 'p';
  }
  return name;
}
inline std::string case_name(const testing::TestParamInfo<CatalogueCase>& info) {
  return name_of(info.param.name());
}
inline std::string problem_name(const testing::TestParamInfo<CatalogueCase>& info) {
  return name_of(info.param.name() + (info.param.on.empty() ? "" : "_" + info.param.on.front().first->text));
}

// Calls body(problem, dtype) for each; fails, and says what to write, where there is none.
template <class Body>
void for_each_problem(const CatalogueCase& one, Body&& body) {
  EXPECT_FALSE(one.on.empty()) << "nothing to run: write tests/problems/" << one.entry->name()
                               << ".csv, with a problem that " << one.implementation->name
                               << " runs (tests/problems/README.md)";
  for (const auto& [problem, dtype] : one.on) {
    SCOPED_TRACE(one.entry->name() + " " + one.implementation->name + " " + problem->text + " " + to_string(dtype));
    body(*problem, dtype);
  }
}

// A launch is repeatable: the second one, on poisoned outputs, gives the same bits.
inline void expect_repeatable(Platform& platform, const CatalogueCase& one, const ProblemEntry& problem, DType dtype) {
  Fixture fixture(platform, *one.entry, problem.problem, dtype, 3);
  BoundCase bound(fixture, *one.implementation);
  std::vector<std::uint64_t> sums[2];
  for (auto& sum : sums) {
    fixture.reset_outputs();
    throw_if_failed(bound.launch()());
    for (std::size_t i = 0; i < fixture.specs().size(); ++i)
      if (fixture.specs()[i].role != Role::in)
        sum.push_back(platform.checksum(fixture.pointers()[i], fixture.specs()[i].bytes()));
  }
  EXPECT_EQ(sums[0], sums[1]);
}

// Each way of being wrong is caught, and the right variant passes before each of them.
inline void expect_wrong_is_caught(Platform& platform, const CatalogueCase& one, const ProblemEntry& problem,
                                   DType dtype, double oracle_flops) {
  Fixture fixture(platform, *one.entry, problem.problem, dtype, 1);
  Verifier verifier(fixture, {.oracle_flops = oracle_flops});
  BoundCase right(fixture, *one.implementation);
  for (const auto& [tampering, name] : kAllTamperings) {  // the last spoils an input for good
    SCOPED_TRACE(name);
    const Verdict before = verifier.verify(right);
    EXPECT_TRUE(before.correct()) << before.reason;
    const AnyVariant wrong = wrong_variant(*one.implementation->variant(), tampering, fixture);
    const ImplementationPtr implementation = implementation_of(wrong);
    BoundCase bound(fixture, *implementation);
    const Verdict verdict = verifier.verify(bound);
    EXPECT_FALSE(verdict.correct());
    EXPECT_NE(verdict.reason, "");
  }
}

}  // namespace noisefloor
