// One way to compute an op: a variant of ours, or a vendor's baseline; both behind one interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baselines/baseline.h"
#include "kernels/core/op.h"

namespace noisefloor {

struct Candidate {
  const Op* op = nullptr;
  std::string name;
  Kind kind = Kind::baseline;
  Arch arch = Arch::any_gpu;
  const AnyVariant* variant = nullptr;  // one of the two
  const Baseline* baseline = nullptr;

  bool built() const { return baseline != nullptr || variant->built; }
  Support can_run(const AnyProblem& problem, DType dtype) const {
    return baseline != nullptr ? baseline->can_run(problem, dtype) : variant->can_run(problem, dtype);
  }
};

// An op's variants in the order of its ladder, then its baselines.
std::vector<Candidate> candidates_of(const Op& op);

// A case of the sweep. `text` is the problem's canonical text.
struct Case {
  Candidate candidate;
  AnyProblem problem;
  DType dtype = DType::bf16;
  std::string text;
  std::string networks;  // "adm64-b1:10;sd15-b2:2"

  const Op& op() const { return *candidate.op; }
  std::string name() const { return op().name + "/" + text + "/" + to_string(dtype) + "/" + candidate.name; }
};

}  // namespace noisefloor
