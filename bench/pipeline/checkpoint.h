// The weights of a network, from a safetensors file with the names of the original checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/pipeline/weights.h"
#include "bench/tensors/safetensors.h"

namespace noisefloor::pipeline {

class Checkpoint final : public Weights {
 public:
  explicit Checkpoint(const std::filesystem::path& path) : path_(path), file_(path) {}

  const std::filesystem::path& path() const { return path_; }
  bool has(std::string_view name) const { return file_.find(name) != nullptr; }
  // Throws InvalidInput that lists, all at once, what the network's tensors are missing, misshapen, of a dtype that is
  // not floating-point, or not finite (also in the network's dtype), and tensors of the file that the network does not
  // know; what the network's row lets pass is let pass.
  void check(const Network& network) const override;
  // Values of a weight in the graph's layout and dtype; the checkpoint has been checked. Throws SafetensorsError where
  // the file was truncated since.
  std::vector<char> load(const Value& weight) const;
  void fill(Platform& platform, const Value& weight, void* data) const override;

 private:
  // What is wrong with one tensor of a weight; empty where nothing is.
  std::string complaint_of(const std::string& name, const Value& weight) const;

  std::filesystem::path path_;
  SafetensorsFile file_;
};

}  // namespace noisefloor::pipeline
