#include "bench/pipeline/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>

#include "bench/platform/refusal.h"
#include "kernels/core/parallel.h"

namespace noisefloor::pipeline {
namespace {

bool floating(std::optional<DType> dtype) {
  return dtype && (*dtype == DType::fp32 || *dtype == DType::bf16 || *dtype == DType::fp16 || *dtype == DType::fp64);
}

constexpr std::int64_t kGrain = 1 << 16;  // elements: some 100 us of a core

// Numbers of a checkpoint's tensor as fp32, which holds what its dtypes hold; an fp64 number is rounded, as it would be
// on its way into any weight.
class Numbers {
 public:
  // Into `memory`, which grows where it must, and is kept for the tensor behind: fresh pages cost more than the
  // reading.
  Numbers(const StoredTensor& stored, std::vector<std::byte>& memory)
      : dtype_(*dtype_of_safetensors(stored.tensor->dtype)) {
    const std::size_t size = stored.tensor->data.size();
    if (memory.size() < size) memory.resize(size);
    stored.file->read(*stored.tensor, std::span(memory).first(size));
    bytes_ = std::span(memory).first(size);
  }

  double operator[](std::int64_t index) const { return load_element(dtype_, bytes_.data(), index); }
  void take(std::int64_t begin, std::span<float> out) const {
    if (dtype_ != DType::fp64) return load_floats(dtype_, bytes_.data(), begin, std::ssize(out), out.data());
    for (std::int64_t i = 0; i < std::ssize(out); ++i)
      out[static_cast<std::size_t>(i)] = static_cast<float>((*this)[begin + i]);
  }

