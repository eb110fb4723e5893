#include "bench/measure/suite.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "bench/measure/fixture.h"
#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

const char* name_of(Role role) {
  return role == Role::in ? "in" : role == Role::out ? "out" : "inout";
}

void describe_tensors(const Workload& workload, const AnyProblem& problem, std::int64_t most_values,
                      nlohmann::ordered_json& record) {
  const DType dtype = workload.dtypes.front();
  const auto specs = workload.tensors(problem, dtype);
  record["tensors"] = nlohmann::ordered_json::array();
  record["filled"] = record["normal"] = nlohmann::ordered_json::object();
  for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
    const TensorSpec& spec = specs[tensor];
    record["tensors"].push_back(
        {{"name", spec.name}, {"shape", spec.shape}, {"dtype", to_string(spec.dtype)}, {"role", name_of(spec.role)}});
    if (spec.role == Role::out) continue;
    if (spec.fill.kind == Fill::Kind::normal) {
      record["normal"][spec.name] = {spec.fill.mean, spec.fill.stddev};
    } else if (spec.elements() <= most_values) {
      std::vector<std::byte> data(spec.bytes());
      workload.fill(problem, dtype, tensor, data.data());
      std::vector<double> values(static_cast<std::size_t>(spec.elements()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = load_element(spec.dtype, data.data(), static_cast<std::int64_t>(i));
      record["filled"][spec.name] = values;
    }
  }
}

constexpr std::int64_t kMinimumSamples = 512;
constexpr std::int64_t kMaximumElements = std::int64_t{1} << 22;  // 32 MiB of doubles
constexpr std::int64_t kMaximumSamples = std::int64_t{1} << 20;

// First, last, and the rest at random, ascending and distinct: the same elements for every variant, others in the next
// process, so that no kernel can know them when it is built. What is wrong is said of an element by name.
std::vector<std::int64_t> sample_elements(std::int64_t total, std::int64_t wanted) {
  std::vector<std::int64_t> elements = {0, total - 1};
  static const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed ^ static_cast<std::uint64_t>(total));
  std::uniform_int_distribution<std::int64_t> any(0, total - 1);
  for (std::int64_t i = 0; i < wanted; ++i) elements.push_back(any(random));
  std::sort(elements.begin(), elements.end());
  elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  return elements;
}

class OpOracle final : public Oracle {
 public:
  explicit OpOracle(const Op& op) : op_(&op) {
    for (const AnyVariant& variant : op.variants)
      if (variant.built) variants_.push_back(implementation_of(variant));
  }

  std::vector<Expectation> expect(Fixture& fixture, double budget) const override {
    std::vector<Expectation> expectations;
    const auto& specs = fixture.specs();
    const double flops = op_->cost(fixture.problem(), fixture.dtype()).flops;
    const auto inputs = fixture.host_tensors();
    for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
      if (specs[tensor].role == Role::in) continue;
      const std::int64_t total = specs[tensor].elements();
      Expectation expected{tensor, flops <= budget && total <= kMaximumElements, {}, {}};
      if (expected.complete) {
        expected.elements.resize(static_cast<std::size_t>(total));
        std::iota(expected.elements.begin(), expected.elements.end(), std::int64_t{0});
      } else {
        const auto affordable = static_cast<std::int64_t>(budget / (flops / static_cast<double>(total)));
        expected.elements = sample_elements(total, std::clamp(affordable, kMinimumSamples, kMaximumSamples));
      }
      expected.values.resize(expected.elements.size());
      const auto count = static_cast<std::int64_t>(expected.elements.size());
      // One range a core and no more: what elements share, a group's moments, each range computes for itself.
      const std::int64_t cores = host_threads();
      const auto reference = [&](std::int64_t begin, std::int64_t end) {
        const auto at = static_cast<std::size_t>(begin), size = static_cast<std::size_t>(end - begin);
        op_->reference(fixture.problem(), fixture.dtype(), inputs, tensor,
                       std::span(expected.elements).subspan(at, size), std::span(expected.values).subspan(at, size));
      };
      parallel_for(count, std::max<std::int64_t>(1, (count + cores - 1) / cores), reference);
      expected.rms = root_mean_square(expected.values);
      expectations.push_back(std::move(expected));
    }
    return expectations;
  }

  std::vector<const Implementation*> stand_ins(bool quick) const override {
    std::vector<const Implementation*> found;
    for (const Kind kind : {Kind::tiled, Kind::tensor_core, Kind::naive})
      for (const ImplementationPtr& variant : variants_)
        if (variant->is(kind) && (quick || kind == Kind::naive)) found.push_back(variant.get());
    return found;
  }

 private:
  const Op* op_;
  std::vector<ImplementationPtr> variants_;
};

}  // namespace

ImplementationPtr SuiteEntry::find(std::string_view implementation) const {
  for (const ImplementationPtr& one : implementations)
    if (one->name == implementation) return one;
  return nullptr;
}

const SuiteEntry* Suite::find(std::string_view workload) const {
  for (const SuiteEntry& entry : entries_)
    if (entry.name() == workload) return &entry;
  return nullptr;
}

void Suite::add(std::string_view workload, ImplementationPtr row) {
  const_cast<SuiteEntry*>(find(workload))->implementations.push_back(std::move(row));
}

nlohmann::ordered_json problem_record(const Workload& workload, const AnyProblem& problem, std::int64_t most_values) {
  nlohmann::ordered_json record = {{"op", workload.name}, {"problem", workload.print(problem)}};
  for (const KeyValue& pair : workload.values(problem)) record["fields"][pair.key] = pair.value;
  for (const DType dtype : workload.dtypes) {
    const Cost cost = workload.cost(problem, dtype);
    const Tolerance tolerance = workload.tolerance(problem, dtype);
    record["dtypes"][to_string(dtype)] = {{"flops", cost.flops},
                                          {"bytes", cost.bytes},
                                          {"max_error", tolerance.max_error},
                                          {"l2_error", tolerance.l2_error}};
  }
  describe_tensors(workload, problem, most_values, record);
  return record;
}

std::unique_ptr<Oracle> oracle_of(const Op& op) {
  return std::make_unique<OpOracle>(op);
}

double root_mean_square(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace noisefloor
