// Ops as benches, tests and reports loop over them: the contract of kernels/core/definition.h without its types.
//
// A room has one `definition` (OpDefinition): its fields, its tensors, what it costs, how exact it must be, its oracle
// and its variants. `make_op(definition)` turns it into an `Op`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/definition.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"
#include "kernels/core/variant.h"

namespace noisefloor {

// A problem of some op, immutable and cheap to copy.
class AnyProblem {
 public:
  AnyProblem() = default;
  template <class Problem>
  explicit AnyProblem(Problem problem) : data_(std::make_shared<Problem>(std::move(problem))) {}
  template <class Problem>
  const Problem& as() const {
    return *static_cast<const Problem*>(data_.get());
  }

 private:
  std::shared_ptr<const void> data_;
};

struct AnyVariant {
  std::string name;
  Kind kind;
  Arch arch;
  bool built = false;
  std::optional<std::string> not_written;  // why no build has it; none where one may
  bool not_applicable = false;             // and none will
  std::function<Support(const AnyProblem&, DType)> can_run;
  std::function<std::size_t(const AnyProblem&, DType, const DeviceInfo&)> workspace_bytes;
  std::function<std::size_t(const AnyProblem&, DType)> prepared_bytes;
  // Pointers in the order of Op::tensors.
  std::function<Status(const AnyProblem&, DType, std::span<void* const>, void* prepared, const LaunchContext&)> prepare;
  std::function<Status(const AnyProblem&, DType, std::span<void* const>, const Scratch&, const LaunchContext&)> launch;
  std::function<std::vector<Choice>(const AnyProblem&, DType, const DeviceInfo&)> choices = {};  // empty: none
  std::optional<std::string> limit = {};  // values up to which it is right; none where can_run tells all
};

// The same with what it is the reason of, for a row.
inline std::string why_not_written(const AnyVariant& variant) {
  return (variant.not_applicable ? "not applicable: " : "not written yet: ") + variant.not_written.value_or("");
}

// What can be computed, verified and timed: problems as text, their tensors, what they cost and how exact they must be.
struct Workload {
  std::string name;
  std::vector<DType> dtypes;
  std::vector<FieldInfo> fields;
  std::string computes;  // half a line
  TensorTable table;     // fields and tensors as symbols; no tensors of whole networks

  std::function<void(FieldVisitor&)> visit_fields;               // of a blank problem
  std::function<AnyProblem(std::vector<KeyValue>)> parse_pairs;  // throws InvalidInput
  std::function<std::string(const AnyProblem&)> print;
  std::function<std::vector<KeyValue>(const AnyProblem&)> values;  // of every field, defaults too
  std::function<std::vector<TensorSpec>(const AnyProblem&, DType)> tensors;
  std::function<Cost(const AnyProblem&, DType)> cost;
  std::function<Tolerance(const AnyProblem&, DType)> tolerance;
  // Fills tensors whose Fill::Kind is `op`, in host memory.
  std::function<void(const AnyProblem&, DType, std::size_t tensor, void* data)> fill;

