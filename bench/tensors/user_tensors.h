// A user's own tensors as the inputs of an op: which problem they are, and whether they can be it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/measure/fixture.h"
#include "bench/tensors/safetensors.h"
#include "kernels/core/op.h"

namespace noisefloor {

struct UserTensors {
  AnyProblem problem;
  DType dtype = DType::bf16;
  GivenTensors given;  // in `bytes`
  std::vector<std::vector<std::byte>> bytes;
};

// Finds problem and dtype of the file's tensors, which must be the op's inputs, all of them and no others; those named
// in `random` are left to the harness. `fields` and `dtype` are what the user said of them. Throws InvalidInput naming
// the file, the tensors and what is wrong: another shape or dtype, missing, too many, a value that is not finite,
// metadata that say channels-first where ops are channels-last.
UserTensors bind_user_tensors(const Workload& op, const SafetensorsFile& file, const std::string& file_name,
                              const std::vector<KeyValue>& fields, std::optional<DType> dtype,
                              const std::vector<std::string>& random);

// The outputs of a fixture as they are now.
struct OutputTensors {
  std::vector<FileTensor> tensors;  // in `bytes`, which do not move when their vector does
  std::vector<std::vector<std::byte>> bytes;
};
OutputTensors download_outputs(Fixture& fixture);

}  // namespace noisefloor
