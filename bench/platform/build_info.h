// What this program was built from and for.
#pragma once

#include <string>
#include <string_view>

namespace noisefloor {

struct BuildInfo {
  std::string version;  // the project's
  // What the code is called, never the same for two trees: "876b7250b73f", with "-dirty.<digest>" behind it when what
  // is built had changes; "src-<digest>" outside a checkout of ours. Runs of older programs have "unknown" there.
  std::string commit;
  std::string build_type;
  std::string compiler;
  std::string host_arch;           // "x86-64-v3"
  std::string cuda_toolkit;        // empty in a build without CUDA
  std::string cuda_architectures;  // "90a"; "no CUDA" without
  std::string digests;             // of sources, "attention=0123456789ab,...,baselines=...,"

  std::string digest_of(std::string_view room) const;  // empty for one that is not among them
};
const BuildInfo& build_info();

// Whether code for `architectures` ("80,90a") runs on a GPU of that compute capability (90). It is machine code without
// PTX: it serves its own major version from its minor on, and with an `a` that one GPU alone.
bool serves_gpu(std::string_view architectures, int compute_capability);
// Why such a program does not run on a GPU, and what to do; empty where it does.
std::string why_unserved(const std::string& gpu, int compute_capability, std::string_view architectures);

}  // namespace noisefloor
