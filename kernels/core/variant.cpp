#include "kernels/core/variant.h"

namespace noisefloor {

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::host:
      return "host";
    case Kind::naive:
      return "naive";
    case Kind::tiled:
      return "tiled";
    case Kind::tensor_core:
      return "tensor_core";
    case Kind::ptx:
      return "ptx";
    case Kind::baseline:
      return "baseline";
  }
  return "?";
}

}  // namespace noisefloor
