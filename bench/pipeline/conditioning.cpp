#include "bench/pipeline/conditioning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bench/pipeline/network_tensors.h"
#include "bench/platform/refusal.h"

namespace noisefloor::pipeline {
namespace {

using InputKind = NetworkTensor::Kind;

constexpr const char* kLatents = "latents";

const NetworkTensor& input_of(const Network& network, const Conditioned& conditioned) {
  for (const NetworkTensor& input : network.inputs)
    if (std::string_view(input.name) == conditioned.input) return input;
  throw std::logic_error(fmt::format("network {} has no input {}", network.name(), conditioned.input));
}

// The tensors of a file, those of the half without condition last.
std::vector<std::string> tensors_of(const NetworkInfo& info, bool guided) {
  std::vector<std::string> names;
  for (const bool given : {true, false})
    for (const Conditioned& one : info.conditioning) {
      const std::string name = given ? one.tensor : guided ? one.without : "";
      if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  return names;
}

}  // namespace

std::string Conditioning::command_for(const NetworkInfo& info) {
  return fmt::format("python3 -m baselines.pytorch.conditioning {} --weights FOLDER {} --out FILE", info.name,
                     info.tokens > 0 ? "\"a prompt\"" : "PICTURE");
}

Conditioning::Conditioning(const std::string& path, const NetworkInfo& info, bool guided)
    : path_(path), file_(path), info_(&info), guided_(guided) {
  std::vector<std::string> missing;
  for (const std::string& name : tensors_of(info, guided))
    if (file_.find(name) == nullptr) missing.push_back(name);
  if (!missing.empty())
    throw refusal("{} has no {}; such a file is made by {}", path, fmt::join(missing, " and no "), command_for(info));
  std::vector<std::string> known = tensors_of(info, true);
  known.emplace_back(kLatents);
  require_known(file_, path, info, known);
}

Sizes Conditioning::sizes(const Sizes& asked) const {
  const auto tensor_of = [&](std::string_view input) {
    const auto told = std::ranges::find(info_->conditioning, input, &Conditioned::input);
    return told == info_->conditioning.end() ? nullptr : &tensor(told->tensor);
  };
  return sizes_of_inputs(*info_, asked, tensor_of, path_, /*of_pictures=*/true);
}

std::vector<double> Conditioning::rows_of(const NetworkTensor& input, const Network& network, const char* name,
                                          std::int64_t pictures) const {
  std::vector<std::int64_t> shape = input.shape;
  if (input.kind == InputKind::image) shape = {0, network.image.channels, network.image.height, network.image.width};
  const std::vector<std::int64_t>& there = tensor(name).shape;
  shape.front() = !there.empty() && there.front() == 1 ? 1 : pictures;
  const std::vector<double> numbers = numbers_of(file_, tensor(name), path_, shape);
  if (input.kind != InputKind::image) return numbers;
  file_.require_layout(kChannelsFirst);
  return to_channels_last(numbers, network.image);
}

void Conditioning::read(const Network& network, std::int64_t count) {
  std::int64_t pictures = 1;
  for (const Conditioned& one : info_->conditioning)
    if (const auto& shape = tensor(one.tensor).shape; !shape.empty()) pictures = std::max(pictures, shape.front());
  rows_.clear();
  for (const Conditioned& one : info_->conditioning) {
    const NetworkTensor& input = input_of(network, one);
    Rows rows{rows_of(input, network, one.tensor, pictures), {}};
    if (guided_ && *one.without != '\0') rows.without = rows_of(input, network, one.without, pictures);
    rows_.push_back(std::move(rows));
  }
  if (file_.find(kLatents) == nullptr) return;
  file_.require_layout(kChannelsFirst);
  std::vector<std::int64_t> shape = network.require(InputKind::image).shape;
  shape.front() = count;
  const std::vector<double> latents = numbers_of(file_, tensor(kLatents), path_, channels_first_shape(shape));
  const std::vector<double> turned = to_channels_last(latents, network.image);
  latents_.assign(turned.begin(), turned.end());
}

void Conditioning::set(Platform& platform, const Executor& executor, std::int64_t first) const {
  const Network& network = executor.network();
  for (std::size_t k = 0; k < rows_.size(); ++k) {
    const NetworkTensor& input = input_of(network, info_->conditioning[k]);
    const Value& value = network.graph[input.value];
    const std::int64_t length = value.elements() / network.calls;
    const std::int64_t times = input.kind == InputKind::image ? network.image.frames : 1;  // a picture, for every frame
    std::vector<char> data(value.bytes());
    for (std::int64_t i = 0; i < network.calls; ++i) {
      const std::int64_t unconditional = network.calls - network.batch;  // of them, first
      const std::vector<double>& from = i < unconditional ? rows_[k].without : rows_[k].given;
      if (from.empty()) continue;
      const std::int64_t image = first + (i < unconditional ? i : i - unconditional), row_length = length / times;
      const std::int64_t row = image % (std::ssize(from) / row_length);
      for (std::int64_t j = 0; j < length; ++j)
        store_element(value.dtype, data.data(), i * length + j,
                      from[static_cast<std::size_t>(row * row_length + j % row_length)]);
    }
    platform.upload(executor.data(input.value), data.data(), data.size());
  }
}

std::vector<float> Conditioning::noise(const Network& network, std::int64_t first) const {
  if (latents_.empty()) return {};
  const std::int64_t numbers = network.image.elements();
  std::vector<float> noise(static_cast<std::size_t>(network.batch * numbers));
  const auto begin = latents_.begin() + first * numbers;
  std::copy_n(begin, std::min<std::ptrdiff_t>(latents_.end() - begin, std::ssize(noise)), noise.begin());
  return noise;
}

}  // namespace noisefloor::pipeline
