// Numbers of a user's tensors, as the commands that run networks take them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/tensors/safetensors.h"

namespace noisefloor {

// Throws InvalidInput with file and tensor: a dtype that is no number's, another shape, numbers that are not finite or
// that fp32 cannot hold.
std::vector<double> numbers_of(const SafetensorsFile& file, const FileTensor& tensor, const std::string& path,
                               const std::vector<std::int64_t>& shape);

}  // namespace noisefloor
