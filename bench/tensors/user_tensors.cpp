#include "bench/tensors/user_tensors.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "bench/tensors/problem_inference.h"

namespace noisefloor {
namespace {

std::vector<TensorSpec> input_specs(const Workload& op, const AnyProblem& problem, DType dtype) {
  std::vector<TensorSpec> specs = op.tensors(problem, dtype);
  std::erase_if(specs, [](const TensorSpec& spec) { return spec.role == Role::out; });
  return specs;
}

// The oracle says nothing about what becomes of NaN and infinity.
void require_finite(const std::string& name, std::span<const std::byte> data, DType dtype) {
  if (dtype != DType::fp32 && dtype != DType::bf16 && dtype != DType::fp16) return;
  constexpr std::size_t kChunk = 4096;
  std::array<float, kChunk> values;
  const std::size_t total = data.size() / size_of(dtype);
  for (std::size_t begin = 0; begin < total; begin += kChunk) {
    const std::size_t count = std::min(kChunk, total - begin);
    load_floats(dtype, data.data(), static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count), values.data());
    for (std::size_t i = 0; i < count; ++i)
      if (!std::isfinite(values[i]))
        throw InvalidInput(
            fmt::format("tensor '{}': element {} is {}; every input must be finite", name, begin + i, values[i]));
  }
}

UserTensors bind(const Workload& op, const SafetensorsFile& file, const std::vector<KeyValue>& fields,
                 std::optional<DType> dtype, const std::vector<std::string>& random) {
  KnownShapes shapes;
  for (const FileTensor& tensor : file.tensors()) shapes[tensor.name] = tensor.shape;
  for (const std::string& name : random)
    if (!shapes.emplace(name, std::nullopt).second)
      throw InvalidInput(fmt::format("tensor '{}' is in the file, and in --random too", name));
  UserTensors user;
  user.problem = infer_problem(op, fields, shapes);
  KnownTypes types;
  for (const FileTensor& tensor : file.tensors()) types[tensor.name] = tensor.dtype;
  user.dtype = infer_dtype(op, user.problem, dtype, types, safetensors_name);
  for (const TensorSpec& spec : input_specs(op, user.problem, user.dtype)) {
    const FileTensor* tensor = file.find(spec.name);
    if (tensor == nullptr) continue;
    const std::vector<std::byte>& bytes = user.bytes.emplace_back(file.read(*tensor));
    require_finite(tensor->name, bytes, spec.dtype);
    user.given[spec.name] = bytes;  // which do not move with their vector
  }
  return user;
}

}  // namespace

UserTensors bind_user_tensors(const Workload& op, const SafetensorsFile& file, const std::string& file_name,
                              const std::vector<KeyValue>& fields, std::optional<DType> dtype,
                              const std::vector<std::string>& random) {
  file.require_layout(kChannelsLast);
  try {
    return bind(op, file, fields, dtype, random);
  } catch (const SafetensorsError&) {
    throw;  // names the file
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}: {}", file_name, error.what()));
  }
}

OutputTensors download_outputs(Fixture& fixture) {
  OutputTensors outputs;
  for (std::size_t i = 0; i < fixture.specs().size(); ++i) {
    const TensorSpec& spec = fixture.specs()[i];
    if (spec.role == Role::in) continue;
    std::vector<std::byte>& data = outputs.bytes.emplace_back(spec.bytes());
    fixture.platform().download(data.data(), fixture.pointers()[i], data.size());
    outputs.tensors.push_back({spec.name, safetensors_name(spec.dtype), spec.shape, data});
  }
  return outputs;
}

}  // namespace noisefloor
