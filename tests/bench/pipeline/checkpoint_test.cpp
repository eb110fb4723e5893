// What a checkpoint must have, and how its weights are packed.
#include "bench/pipeline/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
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

Network digits(DType dtype = DType::fp32) {
  return require_network("digits").build({.batch = 1, .dtype = dtype});
}

std::string complaint_of(const std::filesystem::path& file, const Network& network) {
  return refusal_of([&] { Checkpoint(file).check(network); });
}

TEST(Checkpoint, NamesAllThatIsWrongAtOnce) {
  const TemporaryFolder folder;
  const Network network = digits();
  write_weights_by_rule(folder / "right.safetensors", network.graph);
  EXPECT_EQ(complaint_of(folder / "right.safetensors", network), "");

  const SafetensorsFile right(folder / "right.safetensors");
  std::vector<FileTensor> tensors(right.tensors().begin(), right.tensors().end());
  const auto named = [&](const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const FileTensor& tensor) { return tensor.name == name; });
  };
  tensors.erase(named("model.map_layer0.bias"));
  named("model.map_layer1.bias")->shape = {16, 16};
  named("model.dec.8x8_aux_conv.bias")->dtype = "I32";
  std::vector<float> labels = recorded_numbers(right, "model.map_label.weight");
  labels[3] = NAN;
  named("model.map_label.weight")->data = std::as_bytes(std::span(labels));
  tensors.push_back({"model.enc.resample_filter", "F32", {0}, {}});  // let pass
  tensors.push_back({"model.odd", "F32", {0}, {}});
  write_safetensors(folder / "wrong.safetensors", tensors);
  const std::string message = complaint_of(folder / "wrong.safetensors", network);
  expect_parts(message, {"5 of its tensors", "map_layer0.bias [256] is missing",
                         "map_layer1.bias is [16, 16], not [256]", "aux_conv.bias is I32",
                         "map_label.weight has numbers that are not finite", "model.odd is not a tensor of digits"});
  EXPECT_EQ(message.find("resample_filter"), std::string::npos);
}

// What is said of a network's checkpoint by rule that begins a tensor with this number.
std::string complaint_of_a_number(const NetworkInfo& info, const char* name, float number, DType dtype) {
  const TemporaryFolder folder;
  const Network network = info.build({.dtype = dtype});
  write_weights_by_rule(folder / "w.safetensors", network.graph);
  write_changed(folder / "w.safetensors", folder / "other.safetensors",
                [&](FileTensor& tensor, std::vector<std::byte>& bytes) {
                  if (tensor.name == name) std::memcpy(bytes.data(), &number, sizeof number);
                });
  return complaint_of(folder / "other.safetensors", network);
}

TEST(Checkpoint, RefusesWhatTheDtypeCannotHold) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const auto complaint = [](float number, DType dtype) {
    return complaint_of_a_number(require_network("digits"), "model.map_label.weight", number, dtype);
  };
  EXPECT_EQ(complaint(-65519, DType::fp16), "");  // rounds to the largest, 65504
  expect_parts(complaint(-65520, DType::fp16), {"map_label.weight has numbers that fp16 cannot hold: up to 65520"});
  EXPECT_EQ(complaint(65520, DType::bf16), "");
  expect_parts(complaint(kLargest, DType::bf16), {"bf16 cannot hold"});
  EXPECT_EQ(complaint(kLargest, DType::fp32), "");
}

// svd-vae's first convolution takes latents that are not divided by 0.18215 yet.
TEST(Checkpoint, RefusesWhatTheDtypeCannotHoldOnceItIsMultiplied) {
  const auto complaint = [](float number, DType dtype) {
    return complaint_of_a_number(small_video_decoder(), "decoder.conv_in.weight", number, dtype);
  };
  EXPECT_EQ(complaint(-11900, DType::fp16), "");
  expect_parts(complaint(-20000, DType::fp16),
               {"decoder.conv_in.weight has numbers that fp16 cannot hold: up to 20000, times 5.48998"});
  EXPECT_EQ(complaint(-20000, DType::bf16), "");
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
    std::vector<char> bytes(graph[id].bytes());
    checkpoint.load(graph[id], bytes);
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  };
  using Layout = WeightSource::Layout;
  // [cout, cin, kh, kw] -> [cout, kh, kw, cin], the first two output channels
  EXPECT_EQ(loaded({"conv", {3, 2, 2, 2}, Layout::ohwi, 2}, {2, 2, 2, 2}),
            (std::vector<float>{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}));
  EXPECT_EQ(loaded({"table", {4, 3}, Layout::transposed}, {3, 4}),
            (std::vector<float>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
  // rows q0 k0 v0 q1 k1 v1 -> q0 q1 k0 k1 v0 v1
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::hd3_to_3hd}, {6, 2}),
            (std::vector<float>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::plain, 2}, {2, 2}), (std::vector<float>{0, 1, 2, 3}));
  // rows of one below those of another
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::plain, 7, {{"more", 6}}}, {7, 2}),
            (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 100, 101}));
  // a share of a blend, and what is left of it
  for (const bool rest : {false, true}) {
    WeightSource part{"rows", {6, 2}, Layout::plain, 1};
    part.share = {"mix", rest};
    const double share = 1 / (1 + std::exp(rest ? 2.0 : -2.0));
    const std::vector<float> found = loaded(part, {1, 2});
    EXPECT_EQ(found[0], 0);
    EXPECT_NEAR(found[1], share, 1e-6);
  }
  WeightSource factor{"mix", {1}};
  factor.sigmoid = true;
  EXPECT_NEAR(loaded(factor, {1})[0], 1 / (1 + std::exp(-2.0)), 1e-6);
}

}  // namespace
}  // namespace noisefloor::pipeline
