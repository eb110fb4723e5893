// Which problem of an op a set of tensors belongs to: extents of its inputs are unified with the op's formulas for
// them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor {

// Shapes by name. An empty optional: a tensor that is there, of whatever shape the problem gives it; so an extent.
inline constexpr std::int64_t kAnyExtent = -1;
using KnownShapes = std::map<std::string, std::optional<std::vector<std::int64_t>>>;

// Values that fit.
struct Fit {
  Symbols symbols;                    // those that shapes say, or that were given
  std::vector<std::string> values;    // of all fields, as text; kOpen, kAnother
  std::optional<AnyProblem> problem;  // none where a field is open
  std::size_t departures = 0;         // fields that were not given and have another value than their default
};
inline constexpr const char* kOpen = "";            // has no default, and no shape says it
inline constexpr const char* kAnother = "another";  // a real that differs from its default, by what no shape says

class Unification {
 public:
  // Throws InvalidInput where no problem has such fields.
  Unification(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes);

  // Those that depart from the defaults in the fewest fields, for each set of choices that have no default.
  std::vector<Fit> fits();
  // Why the first values that fit all shapes, those with the most defaults, are no problem; "" where they are one.
  const std::string& reason() const { return reason_; }

 private:
  void search(Symbols symbols);
  bool narrow(Symbols& symbols, bool& changed) const;
  bool unify(Symbols& symbols, std::string_view formula, std::int64_t extent, bool& changed) const;
  std::optional<std::size_t> next_field(const Symbols& symbols) const;
  std::vector<std::int64_t> candidates(const Symbols& symbols, std::size_t field) const;
  void finish(const Symbols& symbols, const std::vector<std::int64_t>& choices, std::size_t departures);
  bool has_inputs(const AnyProblem& problem) const;
  bool required(std::size_t field) const { return op_.fields[field].chosen() && !op_.fields[field].fallback; }

  const Workload& op_;
  const std::vector<KeyValue> given_;
  const KnownShapes& shapes_;
  Symbols start_;
  std::vector<std::string> texts_;                              // of fields that are given
  std::map<std::vector<std::int64_t>, std::vector<Fit>> fits_;  // by the choices that have no default
  std::string reason_;
  bool met_problem_ = false;
  int visited_ = 0;
};

// What messages tell a front end's user to do; those of the command line where nothing else is said.
struct Wording {
  const char* give = "give --problem its";  // and the fields that follow
  const char* given = "with the fields of --problem";
  const char* give_dtype = "give --dtype";
  bool random = true;  // --random makes a tensor that is missing
};

// The problem whose inputs are exactly those of `shapes`. `given` holds the fields that the user gave, which are kept.
// Of the problems that fit, the one that departs from the defaults in the fewest fields. Throws InvalidInput
//   - when none fits: with what would, were one tensor or one given field another;
//   - when several do, or a field that has no default could have another value, or one that has a default must differ
//     from it by an amount that no shape says: then the fields must be given, and the message names them.
AnyProblem infer_problem(const Workload& op, const std::vector<KeyValue>& given, const KnownShapes& shapes,
                         const Wording& wording = {});

// The dtype in which the problem's tensors have the element types `types`, by name, as `name` prints them. Throws
// InvalidInput when none fits, with each tensor's type and the one that would; and when several do and `dtype` is none.
using KnownTypes = std::map<std::string, std::string>;
DType infer_dtype(const Workload& op, const AnyProblem& problem, std::optional<DType> dtype, const KnownTypes& types,
                  std::string_view (*name)(DType), const Wording& wording = {});

}  // namespace noisefloor
