// Checkpoints in one file and in shards: what is taken, and that all which is wrong is named at once.
#include "bench/pipeline/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "networks/graph.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "diffusion_pytorch_model.safetensors.index.json";
constexpr const char* kFirst = "diffusion_pytorch_model-00001-of-00002.safetensors";
constexpr const char* kSecond = "diffusion_pytorch_model-00002-of-00002.safetensors";

// Tensors [count] of 1, 2, 3, ...
void write_shard(const fs::path& file, const std::vector<std::string>& names, DType dtype = DType::fp32) {
  constexpr std::int64_t kCount = 6;
  std::vector<std::byte> bytes(static_cast<std::size_t>(kCount) * size_of(dtype));
  for (std::int64_t i = 0; i < kCount; ++i) store_element(dtype, bytes.data(), i, static_cast<double>(i + 1));
  std::vector<FileTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, safetensors_name(dtype), {3, 2}, bytes});
  write_safetensors(file, tensors);
}

std::string maps(const std::string& tensor, const std::string& shard) {
  return '"' + tensor + "\": \"" + shard + '"';
}

void write_index(const fs::path& file, const std::vector<std::string>& entries) {
  std::string text = R"({"metadata": {"total_size": 1, "weight_map": {"a": "b"}}, "weight_map": {)";
  for (std::size_t i = 0; i < entries.size(); ++i) text += (i == 0 ? "" : ", ") + entries[i];
  std::ofstream(file) << text << "}}";
}

void write_two_shards(const fs::path& folder) {
  fs::create_directories(folder);
  write_shard(folder / kFirst, {"a", "b"}, DType::fp16);
  write_shard(folder / kSecond, {"c"}, DType::bf16);
  write_index(folder / kIndex, {maps("a", kFirst), maps("b", kFirst), maps("c", kSecond)});
}

std::string refusal(const fs::path& path) {
  return refusal_of([&] { return Checkpoint(path).path(); });
}

TEST(CheckpointFiles, AreOneFileAnIndexOrAFolder) {
  const TemporaryFolder folder;
  write_two_shards(folder / "pipeline/unet");
  write_shard(folder / "one.safetensors", {"a", "b", "c"});
  for (const char* path : {"one.safetensors", "pipeline", "pipeline/unet", "pipeline/unet/."}) {
    const Checkpoint files(folder / path);
    ASSERT_EQ(files.tensors().size(), 3u) << path;
    EXPECT_EQ(files.find("d"), nullptr);
    ASSERT_NE(files.find("c"), nullptr);
    const auto& [file, tensor] = *files.find("c");
    const FileTensor& c = *tensor;
    const std::vector<std::byte> bytes = file->read(c);
    EXPECT_EQ(bytes.size(), 6 * size_of(*dtype_of_safetensors(c.dtype)));
    EXPECT_TRUE(std::ranges::equal(bytes, c.data));
  }
  EXPECT_EQ(Checkpoint(folder / "pipeline").path(), folder / "pipeline" / "unet" / kIndex);
  EXPECT_EQ(Checkpoint(folder / "pipeline/unet" / kIndex).tensors().size(), 3u);
  EXPECT_EQ(files_of_checkpoint(folder / "pipeline").size(), 3u);
  EXPECT_EQ(files_of_checkpoint(folder / "one.safetensors"), std::vector{folder / "one.safetensors"});
}

// As diffusers chooses where nobody asks for a variant; then what is there.
TEST(CheckpointFiles, OfAFolderArePlainOnesBeforeFp16) {
  const TemporaryFolder folder;
  for (const char* name : {"model.fp16.safetensors", "diffusion_pytorch_model.fp16.safetensors", "model.safetensors",
                           "diffusion_pytorch_model.safetensors"}) {
    write_shard(folder / name, {"a"});
    EXPECT_EQ(Checkpoint(folder.path()).path().filename(), name);
  }
  write_two_shards(folder.path());
  EXPECT_EQ(Checkpoint(folder.path()).path().filename(), kIndex);
  fs::create_directories(folder / "empty");
  expect_parts(refusal(folder / "empty"), {"empty is a folder without a checkpoint", "unet/", "model.safetensors"});
}

