// What a checkpoint must have, and how its weights are packed.
#include "bench/pipeline/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "networks/network.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

std::vector<FileTensor> digits_tensors(std::map<std::string, std::vector<float>>& storage) {
  const Network network = require_network("digits").build({.batch = 1, .dtype = DType::fp32});
  std::vector<FileTensor> tensors;
  for (const Value& value : network.graph.values()) {
    if (!value.source) continue;
    for (const auto& [name, rows] : value.source->tensors()) {
      if (storage.contains(name)) continue;
      std::vector<std::int64_t> shape = value.source->file;
      shape.front() = rows;
      std::int64_t count = 1;
      for (const std::int64_t extent : shape) count *= extent;
      auto& numbers = storage[name];
      numbers.resize(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
      tensors.push_back({name, "F32", shape, std::as_bytes(std::span(numbers))});
    }
  }
  return tensors;
}

std::string complaint_of(const std::filesystem::path& file, const Network& network) {
  return refusal_of([&] { Checkpoint(file).check(network); });
}

TEST(Checkpoint, NamesAllThatIsWrongAtOnce) {
  const TemporaryFolder folder;
  std::map<std::string, std::vector<float>> storage;
  auto tensors = digits_tensors(storage);
  const Network network = require_network("digits").build({.batch = 1, .dtype = DType::fp32});

  write_safetensors(folder.path() / "right.safetensors", tensors);
  EXPECT_EQ(complaint_of(folder / "right.safetensors", network), "");

  const auto named = [&](const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const FileTensor& tensor) { return tensor.name == name; });
  };
  tensors.erase(named("model.map_layer0.bias"));
  named("model.map_layer1.bias")->shape = {16, 16};
  named("model.dec.8x8_aux_conv.bias")->dtype = "I32";
  storage["model.map_label.weight"][3] = NAN;
  tensors.push_back({"model.enc.resample_filter", "F32", {0}, {}});  // let pass
  tensors.push_back({"model.odd", "F32", {0}, {}});
  write_safetensors(folder.path() / "wrong.safetensors", tensors);
  const std::string message = complaint_of(folder / "wrong.safetensors", network);
  expect_parts(message, {"5 of its tensors", "map_layer0.bias [256] is missing",
                         "map_layer1.bias is [16, 16], not [256]", "aux_conv.bias is I32",
                         "map_label.weight has numbers that are not finite", "model.odd is not a tensor of digits"});
  EXPECT_EQ(message.find("resample_filter"), std::string::npos);
}

TEST(Checkpoint, RefusesWhatTheDtypeCannotHold) {
  const TemporaryFolder folder;
  std::map<std::string, std::vector<float>> storage;
  const auto tensors = digits_tensors(storage);
  for (auto& [name, numbers] : storage) std::fill(numbers.begin(), numbers.end(), 1.0f);
  const auto complaint = [&](float number, DType dtype) {
    storage["model.map_label.weight"][3] = number;
    write_safetensors(folder / "w.safetensors", tensors);
    return complaint_of(folder / "w.safetensors", require_network("digits").build({.dtype = dtype}));
  };
  EXPECT_EQ(complaint(-65519, DType::fp16), "");  // rounds to the largest, 65504
  EXPECT_NE(complaint(-65520, DType::fp16).find("map_label.weight has numbers that fp16 cannot hold: up to 65520"),
            std::string::npos);
  EXPECT_EQ(complaint(65520, DType::bf16), "");
  EXPECT_NE(complaint(std::numeric_limits<float>::max(), DType::bf16).find("bf16 cannot hold"), std::string::npos);
  EXPECT_EQ(complaint(std::numeric_limits<float>::max(), DType::fp32), "");
}

// svd-vae's first convolution takes latents that are not divided by 0.18215 yet.
TEST(Checkpoint, RefusesWhatTheDtypeCannotHoldOnceItIsMultiplied) {
  const TemporaryFolder folder;
  const NetworkInfo info = small_video_decoder();
  write_weights_by_rule(folder / "w.safetensors", info.build({}).graph);
  const auto complaint = [&](float number, DType dtype) {
    write_changed(folder / "w.safetensors", folder / "other.safetensors",
                  [&](FileTensor& tensor, std::vector<std::byte>& bytes) {
                    if (tensor.name == "decoder.conv_in.weight") std::memcpy(bytes.data(), &number, sizeof number);
                  });
    return complaint_of(folder / "other.safetensors", info.build({.dtype = dtype}));
  };
  EXPECT_EQ(complaint(-11900, DType::fp16), "");
  EXPECT_NE(complaint(-20000, DType::fp16)
                .find("decoder.conv_in.weight has numbers that fp16 cannot hold: up to 20000, times 5.48998"),
            std::string::npos);
  EXPECT_EQ(complaint(-20000, DType::bf16), "");
}

