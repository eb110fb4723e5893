#include "networks/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "kernels/core/fields.h"

namespace noisefloor::pipeline {

// Rows, each beside its builder. A new network is one name here.
NetworkInfo adm64_row();
NetworkInfo edm_cifar_row();
NetworkInfo digits_row();

namespace {

void require(bool holds, const NetworkInfo& info, const std::string& takes) {
  if (!holds) throw InvalidInput(fmt::format("{} takes {}", info.name, takes));
}

// The sizes that are built; throws InvalidInput where the network does not take them.
BuildOptions resolved(const NetworkInfo& info, BuildOptions options) {
  const auto resolve = [](std::int64_t& value, std::int64_t native) { value = value == 0 ? native : value; };
  resolve(options.height, info.image.height);
  resolve(options.width, info.image.width);
  resolve(options.frames, info.image.frames);
  resolve(options.tokens, info.tokens);
  const bool native = options.height == info.image.height && options.width == info.image.width;
  if (info.divisor == 0)
    require(native, info,
            fmt::format("images of {} x {}, not {} x {}", info.image.height, info.image.width, options.height,
                        options.width));
  else
    require(native || (options.height > 0 && options.width > 0 && options.height % info.divisor == 0 &&
                       options.width % info.divisor == 0),
            info,
            fmt::format("images whose height and width are multiples of {}, not {} x {}", info.divisor, options.height,
                        options.width));
  require(options.frames >= 1 && options.frames <= info.most_frames, info,
          fmt::format("1 to {} frames, not {}", info.most_frames, options.frames));
  require(options.tokens == info.tokens || (options.tokens >= 1 && options.tokens <= info.most_tokens), info,
          info.most_tokens == 0 ? "no text" : fmt::format("1 to {} tokens, not {}", info.most_tokens, options.tokens));
  options.conditional = options.conditional && info.classes > 0;
  return options;
}

// What a row lacks is said before anything is built of it.
void check(const NetworkInfo& info) {
  const auto hold = [&](bool holds, const char* otherwise) {
    if (!holds) throw std::logic_error(fmt::format("network {}: {}", info.name, otherwise));
  };
  hold(info.builder && *info.description != '\0', "its row has no builder or no description");
  hold(info.image.elements() > 0, "its row does not say what image it was trained on");
  hold((info.classes > 0) == (*info.label_weight != '\0'), "classes and a weight of labels need each other");
}

}  // namespace

const char* Network::name() const {
  return info->name;
}

sampler_step::Prediction Network::prediction() const {
  return info->prediction;
}

ValueId Network::take(const char* name, NetworkTensor::Kind kind, std::vector<std::int64_t> shape, DType dtype,
                      std::int64_t range) {
  const ValueId value = graph.input(name, shape, dtype);
  inputs.push_back({name, kind, value, std::move(shape), range});
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

Network NetworkInfo::build(const BuildOptions& asked) const {
  const BuildOptions options = resolved(*this, asked);
  Network network;
  network.info = this;
  network.batch = options.batch;
  network.calls = options.guided ? 2 * options.batch : options.batch;
  network.image = {options.height, options.width, image.channels, options.frames};
  network.classes = options.conditional ? classes : 0;
  builder(options, network);
  return network;
}

std::span<const NetworkInfo> networks() {
  static const std::vector<NetworkInfo> kNetworks = [] {
    std::vector<NetworkInfo> rows{adm64_row(), edm_cifar_row(), digits_row()};
    for (const NetworkInfo& row : rows) check(row);
    return rows;
  }();
  return kNetworks;
}

std::vector<std::string> networks_where(bool (*so)(const NetworkInfo&)) {
  std::vector<std::string> names;
  for (const NetworkInfo& network : networks())
    if (so(network)) names.emplace_back(network.name);
  return names;
}

const NetworkInfo& require_network(std::string_view name) {
  for (const NetworkInfo& network : networks())
    if (name == network.name) return network;
  const std::vector<std::string> names = networks_where([](const NetworkInfo&) { return true; });
  throw InvalidInput(
      fmt::format("unknown network '{}'; there are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

Network build_or_say_limit(const NetworkInfo& info, const BuildOptions& options) {
  const auto builds = [&](std::int64_t batch) {
    BuildOptions other = options;
    other.batch = batch;
    try {
      (void)info.build(other);
      return true;
    } catch (const InvalidInput&) {
      return false;
    }
  };
  try {
    return info.build(options);
  } catch (const InvalidInput& error) {
    std::int64_t takes = 0, too_many = options.batch;
    if (too_many == 1 || !builds(1)) throw;  // it is not the batch
    while (too_many - takes > 1) {
      const std::int64_t middle = takes + (too_many - takes) / 2;
      (builds(middle) ? takes : too_many) = middle;
    }
    throw InvalidInput(fmt::format("{} images at a time{} are too many for {}, which takes 1 to {}: {}", options.batch,
                                   options.guided ? ", twice with guidance," : "", info.name, takes, error.what()));
  }
}

}  // namespace noisefloor::pipeline
