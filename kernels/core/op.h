// The contract of an op, and its type-erased form, generated here once from the typed one.
//
// An op is a struct of static members (`Definition` below): its Problem, its Tensors, what it costs, how exact it must
// be, its oracle and its ladder. `make_op<Definition>()` turns it into an `Op`, which benches, tests and reports loop
// over.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"
#include "kernels/core/variant.h"

namespace noisefloor {

// The unit that bounds an op's arithmetic, for the roofline.
enum class Pipe { fma, tensor };

// FLOPs (a multiply-add is two) and compulsory bytes (each input read once, each output written once).
struct Cost {
  double flops = 0;
  double bytes = 0;
  Pipe pipe = Pipe::fma;
};

// An output element may differ from the reference by at most max_error * (|reference| + rms(reference)), and the whole
// output by a relative L2 norm of at most l2_error.
struct Tolerance {
  double max_error = 0;
  double l2_error = 0;
};

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
  std::function<Support(const AnyProblem&, DType)> can_run;
  std::function<std::size_t(const AnyProblem&, DType, const DeviceInfo&)> workspace_bytes;
  std::function<std::size_t(const AnyProblem&, DType)> prepared_bytes;
  // Pointers in the order of Op::tensors.
  std::function<Status(const AnyProblem&, DType, std::span<void* const>, void* prepared, const LaunchContext&)> prepare;
  std::function<Status(const AnyProblem&, DType, std::span<void* const>, const Scratch&, const LaunchContext&)> launch;
};

// What can be computed, verified and timed: problems as text, their tensors, what they cost and how exact they must be.
struct Workload {
  std::string name;
  std::vector<DType> dtypes;
  std::vector<std::string> fields;  // FieldDescriber's lines

  std::function<AnyProblem(std::vector<KeyValue>)> parse_pairs;  // throws InvalidInput
  std::function<std::string(const AnyProblem&)> print;
  std::function<std::vector<TensorSpec>(const AnyProblem&, DType)> tensors;
  std::function<Cost(const AnyProblem&, DType)> cost;
  std::function<Tolerance(const AnyProblem&, DType)> tolerance;
  // Fills tensors whose Fill::Kind is `op`, in host memory.
  std::function<void(const AnyProblem&, DType, std::size_t tensor, void* data)> fill;

  AnyProblem parse(std::string_view text) const { return parse_pairs(split_problem_text(text)); }
};

// A workload with an oracle and a ladder of variants.
struct Op : Workload {
  std::vector<AnyVariant> variants;  // best last
  // Values of some elements of output `output` (an index into tensors()) in double. `inputs` has one entry per tensor,
  // null data for outputs. Elements should come in ascending order: ops cache what neighbours share.
  std::function<void(const AnyProblem&, DType, std::span<const HostTensor> inputs, std::size_t output,
                     std::span<const std::int64_t> elements, std::span<double> values)>
      reference;
};

// Builds the type-erased op. `Definition` provides:
//   static constexpr const char* name;  struct Problem;  struct Tensors;
//   static std::span<const DType> dtypes();
//   static void fields(Problem&, FieldVisitor&);
//   static void check(const Problem&);                                        throws InvalidInput on fields that clash
//   static std::vector<TensorSpec> tensors(const Problem&, DType);
//   static Tensors bind(const Problem&, PointerCursor);
//   static Cost cost(const Problem&, DType);
//   static Tolerance tolerance(const Problem&, DType);
//   static void reference(const Problem&, DType, std::span<const HostTensor>, std::size_t output,
//                         std::span<const std::int64_t> elements, std::span<double> values);
//   static std::span<const Variant<Definition>> variants();
//   static void fill(const Problem&, DType, std::size_t tensor, void* data);  optional
template <class Definition>
Op make_op();

