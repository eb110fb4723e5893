#include "networks/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/core/fields.h"
#include "networks/rewrite.h"

namespace noisefloor::networks {

// Rows, each beside its builder. A new network is one name here.
NetworkInfo adm64_row();
NetworkInfo edm_cifar_row();
NetworkInfo digits_row();
NetworkInfo moving_digits_row();
NetworkInfo mnist_unet_row();
NetworkInfo unetcu_row();
NetworkInfo sd15_row();
NetworkInfo sdxl_row();
NetworkInfo svd_row();
NetworkInfo sd_vae_row();
NetworkInfo sdxl_vae_row();
NetworkInfo svd_vae_row();

namespace {

// Far above what memory holds; products of them still fit 64 bits.
constexpr std::int64_t kMostSide = 65536, kMostFrames = 1024, kMostTokens = 65536;

// "; the nearest are 56 and 64"
std::string nearest_multiples(std::int64_t size, std::int64_t divisor) {
  const std::int64_t below = size > 0 ? size / divisor * divisor : 0;
  return below == 0 ? fmt::format("the nearest is {}", divisor)
                    : fmt::format("the nearest are {} and {}", below, below + divisor);
}

// Why a network does not take a size, and what it takes; empty where it does.
std::string refusal(const NetworkInfo& info, const SizeField& field, std::int64_t size) {
  const bool frames = field.size == &Sizes::frames;
  if (size == info.own_sizes().*field.size) return "";
  if (field.size == &Sizes::height || field.size == &Sizes::width) {
    if (info.divisor == 0)
      return fmt::format("{} takes images of {} x {} only", info.name, info.image.height, info.image.width);
    if (size > 0 && size % info.divisor == 0) return "";
    return fmt::format("{} takes multiples of {}; {}", info.name, info.divisor, nearest_multiples(size, info.divisor));
  }
  const std::int64_t most = frames ? info.most_frames : info.most_tokens;
  if (size >= 1 && size <= most) return "";
  if (frames ? most > 1 : info.tokens > 0) return fmt::format("{} takes 1 to {}", info.name, most);
  const auto others = frames ? networks_where([](const NetworkInfo& other) { return other.most_frames > 1; })
                             : networks_where([](const NetworkInfo& other) { return other.tokens > 0; });
  return fmt::format("{} {}; networks with {}: {}", info.name, frames ? "makes single images" : "takes no text",
                     field.name, fmt::join(others, ", "));
}

// Of the last `blocks` of the decoder.
void keep_what_is_below(Network& network, std::int64_t blocks) {
  const std::int64_t all = std::ssize(network.below);
  if (all == 0)
    throw InvalidInput(fmt::format("{} has no decoder with skips, of which a part could be kept", network.name()));
  if (blocks > all)
    throw InvalidInput(
        fmt::format("{} blocks of {}'s decoder to compute anew: it has 1 to {}", blocks, network.name(), all));
  network.kept = network.below.at(static_cast<std::size_t>(all - blocks));
}

// What the calls of a loop read of what was computed before it, for their levels alone.
std::int64_t bytes_ahead(const Network& network) {
  std::int64_t bytes = 0;
  for (const Value& value : network.graph.values())
    if (value.part && value.part->a_call != 0)
      bytes += static_cast<std::int64_t>(value.bytes()) * network.hoisted_levels;
  return bytes;
}

// Throws where a sampling loop has nothing for an input.
void require_given(const Network& network) {
  const std::vector<Conditioned>& told = network.info->conditioning;
  for (const NetworkTensor& input : network.inputs) {
    const bool own = input.value == network.x() || input.kind == NetworkTensor::Kind::timesteps ||
                     input.kind == NetworkTensor::Kind::sigma || input.kind == NetworkTensor::Kind::labels;
    if (!own && std::none_of(told.begin(), told.end(),
                             [&](const Conditioned& one) { return std::string_view(one.input) == input.name; }))
      throw InvalidInput(
          fmt::format("{} cannot be sampled yet: nothing here gives it its {}", network.name(), input.name));
  }
}

}  // namespace

const char* Network::name() const {
  return info->name;
}

sampler_step::Prediction Network::prediction() const {
  return info->prediction;
}

ValueId Network::take(const char* name, NetworkTensor::Kind kind, std::vector<std::int64_t> shape, DType dtype,
                      std::int64_t range, bool of_all_calls) {
  const ValueId value = graph.input(name, shape, dtype);
  inputs.push_back({name, kind, value, std::move(shape), range, of_all_calls});
  return value;
}

void Network::give(const char* name, ValueId value, std::vector<std::int64_t> shape) {
  outputs.push_back({name, NetworkTensor::Kind::image, value, std::move(shape)});
}

const NetworkTensor* Network::find(NetworkTensor::Kind kind) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.kind == kind; });
  return found == inputs.end() ? nullptr : &*found;
}

const NetworkTensor& Network::require(NetworkTensor::Kind kind) const {
  if (const NetworkTensor* input = find(kind)) return *input;
  throw std::logic_error(fmt::format("network {} has no input of the kind asked for", name()));
}

const NetworkTensor& Network::level() const {
  const NetworkTensor* timesteps = find(NetworkTensor::Kind::timesteps);
  return timesteps != nullptr ? *timesteps : require(NetworkTensor::Kind::sigma);
}

std::vector<ValueId> Network::output_values() const {
  std::vector<ValueId> values;
  for (const NetworkTensor& output : outputs) values.push_back(output.value);
  return values;
}

