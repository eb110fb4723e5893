// How near a problem's inputs are to a set of tensors, and the integers that bring them nearest: values of the op's
// fields are tried, with nothing known of the op but its fields and tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/core/op.h"

namespace noisefloor {

// Shapes by name. An empty optional: a tensor that is there, of whatever shape the problem gives it.
using KnownShapes = std::map<std::string, std::optional<std::vector<std::int64_t>>>;

// Field -> text; those that are not there have their default.
using FieldValues = std::map<std::string, std::string>;

// What messages tell a front end's user to do; those of the command line where nothing else is said.
struct Wording {
  const char* give = "give --problem its";  // and the fields that follow
  const char* give_more = "give --problem more of its fields";
  const char* given = "with the fields of --problem";
  const char* give_dtype = "give --dtype";
  bool random = true;  // --random makes a tensor that is missing
};

class ShapeFit {
 public:
  // Of values that make no problem.
  static constexpr int kNoProblem = 1'000'000;

  // The integers of `given` stay as they are. Throws InvalidInput where no op has so many tensors or dimensions.
  ShapeFit(const Workload& op, const KnownShapes& shapes, const FieldValues& given, const Wording& wording = {});

  // None where the values make no problem. Throws InvalidInput when it has been asked too often: a search has an end,
  // whatever the tensors are.
  std::optional<std::vector<TensorSpec>> inputs(const FieldValues& values);
  // 0 where the problem's inputs are the tensors. An extent that differs counts one; a tensor too few or too many, or
  // of another rank, more than all its extents.
  int distance(const FieldValues& values);
  // Whether the inputs have the tensors' names and ranks.
  bool same_names(const FieldValues& values);

  // Gives every integer without a default a value, and one with a default where the tensors demand another; returns the
  // distance that is left.
  int solve(FieldValues& values);
  // Moves integers, from the values as they are, to where most extents are right.
  int descend(FieldValues& values, const std::vector<const FieldInfo*>& fields);
  // Whether an extent of a fit follows this integer and no other, so that no other value fits.
  bool pinned(const FieldInfo& field, const FieldValues& fit);
  // Takes away what is not needed of a fit.
  void simplify(FieldValues& fit);

  const std::vector<const FieldInfo*>& integers() const { return integers_; }  // those that are not given
  // Values to begin with, as they need not make a problem: of all tensors' extents, and a few more.
  std::set<std::int64_t> starts() const;
  const std::set<std::int64_t>& extents() const { return extents_; }  // of all tensors
  const Wording& wording() const { return wording_; }
  void set_open(FieldValues& values, std::int64_t start) const;  // the integers without a default

  // The nearest so far, and why values made no problem where none did.
  const FieldValues& nearest() const { return nearest_; }
  const std::string& why_no_problem() const { return why_no_problem_; }

 private:
  std::set<std::int64_t> candidates(const FieldInfo& field, const FieldValues& values);
  int move(FieldValues& trial, const FieldInfo& field, const std::vector<const FieldInfo*>& fields);
  using ExtentId = std::pair<std::string, std::size_t>;  // a tensor's name, and the dimension
  struct Followers {
    std::set<ExtentId> sometimes, always;  // change with some, with every other value that was tried
  };
  const Followers& followers(const FieldInfo& field, const FieldValues& fit);
  bool move_two(FieldValues& values, int& best, const std::vector<const FieldInfo*>& fields);

  // By the values' text: a search comes by the same ones again and again, and those that make no problem cost an
  // exception.
  std::unordered_map<std::string, std::optional<std::vector<TensorSpec>>> known_inputs_;
  const std::string* alone_ = nullptr;  // the tensor whose extents alone count; null: all do
  const Workload& op_;
  const KnownShapes& shapes_;
  const FieldValues given_;
  const Wording wording_;
  std::vector<const FieldInfo*> integers_;
  std::set<std::int64_t> extents_;
  std::int64_t asked_ = 0;
  FieldValues followed_;  // what `followers_` are of
  std::map<const FieldInfo*, Followers> followers_;
  int nearest_distance_ = kNoProblem;
  FieldValues nearest_;
  std::string why_no_problem_;
};

}  // namespace noisefloor
