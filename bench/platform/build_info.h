// What this program was built from and for.
#pragma once

#include <string>

namespace noisefloor {

struct BuildInfo {
  std::string version;  // the project's
  std::string commit;   // "-dirty" behind it when the tree had changes; "unknown" outside a checkout
  std::string build_type;
  std::string compiler;
  std::string host_arch;           // "x86-64-v3"
  std::string cuda_toolkit;        // empty in a build without CUDA
  std::string cuda_architectures;  // "90a"; "no CUDA" without
};
const BuildInfo& build_info();

}  // namespace noisefloor
