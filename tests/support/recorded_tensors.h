// Tensors that a script recorded, as a network has them, and how far ours are from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "bench/tensors/safetensors.h"

namespace noisefloor {

// Of a file in fp32.
inline std::vector<float> recorded_numbers(const SafetensorsFile& file, const char* name) {
  const std::vector<std::byte> bytes = file.read(*file.find(name));
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

// [..., channels, height, width], as networks have images: channels-last.
inline std::vector<float> recorded_images(const SafetensorsFile& file, const char* name) {
  const std::vector<float> x = recorded_numbers(file, name);
  std::vector<float> y(x.size());
  const auto extent = [&](std::ptrdiff_t from_last) {
    return static_cast<std::size_t>(file.find(name)->shape.end()[-from_last]);
  };
  const std::size_t channels = extent(3), pixels = extent(2) * extent(1);
  for (std::size_t i = 0; i < x.size(); ++i)
    y[(i / pixels / channels * pixels + i % pixels) * channels + i / pixels % channels] = x[i];
  return y;
}

// Relative L2.
template <class Number>
double distance(const std::vector<Number>& found, const std::vector<Number>& expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(found.at(i)) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

// A file once more, with tensors of other names or numbers.
template <class Change>
void write_changed(const std::filesystem::path& from, const std::filesystem::path& to, const Change& change) {
  const SafetensorsFile file(from);
  std::vector<FileTensor> tensors;
  std::deque<std::vector<std::byte>> storage;
  for (FileTensor tensor : file.tensors()) {
    change(tensor, storage.emplace_back(file.read(tensor)));
    tensor.data = storage.back();
    tensors.push_back(tensor);
  }
  write_safetensors(to, tensors);
}

// What a recorded loop was told, and its first noise, of its first pictures: a file as --conditioning takes it.
inline void write_told(const std::filesystem::path& file, const SafetensorsFile& recorded, std::int64_t pictures) {
  std::vector<FileTensor> tensors;
  std::deque<std::vector<std::byte>> storage;
  for (FileTensor tensor : recorded.tensors()) {
    if (tensor.name == "final_latents" || tensor.name == "images" || tensor.name == "x" || tensor.name == "output")
      continue;
    storage.push_back(recorded.read(tensor));
    const std::int64_t rows = std::exchange(tensor.shape.front(), std::min(tensor.shape.front(), pictures));
    tensor.data = std::span(storage.back()).first(storage.back().size() / rows * tensor.shape.front());
    tensors.push_back(tensor);
  }
  write_safetensors(file, tensors);
}

}  // namespace noisefloor
