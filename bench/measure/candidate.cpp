#include "bench/measure/candidate.h"

#include <fmt/format.h>

#include "bench/pipeline/network_op.h"
#include "bench/platform/build_info.h"

namespace noisefloor {

std::string Candidate::why_not_built() const {
  if (built()) return "";
  if (variant->not_written) return "not written yet: " + *variant->not_written;
  return fmt::format("needs {}; this build has {}", to_string(arch), build_info().cuda_architectures);
}

std::vector<Candidate> candidates_of(const Op& op) {
  std::vector<Candidate> candidates;
  for (const AnyVariant& variant : op.variants)
    candidates.push_back({&op, variant.name, variant.kind, variant.arch, &variant});
  for (const Baseline& baseline : baselines())
    if (op.name == baseline.op)
      candidates.push_back({&op, baseline.name, Kind::baseline, Arch::any_gpu, nullptr, &baseline});
  if (&op == &pipeline::network_op())
    for (const Assembly& assembly : pipeline::network_assemblies())
      candidates.push_back({&op, assembly.name, Kind::baseline, Arch::any_gpu, nullptr, nullptr, &assembly});
  return candidates;
}

}  // namespace noisefloor