std::span<const SizeField> size_fields() {
  static constexpr SizeField kFields[] = {
      {"height", "height of an image in pixels, or of its latents", &Sizes::height, kMostSide},
      {"width", "width in the same unit", &Sizes::width, kMostSide},
      {"frames", "frames of a video", &Sizes::frames, kMostFrames},
      {"tokens", "tokens of a text", &Sizes::tokens, kMostTokens}};
  return kFields;
}

bool NetworkInfo::lets_pass(std::string_view tensor) const {
  return std::any_of(let_pass.begin(), let_pass.end(), [&](std::string_view part) {
    return part.ends_with('.') ? tensor.starts_with(part) : tensor.ends_with(part);
  });
}

std::vector<double> NetworkInfo::training_sigmas() const {
  if (schedule == sampler_step::Schedule::karras) return {};
  if (alphas.empty()) return sampler_step::training_sigmas(schedule);
  std::vector<double> sigmas = alphas;
  for (double& value : sigmas) value = std::sqrt((1 - value) / value);
  return sigmas;
}

NetworkInfo::Levels NetworkInfo::trained_levels() const {
  const std::vector<double> sigmas = training_sigmas();
  return sigmas.empty() ? Levels{sigma_min, sigma_max} : Levels{sigmas.front(), sigmas.back()};
}

void NetworkInfo::require(DType dtype) const {
  if (dtype == DType::fp16 && *no_fp16 != '\0') throw InvalidInput(fmt::format("{} in fp16: {}", name, no_fp16));
}

Sizes NetworkInfo::resolved(Sizes sizes) const {
  for (const SizeField& field : size_fields()) {
    std::int64_t& size = sizes.*field.size;
    if (size == 0) size = own_sizes().*field.size;
    if (const std::string why = refusal(*this, field, size); !why.empty())
      throw InvalidInput(fmt::format("{} {}: {}", field.name, size, why));
  }
  return sizes;
}

Network NetworkInfo::build(const BuildOptions& asked) const {
  BuildOptions options = asked;
  if (asked.hoisted_levels > 1) {
    options.hoisted_levels = 1;
    const std::int64_t a_level = bytes_ahead(build(options));
    options.hoisted_levels =
        asked.hoisted_levels <= kMostHoistedBytes / std::max<std::int64_t>(1, a_level) ? asked.hoisted_levels : 0;
  }
  options.sizes = resolved(asked.sizes);
  options.conditional = asked.conditional && classes > 0;
  Network network;
  network.info = this;
  network.batch = options.batch;
  network.calls = options.guided ? 2 * options.batch : options.batch;
  network.image = {options.sizes.height, options.sizes.width, image.channels, options.sizes.frames};
  network.classes = options.conditional ? classes : 0;
  network.sampling = options.sampling;
  network.hoisted_levels = options.hoisted_levels;
  builder(options, network);
  // Its builder may embed the levels of a call alone.
  if (std::ranges::none_of(network.inputs, &NetworkTensor::of_all_calls)) network.hoisted_levels = 0;
  fuse(network, {.merge_products = options.merge_products, .fold_skips = options.fold_skips});
  if (options.shallow_blocks > 0) keep_what_is_below(network, options.shallow_blocks);
  return network;
}

std::span<const NetworkInfo> all_networks() {
  static const std::vector<NetworkInfo> kNetworks{
      adm64_row(), edm_cifar_row(), digits_row(), moving_digits_row(), mnist_unet_row(), unetcu_row(),
      sd15_row(),  sdxl_row(),      svd_row(),    sd_vae_row(),        sdxl_vae_row(),   svd_vae_row()};
  return kNetworks;
}

std::vector<std::string> networks_where(bool (*so)(const NetworkInfo&)) {
  std::vector<std::string> names;
  for (const NetworkInfo& network : all_networks())
    if (so(network)) names.emplace_back(network.name);
  return names;
}

const NetworkInfo& require_network(std::string_view name) {
  for (const NetworkInfo& network : all_networks())
    if (name == network.name) return network;
  const std::vector<std::string> names = networks_where([](const NetworkInfo&) { return true; });
  throw InvalidInput(
      fmt::format("unknown network '{}'; there are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

std::int64_t largest_fitting(std::int64_t too_many, const std::function<bool(std::int64_t)>& fits) {
  std::int64_t fitting = 0;
  while (too_many - fitting > 1) {
    const std::int64_t middle = fitting + (too_many - fitting) / 2;
    try {
      (fits(middle) ? fitting : too_many) = middle;
    } catch (const InvalidInput&) {
      too_many = middle;
    }
  }
  return fitting;
}

void build_or_say_limit(const NetworkInfo& info, std::int64_t batch, bool guided,
                        const std::function<void(std::int64_t)>& build) try {
  build(batch);
} catch (const InvalidInput& error) {
  const std::int64_t takes = largest_fitting(batch, [&](std::int64_t fewer) { return build(fewer), true; });
  if (takes == 0) throw;  // it is not the batch
  throw InvalidInput(fmt::format("{} images at a time{} are too many for {}, which takes 1 to {}: {}", batch,
                                 guided ? ", twice with guidance," : "", info.name, takes, error.what()));
}

Network build_or_say_limit(const NetworkInfo& info, const BuildOptions& options) {
  info.require(options.dtype);
  if (options.sampling && info.decodes())
    throw InvalidInput(
        fmt::format("{} decodes latents, which noisefloor forward gives it; it cannot be sampled", info.name));
  Network network;
  build_or_say_limit(info, options.batch, options.guided, [&](std::int64_t batch) {
    BuildOptions so_many = options;
    so_many.batch = batch;
    network = info.build(so_many);
  });
  if (options.sampling) require_given(network);
  return network;
}

}  // namespace noisefloor::networks
