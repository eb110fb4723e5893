// What a file is that is no checkpoint of the network asked for: three lines that say what it is, what it has, and what
// to do.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/tensors/safetensors.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

// Of a file that cannot be read as safetensors, by its first bytes; empty where they are of no kind that is known.
std::string kind_of_file(const std::filesystem::path& file);

// Of a checkpoint's tensors, by their names, shapes and dtypes; empty where they are of no other kind that is known.
// `known`: names of the network that was wanted.
using TensorNames = std::set<std::string, std::less<>>;
std::string kind_of_tensors(const std::filesystem::path& file, std::span<const FileTensor* const> tensors,
                            const networks::NetworkInfo& wanted, const TensorNames& known);

// What is wrong with a tensor of a checkpoint.
struct Complaint {
  enum class Kind { missing, misshapen, dtype, numbers, unknown };
  Kind kind;
  std::string name, text;
};
// A line each; of many a line a kind, with a count, three of them, and the likeliest cause. `weights`: of the network.
std::string lines_of(const std::vector<Complaint>& complaints, std::size_t weights,
                     const networks::NetworkInfo& wanted);

}  // namespace noisefloor::pipeline
