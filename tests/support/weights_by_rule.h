// Weights that a rule gives, where a file of them would be too large.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/tensors/safetensors.h"
#include "tests/support/small_networks.h"

namespace noisefloor {

using networks::Graph;

// All weights of a network, numbers by their names: as weights_by_rule of tests/bench/pipeline/diffusers_unet.py.
inline void write_weights_by_rule(const std::filesystem::path& file, const Graph& graph) {
  std::map<std::string, std::vector<float>> numbers;
  std::vector<FileTensor> tensors;
  for (const auto& [name, shape] : networks::checkpoint_of(graph)) {
    std::vector<float>& values = numbers[name];
    std::uint64_t seed = 0xCBF29CE484222325;
    for (const char byte : name) seed = (seed ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    const bool vector = shape.size() == 1, norm = name.find("norm") != std::string::npos && name.ends_with("weight");
    const double spread = name.ends_with("mix_factor") ? 2
                          : vector                     ? 0.3
                                                       : std::sqrt(3 / static_cast<double>(count / shape[0]));
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint64_t bits = static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15 + seed;
      bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
      bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
      const double uniform = static_cast<double>((bits ^ (bits >> 31)) >> 40) / 0x1p23 - 1;
      values.push_back(static_cast<float>((vector && norm ? 1 : 0) + spread * uniform));
    }
    tensors.push_back({name, safetensors_name(DType::fp32), shape, std::as_bytes(std::span(values))});
  }
  write_safetensors(file, tensors);
}

}  // namespace noisefloor
