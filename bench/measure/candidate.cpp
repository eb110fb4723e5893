#include "bench/measure/candidate.h"

namespace noisefloor {

std::vector<Candidate> candidates_of(const Op& op) {
  std::vector<Candidate> candidates;
  for (const AnyVariant& variant : op.variants)
    candidates.push_back({&op, variant.name, variant.kind, variant.arch, &variant, nullptr});
  for (const Baseline& baseline : baselines())
    if (op.name == baseline.op)
      candidates.push_back({&op, baseline.name, Kind::baseline, Arch::any_gpu, nullptr, &baseline});
  return candidates;
}

}  // namespace noisefloor
