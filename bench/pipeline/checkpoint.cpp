#include "bench/pipeline/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

namespace noisefloor::pipeline {
namespace {

bool floating(std::optional<DType> dtype) {
  return dtype && (*dtype == DType::fp32 || *dtype == DType::bf16 || *dtype == DType::fp16 || *dtype == DType::fp64);
}

bool let_pass(const NetworkInfo& network, std::string_view name) {
  return std::any_of(network.let_pass.begin(), network.let_pass.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

std::vector<double> values_of(const SafetensorsFile& file, const FileTensor& tensor) {
  const DType dtype = *dtype_of_safetensors(tensor.dtype);
  const std::vector<std::byte> bytes = file.read(tensor);
  std::vector<double> values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = load_element(dtype, bytes.data(), static_cast<std::int64_t>(i));
  return values;
}

// The largest absolute value; NaN or infinite where one of them is.
double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) return value;
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// As a weight of that dtype will hold it. Rounding keeps the order, so that the largest number speaks for all.
double rounded(double value, DType dtype) {
  alignas(std::max_align_t) char storage[sizeof(double)];
  store_element(dtype, storage, 0, value);
  return load_element(dtype, storage, 0);
}

// Where element `index` of a weight in the graph's layout stands in the checkpoint's.
std::int64_t source_index(const WeightSource& source, std::int64_t index, std::int64_t row_length) {
  const std::int64_t rows_in_file = source.file[0];
  std::int64_t row = index / row_length + source.first_row;
  const std::int64_t column = index % row_length;
  switch (source.layout) {
    case WeightSource::Layout::plain:
      break;
    case WeightSource::Layout::ohwi: {
      const std::int64_t cin = source.file[1], taps = source.file[2] * source.file[3];
      return row * row_length + column % cin * taps + column / cin;
    }
    case WeightSource::Layout::transposed:  // row_length is the k of our [n, k], file[0] that of [k, n]
      return column * source.file[1] + row;
    case WeightSource::Layout::hd3_to_3hd: {
      const std::int64_t channels = rows_in_file / 3;
      row = row % channels * 3 + row / channels;
      break;
    }
  }
  return row * row_length + column;
}

}  // namespace

void Checkpoint::check(const Network& network) const {
  std::vector<std::string> complaints;
  std::set<std::string_view> known;
  for (const Value& value : network.graph.values()) {
    if (!value.source || !known.insert(value.source->name).second) continue;
    const WeightSource& source = *value.source;
    const FileTensor* tensor = file_.find(source.name);
    if (tensor == nullptr) {
      complaints.push_back(fmt::format("{} [{}] is missing", source.name, fmt::join(source.file, ", ")));
    } else if (tensor->shape != source.file) {
      complaints.push_back(fmt::format("{} is [{}], not [{}]", source.name, fmt::join(tensor->shape, ", "),
                                       fmt::join(source.file, ", ")));
    } else if (!floating(dtype_of_safetensors(tensor->dtype))) {
      complaints.push_back(fmt::format("{} is {}, not F32, F16, BF16 or F64", source.name, tensor->dtype));
    } else {
      const double largest = largest_of(values_of(file_, *tensor));
      if (!std::isfinite(largest))
        complaints.push_back(fmt::format("{} has numbers that are not finite", source.name));
      else if (!std::isfinite(rounded(largest, value.dtype)))
        complaints.push_back(
            fmt::format("{} has numbers that {} cannot hold: up to {}", source.name, to_string(value.dtype), largest));
    }
  }
  for (const FileTensor& tensor : file_.tensors())
    if (!known.contains(tensor.name) && !let_pass(*network.info, tensor.name))
      complaints.push_back(fmt::format("{} is not a tensor of {}", tensor.name, network.name()));
  if (!complaints.empty())
    throw InvalidInput(fmt::format("{} is not a checkpoint of {}; {} of its tensors are wrong:\n  {}", path_.string(),
                                   network.name(), complaints.size(), fmt::join(complaints, "\n  ")));
}

std::vector<char> Checkpoint::load(const Value& weight) const {
  const WeightSource& source = *weight.source;
  const std::vector<double> values = values_of(file_, *file_.find(source.name));
  const std::int64_t count = weight.elements();
  const std::int64_t rows = source.rows == 0 ? source.file[0] : source.rows;
  const bool transposed = source.layout == WeightSource::Layout::transposed;
  const std::int64_t row_length = transposed ? source.file[0] : count / rows;
  std::vector<char> bytes(weight.bytes());
  for (std::int64_t i = 0; i < count; ++i)
    store_element(weight.dtype, bytes.data(), i, values[static_cast<std::size_t>(source_index(source, i, row_length))]);
  return bytes;
}

void Checkpoint::fill(Platform& platform, const Value& weight, void* data) const {
  const std::vector<char> bytes = load(weight);
  platform.upload(data, bytes.data(), bytes.size());
}

}  // namespace noisefloor::pipeline
