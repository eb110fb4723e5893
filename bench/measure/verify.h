// Verification, which every timing needs first: poisoned outputs, guard bands, and comparison with the op's oracle.
//
// Small problems are compared with the host oracle in every element. Where the oracle is too slow for that, it computes
// a sampled set of elements, and on a GPU every element is compared with the naive variant, itself held to the same
// samples. A network is compared with itself in fp32 by the naive variants.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/bound_case.h"

namespace noisefloor {

struct Verdict {
  bool correct = false;
  std::string reason;        // what is wrong: tensor, element, values
  std::string note;          // where correct, but not every element was compared: how many were
  double max_rel_error = 0;  // the largest of the outputs, as Tolerance defines it
  double tolerance = 0;
  double l2_error = 0;  // relative, the largest of the outputs; over the elements that the oracle computed
  double l2_tolerance = 0;
};

class Verifier {
 public:
  // `oracle_flops` bounds the work of the host oracle per problem.
  explicit Verifier(Fixture& fixture, double oracle_flops = kOracleFlops);

  // Launches once on poisoned outputs and judges. Device failures throw.
  Verdict verify(BoundCase& bound);
  // Judges what earlier launches left in the outputs, guard bands and inputs, without launching.
  Verdict judge(BoundCase& bound);

  // About two seconds of one core's scalar double arithmetic with dtype conversion.
  static constexpr double kOracleFlops = 4e8;

 private:
  struct Oracle {
    std::size_t tensor;
    bool complete;  // elements are all of the tensor's
    std::vector<std::int64_t> elements;
    std::vector<double> values;
    double rms;
  };
  void consult_oracle();
  void consult_network();
  std::optional<std::string> compare_with_oracle(Verdict& verdict);
  std::optional<std::string> find_not_finite();
  std::optional<std::string> compare_with_naive();
  bool make_naive_outputs();

  Fixture* fixture_;
  double oracle_flops_;
  Tolerance tolerance_;
  std::vector<Oracle> oracles_;
  bool naive_tried_ = false;
  std::map<std::size_t, Buffer> naive_outputs_;  // by tensor
};

}  // namespace noisefloor
