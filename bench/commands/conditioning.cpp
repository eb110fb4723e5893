#include "bench/commands/conditioning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/commands/image_layout.h"
#include "bench/commands/tensor_numbers.h"

namespace noisefloor {
namespace {

using namespace networks;

constexpr const char* kPrompts = "prompt_embeds";
constexpr const char* kNegativePrompts = "negative_prompt_embeds";
constexpr const char* kLatents = "latents";

}  // namespace

std::string Conditioning::command_for(const NetworkInfo& info) {
  return fmt::format("python3 -m baselines.pytorch.conditioning {} --weights FOLDER \"a prompt\" --out FILE",
                     info.name);
}

Conditioning::Conditioning(const std::string& path, const NetworkInfo& info, bool guided)
    : path_(path), file_(path), guided_(guided) {
  std::vector<std::string> missing;
  for (const char* name : {kPrompts, kNegativePrompts})
    if ((guided || name == kPrompts) && file_.find(name) == nullptr) missing.push_back(name);
  if (!missing.empty())
    throw InvalidInput(fmt::format("{} has no {}; such a file is made by {}", path, fmt::join(missing, " and no "),
                                   command_for(info)));
  for (const FileTensor& given : file_.tensors())
    if (given.name != kPrompts && given.name != kNegativePrompts && given.name != kLatents)
      throw InvalidInput(fmt::format("{}: {} takes no tensor {}; it takes {}, {} and {}", path, info.name, given.name,
                                     kPrompts, kNegativePrompts, kLatents));
  const FileTensor& prompts = tensor(kPrompts);
  if (prompts.shape.size() != 3 || prompts.shape[0] < 1 || prompts.shape[1] < 1)
    throw InvalidInput(fmt::format("{}: tensor {} is [{}], not [n, tokens, width] with n and tokens of 1 and more",
                                   path, kPrompts, fmt::join(prompts.shape, ", ")));
  tokens_ = prompts.shape[1];
}

void Conditioning::read(const Network& network, std::int64_t count) {
  const std::int64_t n = tensor(kPrompts).shape[0], width = network.require(NetworkTensor::Kind::text).shape.back();
  prompts_ = numbers_of(file_, tensor(kPrompts), path_, {n, tokens_, width});
  if (guided_) {
    const std::vector<std::int64_t>& shape = tensor(kNegativePrompts).shape;
    const bool one = !shape.empty() && shape[0] == 1;  // for all prompts
    negative_prompts_ = numbers_of(file_, tensor(kNegativePrompts), path_, {one ? 1 : n, tokens_, width});
  }
  if (file_.find(kLatents) == nullptr) return;
  file_.require_layout(kChannelsFirst);
  const std::vector<double> latents =
      numbers_of(file_, tensor(kLatents), path_,
                 channels_first_shape({count, network.image.height, network.image.width, network.image.channels}));
  const std::vector<double> turned = to_channels_last(latents, network.image);
  latents_.assign(turned.begin(), turned.end());
}

void Conditioning::set(Platform& platform, const pipeline::Executor& executor, std::int64_t first) const {
  const Network& network = executor.network();
  const NetworkTensor& text = network.require(NetworkTensor::Kind::text);
  const Value& value = network.graph[text.value];
  const std::int64_t numbers = tokens_ * text.shape.back();
  std::vector<char> data(value.bytes());
  for (std::int64_t i = 0; i < network.calls; ++i) {
    const std::int64_t unconditional = network.calls - network.batch;  // of them, first
    const std::vector<double>& from = i < unconditional ? negative_prompts_ : prompts_;
    const std::int64_t image = first + (i < unconditional ? i : i - unconditional);
    const std::int64_t row = image % (std::ssize(from) / numbers);
    for (std::int64_t j = 0; j < numbers; ++j)
      store_element(value.dtype, data.data(), i * numbers + j, from[static_cast<std::size_t>(row * numbers + j)]);
  }
  platform.upload(executor.data(text.value), data.data(), data.size());
}

std::vector<float> Conditioning::noise(const Network& network, std::int64_t first) const {
  if (latents_.empty()) return {};
  const std::int64_t numbers = network.image.elements();
  std::vector<float> noise(static_cast<std::size_t>(network.batch * numbers));
  const auto begin = latents_.begin() + first * numbers;
  std::copy_n(begin, std::min<std::ptrdiff_t>(latents_.end() - begin, std::ssize(noise)), noise.begin());
  return noise;
}

}  // namespace noisefloor
