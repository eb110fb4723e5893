#include "networks/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/core/fields.h"

namespace noisefloor::pipeline {

std::span<const NetworkInfo> networks() {
  static constexpr NetworkInfo kNetworks[] = {
      {"adm64", "ADM 64x64 (Dhariwal and Nichol 2021), OpenAI's guided-diffusion checkpoints", 1000, build_adm64},
      {"edm-cifar", "DDPM++ 32x32 under EDM's preconditioning (Karras et al. 2022), NVlabs' checkpoints", 10,
       build_edm_cifar},
      {"digits", "a small EDM network of handwritten digits, 8x8; its weights come with noisefloor", 10, build_digits},
  };
  return kNetworks;
}

const NetworkInfo& require_network(std::string_view name) {
  std::vector<std::string> names;
  for (const NetworkInfo& network : networks()) {
    if (name == network.name) return network;
    names.emplace_back(network.name);
  }
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
    while (too_many - takes > 1) {
      const std::int64_t middle = takes + (too_many - takes) / 2;
      (builds(middle) ? takes : too_many) = middle;
    }
    throw InvalidInput(fmt::format("{} images at a time{} are too many for {}, which takes 1 to {}: {}", options.batch,
                                   options.guided ? ", twice with guidance," : "", info.name, takes, error.what()));
  }
}

}  // namespace noisefloor::pipeline
