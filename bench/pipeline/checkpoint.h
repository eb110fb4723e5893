// The weights of a network, from safetensors with the names of the original checkpoint.
#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/pipeline/checkpoint_files.h"
#include "bench/pipeline/executor.h"

namespace noisefloor::pipeline {

// Not for several threads at once: what is read goes through memory that is kept from tensor to tensor.
class Checkpoint final : public Weights {
 public:
  // As CheckpointFiles takes it.
  explicit Checkpoint(const std::filesystem::path& path, std::string_view part = "unet") : files_(path, part) {}

  const std::filesystem::path& path() const { return files_.path(); }
  bool has(std::string_view name) const { return files_.find(name) != nullptr; }
  // Where all names begin with a prefix ("model.", "unet.") that the network's do not, they are read without it.
  // Returns the prefix.
  const std::string& drop_prefix(const NetworkInfo& info);
  const std::string& prefix() const { return files_.prefix(); }
  // Throws InvalidInput that says what else it is, where it is something that is known; or lists, all at once, what the
  // network's tensors are missing, misshapen, of a dtype that is not floating-point, or not finite (also in the
  // network's dtype), and tensors of the files that the network does not know; what the network's row lets pass is let
  // pass.
  void check(const Network& network) const;
  // Values of a weight in the graph's layout and dtype; the checkpoint has been checked. Throws SafetensorsError where
  // a file was truncated since.
  std::vector<char> load(const Value& weight) const;
  void fill(Platform& platform, const Value& weight, void* data) const override;
  void filled() const override;

 private:
  // What is wrong with one tensor of a weight, if anything is.
  std::optional<Complaint> complaint_of(const WeightSource::Below& wanted, const Value& weight) const;

  void load(const Value& weight, std::span<char> bytes) const;

  CheckpointFiles files_;
  // Of the tensors of a weight, and of a weight on its way to the device.
  mutable std::deque<std::vector<std::byte>> memory_;
  mutable std::vector<char> filled_;
};

}  // namespace noisefloor::pipeline
