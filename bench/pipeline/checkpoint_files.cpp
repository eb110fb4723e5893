// The files of a checkpoint.
#include "bench/pipeline/checkpoint.h"
#include "bench/platform/refusal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/core/listed.h"
#include "reports/run/json_file.h"

namespace noisefloor::pipeline {
namespace {

// What diffusers and transformers call them, the one to take first where there are several: as those do without a
// `variant`.
constexpr const char* kNames[] = {
    "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "model.safetensors.index.json",
    "model.safetensors",
    "diffusion_pytorch_model.safetensors.index.fp16.json",
    "diffusion_pytorch_model.fp16.safetensors",
    "model.safetensors.index.fp16.json",
    "model.fp16.safetensors",
};

constexpr std::size_t kMostFaults = 20;  // about files, each of many tensors

// What a folder without a checkpoint has in the place of one: "; it has unet/pytorch_model.bin, ...".
std::string of_another_kind(const fs::path& path, std::string_view part) {
  std::error_code error;
  for (const fs::path& folder : {path / part, path})
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      constexpr std::string_view kOthers[] = {".bin", ".ckpt", ".pt", ".pth", ".gguf", ".h5", ".safetensors"};
      if (std::ranges::find(kOthers, entry->path().extension().string()) == std::end(kOthers)) continue;
      const std::string kind = kind_of_file(entry->path());
      if (!kind.empty()) return "; it has this:\n" + kind;
    }
  return "";
}

bool is_index(const fs::path& path) {
  return path.extension() == ".json";
}

struct Index {
  std::map<std::string, std::vector<std::string>> shards;  // and the tensors that they are said to have
  std::vector<std::string> complaints;
};

// {"metadata": {...}, "weight_map": {"conv_in.weight": "diffusion_pytorch_model-00001-of-00002.safetensors", ...}}
Index read_index(const fs::path& path) {
  using Json = nlohmann::json;
  const auto refuse = [&](const std::string& what) { throw refusal("{}: {}", path.string(), what); };
  Json json;
  try {  // what is nested deeper than an index is left out
    json = Json::parse(read_whole_file(path, kMostJsonBytes),
                       [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepestJson; });
  } catch (const std::exception& error) {
    refuse(fmt::format("cannot be read: {}", error.what()));
  }
  if (!json.is_object() || !json["weight_map"].is_object() || json["weight_map"].empty())
    refuse("is not the index of a checkpoint: it has no 'weight_map' of tensors and files");
  Index index;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (shard.is_string())
      index.shards[shard.get<std::string>()].push_back(tensor);
    else
      index.complaints.push_back(fmt::format("tensor '{}' has no file's name", tensor));
  }
  return index;
}

// A bare name: an index may come from anywhere, and leads nowhere else. What it names may be a link, as in the caches
// of Hugging Face.
bool beside(const std::string& shard) {
  return fs::path(shard).filename() == shard && shard != ".." && shard != "." && !shard.empty();
}

std::unique_ptr<SafetensorsFile> open_or_say_kind(const fs::path& file) {
  if (is_unetcu_file(file, kUnetcuWeights)) return std::make_unique<SafetensorsFile>(file, parse_unetcu_weights);
  try {
    return std::make_unique<SafetensorsFile>(file);
  } catch (const SafetensorsError&) {
    const std::string kind = kind_of_file(file);
    if (!kind.empty()) throw SafetensorsError(kind);
    throw;
  }
}

std::string tensors_of(const std::vector<std::string>& names) {
  return names.size() == 1 ? fmt::format("tensor '{}'", names.front()) : fmt::format("{} tensors", names.size());
}

}  // namespace

std::optional<fs::path> find_checkpoint(const fs::path& path, std::string_view part) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const fs::path& folder : {path, path / part})
    for (const char* name : kNames)
      if (is_there(folder / name)) return folder / name;
  return {};
}

fs::path checkpoint_file(const fs::path& path, std::string_view part) {
  if (const auto found = find_checkpoint(path, part)) return *found;
  throw refusal("{} is a folder without a checkpoint; looked for, there and in {}/: {}{}", path.string(), part,
                fmt::join(kNames, ", "), of_another_kind(path, part));
}

std::string variant_beside(const fs::path& file) {
  std::error_code error;
  for (const char* name : kNames)
    if (file.filename() != name && std::ranges::find(kNames, file.filename().string()) != std::end(kNames) &&
        fs::exists(file.parent_path() / name, error))
      return name;
  return "";
}

Checkpoint::Checkpoint(const fs::path& path, std::string_view part) : path_(checkpoint_file(path, part)) {
  if (is_index(path_)) {
    open_shards();
    return;
  }
  files_.push_back(open_or_say_kind(path_));
  for (const FileTensor& tensor : files_.back()->tensors()) tensors_[tensor.name] = {files_.back().get(), &tensor};
}

void Checkpoint::open_shards() {
  Index index = read_index(path_);
  const auto complain = [&](std::string what) { index.complaints.push_back(std::move(what)); };
  for (const auto& [shard, names] : index.shards) {
    std::error_code error;
    const fs::path file = path_.parent_path() / shard;
    if (!beside(shard)) {
      complain(fmt::format("file '{}' of {} is outside of its folder", shard, tensors_of(names)));
      continue;
    }
    if (!fs::exists(file, error)) {
      complain(fmt::format("file {} of {} is missing", shard, tensors_of(names)));
      continue;
    }
    try {
      files_.push_back(open_or_say_kind(file));
    } catch (const SafetensorsError& problem) {
      complain(problem.what());
      continue;
    }
    const std::set<std::string> said(names.begin(), names.end());
    std::set<std::string> there;
    for (const FileTensor& tensor : files_.back()->tensors()) {
      there.insert(tensor.name);
      if (!said.contains(tensor.name))
        complain(fmt::format("tensor '{}' is in {}, where the index does not have it", tensor.name, shard));
      tensors_[tensor.name] = {files_.back().get(), &tensor};
    }
    for (const std::string& name : names)
      if (!there.contains(name)) complain(fmt::format("tensor '{}' is not in {}", name, shard));
  }
  if (!index.complaints.empty())
    throw refusal("{} and its files do not agree:\n  {}", path_.string(), first_lines(index.complaints, kMostFaults));
}

std::vector<const FileTensor*> Checkpoint::tensors() const {
  std::vector<const FileTensor*> all;
  for (const auto& file : files_)
    for (const FileTensor& tensor : file->tensors()) all.push_back(&tensor);
  return all;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = prefix_.empty() ? tensors_.find(name) : tensors_.find(prefix_ + std::string(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<fs::path> files_of_checkpoint(const fs::path& path, std::string_view part) {
  std::vector<fs::path> files{checkpoint_file(path, part)};
  if (is_index(files.front()))
    for (const auto& [shard, names] : read_index(files.front()).shards)
      if (beside(shard)) files.push_back(files.front().parent_path() / shard);
  return files;
}

}  // namespace noisefloor::pipeline
