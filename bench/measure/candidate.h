// One way to compute an op: a variant of ours, a vendor's baseline, or a whole network under a plan; all behind one
// interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baselines/baseline.h"
#include "bench/measure/known_times.h"
#include "bench/platform/platform.h"
#include "kernels/core/op.h"

namespace noisefloor {

// A way that is put together on a platform from candidates of other ops, and chooses them by their times.
class AssembledRun : public BaselineRun {
 public:
  // Memory of its own, beside the tensors and the workspace, that launches touch.
  virtual std::vector<std::pair<void*, std::size_t>> resident() const = 0;
};
struct Assembly {
  const char* name;
  const char* kind;  // of its rows: "network", or "baseline"
  bool on_host;      // also; on a GPU always
  std::unique_ptr<AssembledRun> (*create)(const char* name, Platform&, const AnyProblem&, DType, KnownTimes&);
};

struct Candidate {
  const Op* op = nullptr;
  std::string name;
  Kind kind = Kind::baseline;  // of an assembly too: it is none of our rungs
  Arch arch = Arch::any_gpu;
  const AnyVariant* variant = nullptr;  // one of the three
  const Baseline* baseline = nullptr;
  const Assembly* assembly = nullptr;

  std::string kind_text() const { return assembly != nullptr ? assembly->kind : to_string(kind); }
  bool built() const { return variant == nullptr || variant->built; }
  std::string why_not_built() const;  // for a row's reason; empty where it is
  bool on_host() const { return kind == Kind::host || (assembly != nullptr && assembly->on_host); }
  bool on_gpu() const { return kind != Kind::host; }
  Support can_run(const AnyProblem& problem, DType dtype) const {
    if (assembly != nullptr) return supported();
    return baseline != nullptr ? baseline->can_run(problem, dtype) : variant->can_run(problem, dtype);
  }
};

// An op's variants in the order of its ladder, then its baselines; of networks, their plans.
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
