// The files of a checkpoint: one, or the shards that an index beside them names, as diffusers and transformers write
// them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/safetensors.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

// In wrong_checkpoint.cpp: what a file is that is no checkpoint of the network asked for, in three lines that say what
// it is, what it has, and what to do.

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

class CheckpointFiles {
 public:
  // `path`: a file, an index (*.json), a folder that has one of them, or the folder of a pipeline, where it stands in
  // the folder `part`. Throws InvalidInput that names, all at once, shards that are missing or lie elsewhere, and
  // tensors that the index and the shards do not agree on.
  explicit CheckpointFiles(const std::filesystem::path& path, std::string_view part = "unet");

  const std::filesystem::path& path() const { return path_; }  // of the file, or of the index
  std::vector<const FileTensor*> tensors() const;
  const FileTensor* find(std::string_view name) const;  // null where there is none; behind the prefix
  // All names begin with it, and are read without.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& prefix() const { return prefix_; }
  std::string_view name_of(const FileTensor& tensor) const {
    return std::string_view(tensor.name).substr(prefix_.size());
  }
  // Its bytes, into as many; throws SafetensorsError where the file was truncated since.
  void read(const FileTensor& tensor, std::span<std::byte> bytes) const;
  void scan(const FileTensor& tensor, const std::function<void(std::span<const std::byte>)>& take) const;  // as there

 private:
  struct Place {
    const SafetensorsFile* file;
    const FileTensor* tensor;
  };
  void open_shards();

  std::filesystem::path path_;
  std::string prefix_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place, std::less<>> places_;
};

// The file or index that a path means; nothing, or InvalidInput, where a folder has none.
std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& path, std::string_view part = "unet");
std::filesystem::path checkpoint_file(const std::filesystem::path& path, std::string_view part = "unet");
// The one in fp16 (or not) that is beside a checkpoint of a folder, and is not read; empty where none is.
std::string variant_beside(const std::filesystem::path& file);
// All files that opening `path` would read; none that are not there.
std::vector<std::filesystem::path> files_of_checkpoint(const std::filesystem::path& path,
                                                       std::string_view part = "unet");

}  // namespace noisefloor::pipeline