 private:
  DType dtype_;
  std::span<const std::byte> bytes_;
};

// The largest absolute value; infinite where one of them is not finite.
double largest_of(const StoredTensor& stored) {
  const DType dtype = *dtype_of_safetensors(stored.tensor->dtype);
  double largest = 0;
  std::mutex mutex;
  stored.file->scan(*stored.tensor, [&](std::span<const std::byte> bytes) {
    const double most =
        largest_magnitude(dtype, bytes.data(), static_cast<std::int64_t>(bytes.size() / size_of(dtype)));
    const std::scoped_lock lock(mutex);
    largest = std::max(largest, most);
  });
  return largest;
}

// As a weight of that dtype will hold it. Rounding keeps the order, so that the largest number speaks for all.
double rounded(double value, DType dtype) {
  alignas(std::max_align_t) char storage[sizeof(double)];
  store_element(dtype, storage, 0, value);
  return load_element(dtype, storage, 0);
}

// Where a number of a weight in the graph's layout stands in its tensor of the checkpoint.
std::int64_t place_in_file(const WeightSource& source, std::int64_t index, std::int64_t length) {
  const std::int64_t row = index / length, column = index % length;
  switch (source.layout) {
    case WeightSource::Layout::plain:
      return index;
    case WeightSource::Layout::ohwi: {
      const std::int64_t cin = source.file[1], taps = length / cin;
      return row * length + column % cin * taps + column / cin;
    }
    case WeightSource::Layout::transposed: {
      const std::int64_t k = source.file[0], taps = length / k;
      return (column % k * source.file[1] + row) * taps + column / k;
    }
    case WeightSource::Layout::hd3_to_3hd: {
      const std::int64_t channels = source.file[0] / 3;
      return (row % channels * 3 + row / channels) * length + column;
    }
  }
  return index;
}

// A row of a weight in the graph's layout, from the checkpoint's tensors, which stand below each other.
void take_row(const WeightSource& source, const std::vector<Numbers>& tensors, std::int64_t row, std::span<float> out) {
  const std::int64_t length = std::ssize(out);
  std::size_t tensor = 0;
  if (!source.below.empty() && row >= source.file[0]) {
    row -= source.file[0];
    for (; row >= source.below[tensor].rows; ++tensor) row -= source.below[tensor].rows;
    ++tensor;
  }
  const Numbers& numbers = tensors[tensor];
  const auto place = [&](std::int64_t column) { return place_in_file(source, row * length + column, length); };
  switch (source.layout) {
    case WeightSource::Layout::plain:
    case WeightSource::Layout::hd3_to_3hd:
      return numbers.take(place(0), out);  // whole rows
    case WeightSource::Layout::ohwi: {
      const std::int64_t cin = source.file[1], taps = source.file[2] * source.file[3];
      std::vector<float> ihw(out.size());
      numbers.take(row * length, ihw);
      for (std::int64_t tap = 0; tap < taps; ++tap)
        for (std::int64_t c = 0; c < cin; ++c)
          out[static_cast<std::size_t>(tap * cin + c)] = ihw[static_cast<std::size_t>(c * taps + tap)];
      return;
    }
    case WeightSource::Layout::transposed:
      for (std::int64_t column = 0; column < length; ++column)
        out[static_cast<std::size_t>(column)] = static_cast<float>(numbers[place(column)]);
  }
}

// What all numbers are multiplied with: where they are shared, by sigmoid(m) or 1 - sigmoid(m) too.
float factor_of(const Checkpoint& checkpoint, const WeightSource& source) {
  if (!source.share) return static_cast<float>(source.times);
  std::vector<std::byte> memory;
  const double m = Numbers(*checkpoint.find(source.share->of), memory)[0];
  return static_cast<float>(source.times * source.share->at(m));
}

}  // namespace

std::vector<float> in_file_order(const WeightSource& source, std::span<const float> numbers) {
  if (source.rows != 0 || !source.below.empty() || source.share || source.sigmoid || !source.plus.empty())
    throw std::logic_error(source.name + " is not one whole tensor");
  const bool transposed = source.layout == WeightSource::Layout::transposed;
  const std::int64_t length = std::ssize(numbers) / source.file[transposed ? 1 : 0];
  std::vector<float> turned(numbers.size());
  for (std::int64_t i = 0; i < std::ssize(numbers); ++i)
    turned[static_cast<std::size_t>(place_in_file(source, i, length))] =
        numbers[static_cast<std::size_t>(i)] / static_cast<float>(source.times);
  return turned;
}

std::optional<Complaint> Checkpoint::complaint_of(const WeightSource::Below& wanted, const Value& weight) const {
  using Kind = Complaint::Kind;
  const auto& [name, rows] = wanted;
  std::vector<std::int64_t> shape = weight.source->file;
  shape.front() = rows;
  const StoredTensor* stored = find(name);
  if (stored == nullptr)
    return Complaint{Kind::missing, name, fmt::format("{} [{}] is missing", name, fmt::join(shape, ", "))};
  const FileTensor* tensor = stored->tensor;
  if (tensor->shape != shape)
    return Complaint{Kind::misshapen, name,
                     fmt::format("{} is [{}], not [{}]", name, fmt::join(tensor->shape, ", "), fmt::join(shape, ", "))};
  if (!floating(dtype_of_safetensors(tensor->dtype)))
    return Complaint{Kind::dtype, name, fmt::format("{} is {}, not F32, F16, BF16 or F64", name, tensor->dtype)};
  const double largest = largest_of(*stored);
  if (!std::isfinite(largest))
    return Complaint{Kind::numbers, name, fmt::format("{} has numbers that are not finite", name)};
  const double times = weight.source->times;
  if (!std::isfinite(rounded(largest * times, weight.dtype)))
    return Complaint{Kind::numbers, name,
                     fmt::format("{} has numbers that {} cannot hold: up to {}{}", name, to_string(weight.dtype),
                                 largest, times == 1 ? "" : fmt::format(", times {:.6g}", times))};
  return {};
}

void Checkpoint::check(const Network& network) const {
  std::vector<Complaint> complaints;
  TensorNames known;
  for (const Value& value : network.graph.values()) {
    if (!value.source) continue;
    for (const WeightSource::Below& tensor : value.source->tensors())
      if (known.insert(tensor.name).second)
        if (auto complaint = complaint_of(tensor, value)) complaints.push_back(std::move(*complaint));
  }
  const std::vector<const FileTensor*> tensors = this->tensors();
  for (const FileTensor* tensor : tensors)
    if (const std::string_view name = std::string_view(tensor->name).substr(prefix_.size());
        !known.contains(name) && !network.info->lets_pass(name))
      complaints.push_back(
          {Complaint::Kind::unknown, std::string(name), fmt::format("{} is not a tensor of {}", name, network.name())});
  if (complaints.empty()) return;
  // Of a few wrong ones each is said; what most of are wrong is something else.
  if (2 * complaints.size() > known.size())
    if (const std::string kind = kind_of_tensors(path_, tensors, *network.info, known); !kind.empty())
      throw InvalidInput(kind);
  throw refusal("{} is not a checkpoint of {}{}; {} of its tensors are wrong:\n  {}", path_.string(), network.name(),
                prefix_.empty() ? "" : fmt::format(", without '{}'", prefix_), complaints.size(),
                lines_of(complaints, known.size(), *network.info));
}

void Checkpoint::drop_prefix(const NetworkInfo& info) {
  const std::vector<const FileTensor*> tensors = this->tensors();
  std::string_view common = tensors.empty() ? std::string_view() : tensors.front()->name;
  for (const FileTensor* tensor : tensors) {
    const auto [end, other] = std::ranges::mismatch(common, tensor->name);
    common = common.substr(0, static_cast<std::size_t>(end - common.begin()));
  }
  if (common.find('.') == std::string_view::npos) return;
  const auto names = checkpoint_of(info.build({}).graph);
  const auto known_behind = [&](std::size_t prefix) {
    return std::ranges::count_if(tensors, [&](const FileTensor* tensor) {
      return names.contains(std::string_view(tensor->name).substr(prefix));
    });
  };
  std::size_t best = 0;
  for (std::size_t dot = common.find('.'); dot != std::string_view::npos; dot = common.find('.', dot + 1))
    if (known_behind(dot + 1) > known_behind(best)) best = dot + 1;
  prefix_ = common.substr(0, best);
}

void Checkpoint::load(const Value& weight, std::span<char> bytes) const {
  const WeightSource& source = *weight.source;
  auto numbers = [&, used = std::size_t{0}](const std::string& name) mutable {
    if (used == memory_.size()) memory_.emplace_back();
    return Numbers(*find(name), memory_[used++]);
  };
  std::vector<Numbers> tensors, added;
  for (const WeightSource::Below& tensor : source.tensors()) tensors.push_back(numbers(tensor.name));
  if (!source.plus.empty()) added.push_back(numbers(source.plus));
  const bool transposed = source.layout == WeightSource::Layout::transposed;
  const std::int64_t file_rows = source.rows == 0 ? source.all_rows() : source.rows;
  const std::int64_t length = weight.elements() / (transposed ? source.file[1] : file_rows);
  const float factor = factor_of(*this, source);
  parallel_for_memory(weight.elements() / length, std::max<std::int64_t>(1, kGrain / length),
                      [&](std::int64_t begin, std::int64_t end) {
                        std::vector<float> row(static_cast<std::size_t>(length)), more(row.size());
                        for (std::int64_t i = begin; i < end; ++i) {
                          take_row(source, tensors, i, row);
                          if (!added.empty()) {
                            take_row(source, added, i, more);
                            for (std::size_t k = 0; k < row.size(); ++k) row[k] += more[k];
                          }
                          if (source.sigmoid)
                            for (float& number : row) number = 1 / (1 + std::exp(-number));
                          if (factor != 1)
                            for (float& number : row) number *= factor;
                          store_floats(weight.dtype, bytes.data(), i * length, length, row.data());
                        }
                      });
}

void Checkpoint::fill(Platform& platform, const Value& weight, void* data) const {
  if (filled_.size() < weight.bytes()) filled_.resize(weight.bytes());
  load(weight, std::span(filled_).first(weight.bytes()));
  platform.upload(data, filled_.data(), weight.bytes());
}

void Checkpoint::filled() const {
  memory_.clear();
  filled_ = {};
}

}  // namespace noisefloor::pipeline
