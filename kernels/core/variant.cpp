#include "kernels/core/variant.h"

namespace noisefloor {

const char* to_string(Kind kind) {
  constexpr const char* kNames[] = {"host", "naive", "tiled", "tensor_core", "ptx", "baseline"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace noisefloor
