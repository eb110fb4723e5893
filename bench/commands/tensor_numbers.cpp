#include "bench/commands/tensor_numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

namespace noisefloor {

std::vector<double> numbers_of(const SafetensorsFile& file, const FileTensor& tensor, const std::string& path,
                               const std::vector<std::int64_t>& shape) {
  const auto dtype = dtype_of_safetensors(tensor.dtype);
  if (!dtype)
    throw InvalidInput(fmt::format("{}: tensor {} is {}; it can be F32, F16, BF16, F64, I32, I64 or U8", path,
                                   tensor.name, tensor.dtype));
  if (tensor.shape != shape)
    throw InvalidInput(fmt::format("{}: tensor {} is [{}], not [{}]", path, tensor.name, fmt::join(tensor.shape, ", "),
                                   fmt::join(shape, ", ")));
  const std::vector<std::byte> bytes = file.read(tensor);
  std::vector<double> numbers(bytes.size() / size_of(*dtype));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = load_element(*dtype, bytes.data(), static_cast<std::int64_t>(i));
    if (!std::isfinite(numbers[i]))
      throw InvalidInput(fmt::format("{}: tensor {} has numbers that are not finite", path, tensor.name));
    if (std::fabs(numbers[i]) > std::numeric_limits<float>::max())
      throw InvalidInput(
          fmt::format("{}: tensor {} has numbers that fp32 cannot hold: {}", path, tensor.name, numbers[i]));
  }
  return numbers;
}

}  // namespace noisefloor
