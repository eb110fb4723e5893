// What can be measured here, each listed once: workloads with their implementations and what those are held to. It is
// put together in bench/sweep/suite.cpp and handed down.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/implementation.h"
#include "reports/run/case_id.h"

namespace noisefloor {

class Fixture;

// Exact values of an output: of all its elements, or of a sample.
struct Expectation {
  std::size_t tensor;
  bool complete;                       // elements are all of the tensor's
  std::vector<std::int64_t> elements;  // ascending
  std::vector<double> values;
  double rms = 0;  // of the values
};

class Oracle {
 public:
  virtual ~Oracle() = default;
  // What the fixture's outputs must be; of every element where `flops` of work allow that. Throws OutOfMemory,
  // DeviceError.
  virtual std::vector<Expectation> expect(Fixture& fixture, double flops) const = 0;
  // What may stand in for the oracle in the elements that it leaves out, once it agrees with it in the others: the
  // first that does. `quick`: those that are faster than the naive one before it.
  virtual std::vector<const Implementation*> stand_ins(bool /*quick*/) const { return {}; }
};

// An op's host function; its stand-in is the naive variant, or a quick one: tiled, then those of tensor cores. `op`
// must outlive it.
std::unique_ptr<Oracle> oracle_of(const Op& op);

// The root mean square of the values, as Expectation::rms.
double root_mean_square(const std::vector<double>& values);

struct SuiteEntry {
  const Workload* workload;                        // an op of the catalogue, or whole networks
  std::vector<ImplementationPtr> implementations;  // in the order of the variants, then the vendors'
  std::shared_ptr<const Oracle> oracle;
  bool whole_networks = false;  // put together from the other entries

  const std::string& name() const { return workload->name; }
  ImplementationPtr find(std::string_view implementation) const;  // null when there is none
};

class Suite {
 public:
  explicit Suite(std::vector<SuiteEntry> entries) : entries_(std::move(entries)) {}
  const std::vector<SuiteEntry>& entries() const { return entries_; }
  const SuiteEntry* find(std::string_view workload) const;     // null when there is none
  void add(std::string_view workload, ImplementationPtr row);  // behind the others of the workload, which is there

 private:
  std::vector<SuiteEntry> entries_;
};

// A case of a sweep.
struct Case {
  const SuiteEntry* entry = nullptr;
  ImplementationPtr implementation;
  AnyProblem problem;
  DType dtype = DType::bf16;
  std::string text;           // the problem's canonical text
  std::string networks = {};  // "adm64-b1:10;sd15-b2:2"
  bool brief = false;         // left out where its launches are predicted to be long (case_result.h, too_long)
  // Of a launch of a network as built, on a GPU: which tensors are weights there (LaunchContext::constant_inputs).
  std::optional<std::uint64_t> weights = {};

  CaseId id() const { return {{entry->name(), text, to_string(dtype)}, implementation->name}; }
};

// A problem for another program: every field, what it costs, how exact it must be, and its inputs, as one JSON object.
// {"op", "problem", "fields": {name: value, ...}, "dtypes": {name: {"flops", "bytes", "max_error", "l2_error"}},
//  "tensors": [{"name", "shape", "dtype", "role"}], "filled": {...}, "normal": {...}}
//
// Fields have their defaults too. Tensors are in the op's first dtype. `filled` has the values of inputs that the op
// fills itself, of tensors of up to `most_values` (null for an infinity), `normal` the mean and standard deviation of
// the random ones.
nlohmann::ordered_json problem_record(const Workload& workload, const AnyProblem& problem, std::int64_t most_values);

}  // namespace noisefloor