template <class Definition>
AnyVariant erase_variant(const Variant<Definition>& variant) {
  using Problem = typename Definition::Problem;
  AnyVariant erased{variant.name, variant.kind, variant.arch, variant.launch != nullptr, {}, {}, {}, {}, {}};
  const Variant<Definition>* row = &variant;  // variant tables have static storage
  erased.can_run = [row](const AnyProblem& p, DType dtype) { return row->can_run(p.as<Problem>(), dtype); };
  erased.workspace_bytes = [row](const AnyProblem& p, DType dtype, const DeviceInfo& device) {
    return row->workspace_bytes ? row->workspace_bytes(p.as<Problem>(), dtype, device) : std::size_t{0};
  };
  erased.prepared_bytes = [row](const AnyProblem& p, DType dtype) {
    return row->prepared_bytes ? row->prepared_bytes(p.as<Problem>(), dtype) : std::size_t{0};
  };
  erased.prepare = [row](const AnyProblem& p, DType dtype, std::span<void* const> pointers, void* prepared,
                         const LaunchContext& context) {
    if (row->prepare == nullptr) return success();
    const auto& problem = p.as<Problem>();
    return row->prepare(problem, dtype, Definition::bind(problem, PointerCursor(pointers)), prepared, context);
  };
  erased.launch = [row](const AnyProblem& p, DType dtype, std::span<void* const> pointers, const Scratch& scratch,
                        const LaunchContext& context) {
    if (row->launch == nullptr) return failure(StatusCode::not_built, row->name);
    const auto& problem = p.as<Problem>();
    if (const Support support = row->can_run(problem, dtype); !support)
      return failure(StatusCode::unsupported_problem, support.reason);
    return row->launch(problem, dtype, Definition::bind(problem, PointerCursor(pointers)), scratch, context);
  };
  return erased;
}

// The part of an op that a whole network has too: `Definition` needs no Tensors, bind, reference and variants.
template <class Definition>
Workload make_workload() {
  using Problem = typename Definition::Problem;
  Workload workload;
  workload.name = Definition::name;
  const auto dtypes = Definition::dtypes();
  workload.dtypes.assign(dtypes.begin(), dtypes.end());
  Problem blank{};
  FieldDescriber describer;
  Definition::fields(blank, describer);
  workload.fields = describer.lines();
  workload.parse_pairs = [](std::vector<KeyValue> pairs) {
    Problem problem{};
    FieldReader reader(std::move(pairs));
    Definition::fields(problem, reader);
    reader.require_all_used();
    Definition::check(problem);
    return AnyProblem(std::move(problem));
  };
  workload.print = [](const AnyProblem& p) {
    Problem problem = p.as<Problem>();
    FieldWriter writer;
    Definition::fields(problem, writer);
    return writer.text();
  };
  workload.tensors = [](const AnyProblem& p, DType dtype) { return Definition::tensors(p.as<Problem>(), dtype); };
  workload.cost = [](const AnyProblem& p, DType dtype) { return Definition::cost(p.as<Problem>(), dtype); };
  workload.tolerance = [](const AnyProblem& p, DType dtype) { return Definition::tolerance(p.as<Problem>(), dtype); };
  workload.fill = [](const AnyProblem& p, DType dtype, std::size_t tensor, void* data) {
    if constexpr (requires { Definition::fill(p.as<Problem>(), dtype, tensor, data); })
      Definition::fill(p.as<Problem>(), dtype, tensor, data);
    else
      throw std::logic_error("op declares Fill::Kind::op without a fill function");
  };
  return workload;
}

template <class Definition>
Op make_op() {
  using Problem = typename Definition::Problem;
  Op op{make_workload<Definition>(), {}, {}};
  for (const auto& variant : Definition::variants()) op.variants.push_back(erase_variant<Definition>(variant));
  op.reference = [](const AnyProblem& p, DType dtype, std::span<const HostTensor> inputs, std::size_t output,
                    std::span<const std::int64_t> elements, std::span<double> values) {
    Definition::reference(p.as<Problem>(), dtype, inputs, output, elements, values);
  };
  return op;
}

}  // namespace noisefloor