TEST(Checkpoint, AFileThatIsTruncatedInTheMeantimeIsAnError) {
  const TemporaryFolder folder;
  std::map<std::string, std::vector<float>> storage;
  write_safetensors(folder.path() / "w.safetensors", digits_tensors(storage));
  const Network network = require_network("digits").build({.batch = 1, .dtype = DType::fp32});
  const Checkpoint checkpoint(folder.path() / "w.safetensors");
  EXPECT_NO_THROW(checkpoint.check(network));
  std::filesystem::resize_file(folder.path() / "w.safetensors", 100'000);
  const auto load_all = [&] {
    for (const Value& value : network.graph.values())
      if (value.source) checkpoint.load(value);
  };
  EXPECT_THROW(load_all(), SafetensorsError);
  EXPECT_THROW(checkpoint.check(network), SafetensorsError);
}

TEST(Checkpoint, LaysWeightsOut) {
  const TemporaryFolder folder;
  std::vector<float> conv(3 * 2 * 2 * 2), table(4 * 3), rows(6 * 2), more(6 * 2);
  std::iota(more.begin(), more.end(), 100.0f);
  for (auto* numbers : {&conv, &table, &rows})
    for (std::size_t i = 0; i < numbers->size(); ++i) (*numbers)[i] = static_cast<float>(i);
  const std::vector<float> mix{2};
  const FileTensor tensors[] = {{"mix", "F32", {1}, std::as_bytes(std::span(mix))},
                                {"conv", "F32", {3, 2, 2, 2}, std::as_bytes(std::span(conv))},
                                {"table", "F32", {4, 3}, std::as_bytes(std::span(table))},
                                {"rows", "F32", {6, 2}, std::as_bytes(std::span(rows))},
                                {"more", "F32", {6, 2}, std::as_bytes(std::span(more))}};
  write_safetensors(folder.path() / "w.safetensors", tensors);
  const Checkpoint checkpoint(folder.path() / "w.safetensors");
  Graph graph;
  const auto loaded = [&](WeightSource source, std::vector<std::int64_t> shape) {
    const ValueId id = graph.weight(std::move(source), std::move(shape), DType::fp32);
    const std::vector<char> bytes = checkpoint.load(graph[id]);
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  };
  using Layout = WeightSource::Layout;
  // [cout, cin, kh, kw] -> [cout, kh, kw, cin], the last two output channels
  EXPECT_EQ(loaded({"conv", {3, 2, 2, 2}, Layout::ohwi, 1, 2}, {2, 2, 2, 2}),
            (std::vector<float>{8, 12, 9, 13, 10, 14, 11, 15, 16, 20, 17, 21, 18, 22, 19, 23}));
  EXPECT_EQ(loaded({"table", {4, 3}, Layout::transposed}, {3, 4}),
            (std::vector<float>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
  // rows q0 k0 v0 q1 k1 v1 -> q0 q1 k0 k1 v0 v1
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::hd3_to_3hd}, {6, 2}),
            (std::vector<float>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::plain, 4, 2}, {2, 2}), (std::vector<float>{8, 9, 10, 11}));
  // rows of one below those of another
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::plain, 5, 2, {{"more", 6}}}, {2, 2}),
            (std::vector<float>{10, 11, 100, 101}));
  // a share of a blend, and what is left of it
  for (const bool rest : {false, true}) {
    WeightSource part{"rows", {6, 2}, Layout::plain, 4, 1};
    part.share = {"mix", rest};
    const double share = 1 / (1 + std::exp(rest ? 2.0 : -2.0));
    const std::vector<float> found = loaded(part, {1, 2});
    EXPECT_NEAR(found[0], 8 * share, 1e-6);
    EXPECT_NEAR(found[1], 9 * share, 1e-6);
  }
  WeightSource factor{"mix", {1}};
  factor.sigmoid = true;
  EXPECT_NEAR(loaded(factor, {1})[0], 1 / (1 + std::exp(-2.0)), 1e-6);
}

}  // namespace
}  // namespace noisefloor::pipeline