TEST(CheckpointFiles, MayBeLinksIntoACache) {
  const TemporaryFolder folder;
  write_two_shards(folder / "blobs");
  fs::create_directories(folder / "snapshot");
  for (const char* name : {kIndex, kFirst, kSecond})
    fs::create_symlink(fs::path("..") / "blobs" / name, folder / "snapshot" / name);
  EXPECT_EQ(refusal(folder / "snapshot"), "");
}

TEST(CheckpointFiles, NameAllThatIsWrongAtOnce) {
  const TemporaryFolder folder;
  write_two_shards(folder.path());
  write_shard(folder / "extra.safetensors", {"e", "b"});
  std::ofstream(folder / "cut.safetensors") << "cut";
  write_index(folder / kIndex,
              {maps("a", kFirst), maps("b", kFirst), maps("d", kSecond), maps("e", "extra.safetensors"),
               maps("f", "gone.safetensors"), maps("g", "gone.safetensors"), maps("h", "../secret.safetensors"),
               maps("i", "/etc/passwd"), maps("j", ".."), maps("k", "cut.safetensors"), "\"l\": 7"});
  const std::string message = refusal(folder.path());
  expect_parts(
      message,
      {"index.json and its files do not agree",
       "tensor 'd' is not in diffusion_pytorch_model-00002-of-00002.safetensors",
       "tensor 'c' is in diffusion_pytorch_model-00002-of-00002.safetensors, where the index does not",
       "tensor 'b' is in extra.safetensors, where the index does not have it",
       "file gone.safetensors of 2 tensors is missing",
       "file '../secret.safetensors' of tensor 'h' is outside of its folder",
       "file '/etc/passwd' of tensor 'i' is outside of its folder", "file '..' of tensor 'j' is outside of its folder",
       "cut.safetensors is no safetensors file", "tensor 'l' has no file's name"});
  EXPECT_EQ(message.find("tensor 'e'"), std::string::npos) << message;
  // Outputs are held against what would be read.
  for (const fs::path& file : files_of_checkpoint(folder.path())) EXPECT_EQ(file.parent_path(), folder.path());
}

TEST(CheckpointFiles, NameTheFirstOfManyThatAreMissing) {
  const TemporaryFolder folder;
  constexpr int kMany = 100'000;
  std::vector<std::string> entries;
  for (int i = 0; i < kMany; ++i) entries.push_back(maps("t" + std::to_string(i), "s" + std::to_string(i)));
  write_index(folder / kIndex, entries);
  const std::string message = refusal(folder.path());
  expect_parts(message, {"file s0 of tensor 't0' is missing", "and 99980 more, 100000 in all"});
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 21);
}

TEST(CheckpointFiles, RefuseWhatIsNoIndex) {
  const TemporaryFolder folder;
  const fs::path file = folder / "index.json";
  for (const auto& [text, says] :
       {std::pair{"{", "parse error"}, std::pair{"[]", "has no 'weight_map'"}, std::pair{"{}", "has no 'weight_map'"},
        std::pair{R"({"weight_map": []})", "has no 'weight_map'"},
        std::pair{R"({"weight_map": {}})", "has no 'weight_map'"},
        std::pair{"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
                  "'weight_map'"}}) {
    std::ofstream(file) << text;
    expect_parts(refusal(file), {"index.json", says});
  }
  expect_parts(refusal(folder / "none.json"), {"none.json"});
  expect_parts(refusal(folder / "none"), {"none"});
}

TEST(Checkpoint, ReadsShardsOfAnyDtype) {
  const TemporaryFolder folder;
  write_two_shards(folder.path());
  write_shard(folder / "last.safetensors", {"d"}, DType::fp32);
  write_index(folder / kIndex,
              {maps("a", kFirst), maps("b", kFirst), maps("c", kSecond), maps("d", "last.safetensors")});
  const Checkpoint checkpoint(folder.path());
  EXPECT_TRUE(checkpoint.has("d"));
  Graph graph;
  for (const char* name : {"a", "c", "d"}) {
    const WeightSource source{name, {3, 2}, WeightSource::Layout::plain, 0, {{"b", 3}, {"c", 3}}};
    const ValueId id = graph.weight(source, {9, 2}, DType::fp32);
    std::vector<char> bytes(graph[id].bytes());
    checkpoint.load(graph[id], bytes);
    std::vector<float> numbers(18), expected{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    EXPECT_EQ(numbers, expected) << name;
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
