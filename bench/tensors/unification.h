// The fields of a problem from the shapes of its inputs: extents are unified with the op's formulas for them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
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

}  // namespace noisefloor