  AnyProblem parse(std::string_view text) const { return parse_pairs(split_problem_text(text)); }
};

// A workload with an oracle and variants in order.
struct Op : Workload {
  std::vector<AnyVariant> variants;  // best last
  // Values of some elements of output `output` (an index into tensors()) in double. `inputs` has one entry per tensor,
  // null data for outputs. Elements should come in ascending order: ops cache what neighbours share.
  std::function<void(const AnyProblem&, DType, std::span<const HostTensor> inputs, std::size_t output,
                     std::span<const std::int64_t> elements, std::span<double> values)>
      reference;
};

template <class P, class T>
std::vector<TensorSpec> OpDefinition<P, T>::tensors(const P& problem, DType dtype) const {
  Symbols symbols;
  P copy = problem;  // which the visitor only reads
  fields(copy, symbols);
  std::vector<TensorSpec> specs;
  TensorVisitor visitor(dtype, symbols, specs);
  T unused;
  visit_tensors(problem, unused, visitor);
  return specs;
}

template <class P, class T>
T OpDefinition<P, T>::bind(const P& problem, std::span<void* const> pointers) const {
  T bound;
  TensorVisitor visitor(pointers);
  visit_tensors(problem, bound, visitor);
  return bound;
}

template <class P, class T>
Status OpDefinition<P, T>::check_pointers(const P& problem, T bound) const {
  TensorVisitor visitor = TensorVisitor::checking();
  visit_tensors(problem, bound, visitor);
  if (visitor.all_aligned()) return success();
  return failure(StatusCode::invalid_argument, "a tensor is null or not 16-byte aligned");
}

template <class P, class T>
Cost OpDefinition<P, T>::cost(const P& problem, DType dtype) const {
  double bytes = 0;
  for (const TensorSpec& spec : tensors(problem, dtype))
    bytes += (spec.role == Role::inout ? 2.0 : 1.0) * static_cast<double>(spec.bytes());  // read and written
  return cost_of(problem, dtype, bytes);
}

template <class P, class T>
void OpDefinition<P, T>::fill(const P& problem, DType dtype, std::size_t tensor, void* data) const {
  if (fill_tensor == nullptr) throw std::logic_error("op declares Fill::Kind::op without a fill function");
  fill_tensor(problem, dtype, tensor, data);
}

// Of an op's definition, or of whatever has its name, fields and dtypes, check, tensors, cost, tolerance and fill, as a
// whole network has. The definition must outlive the workload.
template <class Definition>
Workload make_workload(const Definition& definition) {
  using Problem = typename Definition::Problem;
  const Definition* const d = &definition;
  Workload workload;
  workload.name = d->name;
  const auto dtypes = d->dtypes();
  workload.dtypes.assign(dtypes.begin(), dtypes.end());
  workload.visit_fields = [d](FieldVisitor& visitor) {
    Problem blank{};
    d->fields(blank, visitor);
  };
  FieldCollector collector;
  workload.visit_fields(collector);
  workload.fields = collector.fields();
  workload.visit_fields(workload.table.symbols);
  workload.table.symbols.forget_values();
  workload.computes = collector.what();
  workload.parse_pairs = [d](std::vector<KeyValue> pairs) {
    Problem problem{};
    FieldReader reader(std::move(pairs));
    d->fields(problem, reader);
    reader.require_all_used();
    d->check(problem);
    return AnyProblem(std::move(problem));
  };
  const auto values = [d](const AnyProblem& p, bool defaults) {
    Problem problem = p.as<Problem>();
    FieldWriter writer(defaults);
    d->fields(problem, writer);
    return writer.values();
  };
  workload.print = [values](const AnyProblem& p) { return join_problem_text(values(p, false)); };
  workload.values = [values](const AnyProblem& p) { return values(p, true); };
  workload.tensors = [d](const AnyProblem& p, DType dtype) { return d->tensors(p.as<Problem>(), dtype); };
  workload.cost = [d](const AnyProblem& p, DType dtype) { return d->cost(p.as<Problem>(), dtype); };
  workload.tolerance = [d](const AnyProblem& p, DType dtype) { return d->tolerance(p.as<Problem>(), dtype); };
  workload.fill = [d](const AnyProblem& p, DType dtype, std::size_t tensor, void* data) {
    d->fill(p.as<Problem>(), dtype, tensor, data);
  };
  return workload;
}
// Of a type whose members are static.
template <class Definition>
Workload make_workload() {
  static const Definition definition{};
  return make_workload(definition);
}

template <class P, class T>
AnyVariant erase_variant(const OpDefinition<P, T>& definition, const Variant<P, T>& variant) {
  const auto* const d = &definition;
  const auto* const row = &variant;  // tables of variants have static storage
  AnyVariant erased;
  erased.name = row->name;
  erased.kind = row->kind;
  erased.arch = row->arch;
  if (row->limit) erased.limit = row->limit;
  erased.built = row->launch != nullptr;
  if (row->not_written != nullptr) erased.not_written = row->not_written;
  erased.not_applicable = row->not_applicable;
  erased.can_run = [row](const AnyProblem& p, DType dtype) { return row->can_run(p.as<P>(), dtype); };
  erased.workspace_bytes = [row](const AnyProblem& p, DType dtype, const DeviceInfo& device) {
    return row->workspace_bytes ? row->workspace_bytes(p.as<P>(), dtype, device) : std::size_t{0};
  };
  erased.prepared_bytes = [row](const AnyProblem& p, DType dtype) {
    return row->prepared_bytes ? row->prepared_bytes(p.as<P>(), dtype) : std::size_t{0};
  };
  erased.prepare = [d, row](const AnyProblem& p, DType dtype, std::span<void* const> pointers, void* prepared,
                            const LaunchContext& context) {
    if (row->prepare == nullptr) return success();
    return row->prepare(p.as<P>(), dtype, d->bind(p.as<P>(), pointers), prepared, context);
  };
  erased.launch = [d, row](const AnyProblem& p, DType dtype, std::span<void* const> pointers, const Scratch& scratch,
                           const LaunchContext& context) {
    if (row->launch == nullptr) return failure(StatusCode::not_built, row->not_written ? row->not_written : row->name);
    if (const Support support = row->can_run(p.as<P>(), dtype); !support)
      return failure(StatusCode::unsupported_problem, support.reason);
    if (!context.choice.empty() && row->choices == nullptr)
      return failure(StatusCode::invalid_argument, "the variant offers no choices");
    if (scratch.workspace == nullptr && row->workspace_bytes &&
        row->workspace_bytes(p.as<P>(), dtype, *context.device) > 0)
      return failure(StatusCode::invalid_argument, "the variant needs a workspace");
    return row->launch(p.as<P>(), dtype, d->bind(p.as<P>(), pointers), scratch, context);
  };
  if (row->choices != nullptr)
    erased.choices = [row](const AnyProblem& p, DType dtype, const DeviceInfo& device) {
      return row->choices(p.as<P>(), dtype, device);
    };
  return erased;
}

template <class P, class T>
Op make_op(const OpDefinition<P, T>& definition) {
  const auto* const d = &definition;
  Op op{make_workload(definition), {}, {}};
  P blank{};
  T unused;
  TensorVisitor declared(op.table);
  d->visit_tensors(blank, unused, declared);
  for (const Variant<P, T>& row : d->variants()) op.variants.push_back(erase_variant(definition, row));
  op.reference = [d](const AnyProblem& p, DType dtype, std::span<const HostTensor> inputs, std::size_t output,
                     std::span<const std::int64_t> elements, std::span<double> values) {
    const P& problem = p.as<P>();
    std::vector<void*> pointers;
    for (const HostTensor& input : inputs) pointers.push_back(const_cast<void*>(input.data));
    d->reference(problem, dtype, d->bind(problem, pointers), d->tensors(problem, dtype).at(output).name, elements,
                 values);
  };
  return op;
}

}  // namespace noisefloor
