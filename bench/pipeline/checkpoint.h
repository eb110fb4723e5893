// The weights of a network, from safetensors with the names of the original checkpoint: one file, or the shards that an
// index beside them names, as diffusers and transformers write them.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/tensors/safetensors.h"

namespace noisefloor::pipeline {

// In wrong_checkpoint.cpp: what a file is that is no checkpoint of the network asked for, in three lines that say what
// it is, what it has, and what to do.

// Of a file that cannot be read as safetensors, by its first bytes; empty where they are of no kind that is known.
std::string kind_of_file(const std::filesystem::path& file);

// Of a checkpoint's tensors, by their names, shapes and dtypes; empty where they are of no other kind that is known.
// `known`: names of the network that was wanted.
using TensorNames = std::set<std::string, std::less<>>;
std::string kind_of_tensors(const std::filesystem::path& file, std::span<const FileTensor* const> tensors,
                            const NetworkInfo& wanted, const TensorNames& known);

// In unetcu_file.cpp: what unet.cu writes and reads. Of a kind that begins with that number; both parsers throw
// SafetensorsError.
inline constexpr std::int32_t kUnetcuWeights = 12345678, kUnetcuImages = 20240620;
bool is_unetcu_file(const std::filesystem::path& file, std::int32_t kind);
std::vector<FileTensor> parse_unetcu_weights(std::span<const std::byte> file);
std::vector<FileTensor> parse_unetcu_images(std::span<const std::byte> file);  // the tensor images [n, c, h, w]
// Whether weights of that network go into a file of this name as unet.cu has them.
bool is_named_as_unetcu(const std::filesystem::path& name, const NetworkInfo& info);
// `tensors`: of the whole network, fp32. `batch`: what a training there goes on with.
void write_unetcu(const std::filesystem::path& file, std::span<const FileTensor> tensors, std::int64_t batch);

// What is wrong with a tensor of a checkpoint.
struct Complaint {
  enum class Kind { missing, misshapen, dtype, numbers, unknown };
  Kind kind;
  std::string name, text;
};
// A line each; of many a line a kind, with a count, three of them, and the likeliest cause. `weights`: of the network.
std::string lines_of(const std::vector<Complaint>& complaints, std::size_t weights, const NetworkInfo& wanted);

// A tensor, and the file that it is in.
struct StoredTensor {
  const SafetensorsFile* file;
  const FileTensor* tensor;
};

// The other way: numbers of a weight in the graph's layout as its tensor of the checkpoint has them. Throws
// std::logic_error where a weight is not one whole tensor.
std::vector<float> in_file_order(const WeightSource& source, std::span<const float> numbers);

// Not for several threads at once: what is read goes through memory that is kept from tensor to tensor.
class Checkpoint final : public Weights {
 public:
  // `path`: a file, an index (*.json), a folder that has one of them, or the folder of a pipeline, where it stands in
  // the folder `part`. Throws InvalidInput that names, all at once, shards that are missing or lie elsewhere, and
  // tensors that the index and the shards do not agree on.
  explicit Checkpoint(const std::filesystem::path& path, std::string_view part = "unet");

  const std::filesystem::path& path() const { return path_; }  // of the file, or of the index
  std::vector<const FileTensor*> tensors() const;
  const StoredTensor* find(std::string_view name) const;  // null where there is none; behind the prefix
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Where all names begin with a prefix ("model.", "unet.") that the network's do not, they are read without it.
  void drop_prefix(const NetworkInfo& info);
  const std::string& prefix() const { return prefix_; }
  // Throws InvalidInput that says what else it is, where it is something that is known; or lists, all at once, what the
  // network's tensors are missing, misshapen, of a dtype that is not floating-point, or not finite (also in the
  // network's dtype), and tensors of the files that the network does not know; what the network's row lets pass is let
  // pass.
  void check(const Network& network) const;
  // Values of a weight in the graph's layout and dtype, into as many bytes as it has; the checkpoint has been checked.
  // Throws SafetensorsError where a file was truncated since.
  void load(const Value& weight, std::span<char> bytes) const;
  void fill(Platform& platform, const Value& weight, void* data) const override;
  void filled() const override;

 private:
  void open_shards();
  // What is wrong with one tensor of a weight, if anything is.
  std::optional<Complaint> complaint_of(const WeightSource::Below& wanted, const Value& weight) const;

  std::filesystem::path path_;
  std::string prefix_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  // Of the tensors of a weight, and of a weight on its way to the device.
  mutable std::deque<std::vector<std::byte>> memory_;
  mutable std::vector<char> filled_;
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
