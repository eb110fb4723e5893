#include "bench/measure/suite.h"

#include <nlohmann/json.hpp>

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

}  // namespace noisefloor
