#include "bench/ceilings/ceilings.h"

#include <stdexcept>

namespace noisefloor {
namespace {

const Ceiling& require(const Ceilings& ceilings, std::string_view name) {
  if (const Ceiling* ceiling = ceilings.find(name)) return *ceiling;
  throw std::out_of_range("the ceiling '" + std::string(name) + "' was not measured on '" + ceilings.device + "'");
}

const char* tensor_ceiling(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "tensor_bf16";
    case DType::fp16:
      return "tensor_fp16";
    case DType::fp32:
      return "tensor_tf32";
    default:
      return "";
  }
}

}  // namespace

const Ceiling& Ceilings::memory() const {
  return require(*this, "dram_copy");
}

const Ceiling& Ceilings::reads() const {
  return require(*this, "dram_read");
}

const Ceiling& Ceilings::compute(Pipe pipe, DType dtype) const {
  if (pipe == Pipe::tensor)
    if (const Ceiling* ceiling = find(tensor_ceiling(dtype))) return *ceiling;
  return require(*this, "fma_fp32");
}

}  // namespace noisefloor
