#include "bench/measure/problem_record.h"

#include <nlohmann/json.hpp>

namespace noisefloor {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Role role) {
  return role == Role::in ? "in" : role == Role::out ? "out" : "inout";
}

void describe_tensors(const Workload& workload, const AnyProblem& problem, std::int64_t most_values, Json& record) {
  const DType dtype = workload.dtypes.front();
  const auto specs = workload.tensors(problem, dtype);
  record["tensors"] = Json::array();
  record["filled"] = record["normal"] = Json::object();
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

Json problem_record(const Workload& workload, const AnyProblem& problem, std::int64_t most_values) {
  Json record = {{"op", workload.name}, {"problem", workload.print(problem)}};
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
