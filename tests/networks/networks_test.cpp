// The networks that there are, row by row; and one of test code, of no square and with frames and text.
#include "networks/network.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"

namespace noisefloor::networks {
namespace {

using Kind = NetworkTensor::Kind;

// Networks that samplers ask, which decoders of latents are not.
std::vector<NetworkInfo> denoisers() {
  std::vector<NetworkInfo> infos;
  for (const NetworkInfo& info : all_networks())
    if (!info.decodes()) infos.push_back(info);
  return infos;
}

double flops_of(const Network& network) {
  double flops = 0;
  for (const Node& node : network.graph.nodes()) flops += node.op->cost(node.problem, node.dtype).flops;
  return flops;
}

std::string refusal(const NetworkInfo& info, const BuildOptions& options) {
  return refusal_of([&] { return info.build(options); });
}

TEST(Networks, HaveTheParametersOfTheOriginals) {
  for (const NetworkInfo& info : all_networks()) {
    std::int64_t parameters = 0;
    for (const auto& [name, shape] : checkpoint_of(info.build({.batch = 1, .dtype = DType::fp32}).graph)) {
      std::int64_t product = 1;
      for (const std::int64_t extent : shape) product *= extent;
      parameters += product;
    }
    EXPECT_EQ(parameters, info.parameters) << info.name;
  }
}

TEST(Networks, AreConditionalByTheWeightThatTheirRowNames) {
  for (const NetworkInfo& info : all_networks()) {
    if (info.classes == 0) continue;
    EXPECT_TRUE(checkpoint_of(info.build({}).graph).contains(info.label_weight)) << info.name;
    const Network without = info.build({.conditional = false});
    EXPECT_FALSE(checkpoint_of(without.graph).contains(info.label_weight)) << info.name;
    EXPECT_EQ(without.classes, 0) << info.name;
    EXPECT_EQ(without.find(Kind::labels), nullptr) << info.name;
  }
}

TEST(Networks, TakeAndGiveWhatTheirRowsSay) {
  for (const NetworkInfo& info : denoisers()) {
    for (const std::int64_t batch : {1, 3, 5}) {
      for (const bool guided : {false, true}) {
        const Network network = info.build({.batch = batch, .sampling = guided, .guided = guided});
        const auto& [height, width, channels, frames] = info.image;
        const std::int64_t n = guided ? 2 * batch : batch;
        std::set<std::string> names;
        for (const NetworkTensor& input : network.inputs) {
          EXPECT_TRUE(names.insert(input.name).second) << info.name << " has two inputs " << input.name;
          EXPECT_EQ(input.shape, network.graph[input.value].shape) << info.name << ' ' << input.name;
          EXPECT_EQ(input.shape.front(), input.value == network.x() ? batch : n) << info.name << ' ' << input.name;
        }
        std::vector<std::int64_t> shape{batch, height, width, channels};
        if (frames > 1) shape.insert(shape.begin() + 1, frames);
        EXPECT_EQ(network.require(Kind::image).shape, shape) << info.name;
        EXPECT_EQ(network.level().shape, (std::vector<std::int64_t>{n})) << info.name;
        EXPECT_EQ(network.find(Kind::sigma) != nullptr, guided || info.prediction != sampler_step::Prediction::noise);
        if (info.classes > 0) {
          EXPECT_EQ(network.require(Kind::labels).shape, (std::vector<std::int64_t>{n, info.classes})) << info.name;
        }
        const NetworkTensor& output = network.outputs.front();
        EXPECT_EQ(output.shape[output.shape.size() - 3], height) << info.name;
        EXPECT_EQ(output.shape[output.shape.size() - 2], width) << info.name;
        EXPECT_TRUE(!guided || output.shape.back() == channels) << info.name << ": a sampler wants the image alone";
        std::int64_t elements = 1;
        for (const std::int64_t extent : output.shape) elements *= extent;
        EXPECT_EQ(network.graph[output.value].elements(), elements) << info.name;
      }
    }
  }
}

// Any multiple of what they downsample: down to one element at the coarsest level, and up to sizes whose last rows and
// columns fill no tile. A convolutional network has the same weights at every size, and its work grows with the pixels.
TEST(Networks, AreBuiltForOtherHeightsAndWidths) {
  for (const NetworkInfo& info : all_networks()) {
    if (info.divisor == 0) continue;
    SCOPED_TRACE(info.name);
    const std::int64_t side = info.divisor, scale = std::max<std::int64_t>(1, info.enlarges);
    const Network native = info.build({});
    for (const auto& [height, width] :
         {std::pair{side, side}, std::pair{side, 13 * side}, std::pair{7 * side, 3 * side},
          std::pair{info.image.height + side, 2 * info.image.width}})
      for (const bool guided : {false, true}) {
        if (guided && info.decodes()) continue;
        const Network other =
            info.build({.batch = 2, .sampling = guided, .guided = guided, .sizes = {.height = height, .width = width}});
        EXPECT_EQ(other.image.elements(), info.image.frames * height * width * info.image.channels);
        const NetworkTensor& output = other.outputs.front();
        std::vector<std::int64_t> shape{guided ? 4 : 2, scale * height, scale * width, output.shape.back()};
        if (info.image.frames > 1) shape.insert(shape.begin() + 1, info.image.frames);
        EXPECT_EQ(output.shape, shape);
        EXPECT_EQ(checkpoint_of(other.graph), checkpoint_of(native.graph));
      }
    const Network larger = info.build({.sizes = {.height = info.image.height + side, .width = 2 * info.image.width}});
    EXPECT_EQ(larger.graph.nodes().size(), native.graph.nodes().size());
    const double pixels = static_cast<double>(larger.image.pixels()) / static_cast<double>(native.image.pixels());
    EXPECT_GT(flops_of(larger), 0.9 * pixels * flops_of(native));
    EXPECT_LT(flops_of(larger), pixels * pixels * flops_of(native));
  }
}

TEST(Networks, SayWhichSizesTheyTake) {
  const NetworkInfo& info = require_network("adm64");
  EXPECT_EQ(refusal(info, {.sizes = {.height = 64, .width = 60}}),
            "width 60: adm64 takes multiples of 8; the nearest are 56 and 64");
  EXPECT_EQ(refusal(info, {.sizes = {.height = 7}}), "height 7: adm64 takes multiples of 8; the nearest is 8");
  EXPECT_EQ(refusal(info, {.sizes = {.height = -8}}), "height -8: adm64 takes multiples of 8; the nearest is 8");
  EXPECT_EQ(refusal(require_network("digits"), {.sizes = {.height = 9}}),
            "height 9: digits takes multiples of 2; the nearest are 8 and 10");
  EXPECT_EQ(refusal(info, {.sizes = {.frames = 2}}),
            "frames 2: adm64 makes single images; networks with frames: moving-digits, svd, svd-vae");
  EXPECT_EQ(refusal(info, {.sizes = {.tokens = 7}}), "tokens 7: adm64 takes no text; networks with tokens: sd15, sdxl");
  EXPECT_EQ(refusal(info, {.sizes = {.frames = 1}}), "");
  EXPECT_NE(refusal(info, {.sizes = {.height = 65536, .width = 65536}}).find("node "), std::string::npos);
  const std::string limited =
      refusal_of([&] { return build_or_say_limit(info, {.batch = 4, .sizes = {.width = 60}}); });
  EXPECT_TRUE(!limited.empty() && limited.find("images at a time") == std::string::npos) << limited;
}

TEST(Networks, SayWhichNodeABatchIsTooLargeFor) {
  expect_parts(refusal(require_network("adm64"), {.batch = 65536, .sampling = true, .guided = true}),
               {"node timestep_embedding: timestep_embedding batch=131072"});
}

TEST(Networks, SayHowManyImagesTheyTake) {
  for (const NetworkInfo& info : denoisers()) {
    const std::string message =
        refusal_of([&] { return build_or_say_limit(info, {.batch = 1 << 20, .sampling = true, .guided = true}); });
    std::smatch found;
    ASSERT_TRUE(std::regex_search(message, found, std::regex("which takes 1 to (\\d+): "))) << message;
    const std::int64_t most = std::stoll(found[1]);
    const Network network = info.build({.batch = most, .sampling = true, .guided = true});
    EXPECT_EQ(network.graph[network.output()].elements(), 2 * most * network.image.elements()) << message;
    EXPECT_NE(refusal(info, {.batch = most + 1, .sampling = true, .guided = true}), "") << message;
  }
}

// What draws latents names a network that decodes as many channels.
TEST(Networks, ThatDrawLatentsNameTheirDecoder) {
  for (const NetworkInfo& info : all_networks()) {
    if (*info.decoder == '\0') continue;
    EXPECT_TRUE(require_network(info.decoder).decodes()) << info.name;
    EXPECT_EQ(require_network(info.decoder).image.channels, info.image.channels) << info.name;
    EXPECT_STRNE(info.folder, require_network(info.decoder).folder) << info.name;
  }
  EXPECT_STREQ(require_network("sd15").decoder, "sd-vae");
}

// All that a sampling loop does not give an input is in a file, by that input's name.
TEST(Networks, ThatDrawLatentsSayWhatTheyAreTold) {
  for (const NetworkInfo& info : all_networks()) {
    std::set<std::string_view> told, inputs;
    for (const Conditioned& one : info.conditioning) told.insert(one.input);
    for (const NetworkTensor& input : info.build({}).inputs)
      if (input.kind == Kind::text || input.kind == Kind::conditioning ||
          (input.kind == Kind::image && std::string_view(input.name) != "x"))
        inputs.insert(input.name);
    EXPECT_EQ(told, inputs) << info.name;
    EXPECT_EQ(info.conditioning.empty(), *info.decoder == '\0') << info.name;
  }
}

// Latents in, pictures out. As many frames as the U-Net makes, at full size, are no problem too large. What the latents
// were multiplied by is taken back in the first product.
TEST(Networks, ThatDecodeMakePicturesOfLatents) {
  using Shape = std::vector<std::int64_t>;
  for (const auto& [name, scale] :
       {std::pair{"sd-vae", "scale=5.48"}, std::pair{"sdxl-vae", "scale=7.67"}, std::pair{"svd-vae", ""}}) {
    const NetworkInfo& info = require_network(name);
    const bool video = info.most_frames > 1;
    const Network network = info.build({.batch = 2, .sizes = {.height = 5, .width = 7, .frames = video ? 3 : 0}});
    ASSERT_EQ(network.inputs.size(), 1u);
    EXPECT_EQ(network.inputs.front().shape, video ? (Shape{2, 3, 5, 7, 4}) : (Shape{2, 5, 7, 4}));
    EXPECT_EQ(network.outputs.front().shape, video ? (Shape{2, 3, 40, 56, 3}) : (Shape{2, 40, 56, 3}));
    int heads = 0, temporal = 0;
    for (const Node& node : network.graph.nodes()) {
      heads += node.op->name == "attention";
      temporal += node.op->name == "conv3d_temporal";
    }
    EXPECT_EQ(std::pair(heads, temporal), std::pair(1, video ? 2 * (2 + 4 * 3) + 1 : 0)) << name;
    EXPECT_NE(network.graph.nodes().at(1).text.find(scale), std::string::npos) << name;
    EXPECT_NO_THROW((void)info.build({.sizes = {.frames = info.most_frames}}));
    if (video) {
      EXPECT_EQ(checkpoint_of(info.build({.sizes = {.frames = 1}}).graph), checkpoint_of(network.graph));
    } else {
      EXPECT_THROW(build_or_say_limit(info, {.sampling = true}), InvalidInput);
    }
  }
}

TEST(Networks, SayWhyTheyAreNotRunInFp16) {
  EXPECT_NO_THROW(build_or_say_limit(require_network("sd-vae"), {.dtype = DType::fp16}));
  EXPECT_NO_THROW(build_or_say_limit(require_network("sdxl-vae"), {.dtype = DType::bf16}));
  expect_parts(refusal_of([] { return build_or_say_limit(require_network("sdxl-vae"), {.dtype = DType::fp16}); }),
               {"sdxl-vae in fp16: its activations exceed"});
  EXPECT_NO_THROW(build_or_say_limit(require_network("svd"), {.sampling = true}));
}

// Weights do not depend on the text's length, and what reads it has as many keys.
TEST(Networks, ReadTextOfAnyLength) {
  const NetworkInfo& info = require_network("sd15");
  const Network native = info.build({}), other = info.build({.batch = 3, .sizes = {.tokens = 154}});
  EXPECT_EQ(checkpoint_of(other.graph), checkpoint_of(native.graph));
  EXPECT_EQ(other.require(Kind::text).shape, (std::vector<std::int64_t>{3, 154, 768}));
  int readers = 0;
  for (const Node& node : other.graph.nodes())
    if (node.op->name == "attention" && node.text.find("seq_kv=154") != std::string::npos) ++readers;
  EXPECT_EQ(readers, 16);
}

// What Stable Diffusion XL has beside the text: by diffusers' names, in numbers that are not rounded.
TEST(Networks, TakeWhatIsEmbeddedBesideTheTimestep) {
  const Network network = require_network("sdxl").build({.batch = 3, .sampling = true, .guided = true});
  const auto named = [&](const char* name) {
    return *std::find_if(network.inputs.begin(), network.inputs.end(),
                         [&](const NetworkTensor& input) { return std::string_view(input.name) == name; });
  };
  EXPECT_EQ(network.require(Kind::text).shape, (std::vector<std::int64_t>{6, 77, 2048}));
  EXPECT_EQ(named("text_embeds").shape, (std::vector<std::int64_t>{6, 1280}));
  EXPECT_EQ(named("time_ids").shape, (std::vector<std::int64_t>{6, 6}));
  EXPECT_EQ(network.graph[named("time_ids").value].dtype, DType::fp32);
}

TEST(Networks, TakeAVideoAndThePictureItMoves) {
  const NetworkInfo& info = require_network("svd");
  const Network native = info.build({}), longer = info.build({.batch = 2, .sizes = {.frames = 25}});
  EXPECT_EQ(checkpoint_of(longer.graph), checkpoint_of(native.graph));
  for (const std::size_t input : {0u, 2u})  // x, image_latents
    EXPECT_EQ(longer.inputs.at(input).shape, (std::vector<std::int64_t>{2, 25, 72, 128, 4}));
  EXPECT_EQ(longer.outputs.front().shape, (std::vector<std::int64_t>{2, 25, 72, 128, 4}));
  EXPECT_EQ(refusal(info, {.sizes = {.frames = 33}}), "frames 33: svd takes 1 to 32");
}

// ---- one more, of test code

TEST(ANewNetwork, IsOfAnyShape) {
  const NetworkInfo info = video();
  const Network network = info.build({.batch = 2, .sizes = {.height = 4, .width = 14, .frames = 7, .tokens = 11}});
  EXPECT_STREQ(network.name(), "video");
  EXPECT_EQ(network.image.elements(), 7 * 4 * 14 * 4);
  EXPECT_EQ(network.require(Kind::image).shape, (std::vector<std::int64_t>{2, 7, 4, 14, 4}));
  EXPECT_EQ(network.require(Kind::text).shape, (std::vector<std::int64_t>{2, 11, 8}));
  EXPECT_EQ(network.outputs.front().shape, (std::vector<std::int64_t>{2, 7, 4, 14, 4}));
  EXPECT_EQ(network.graph[network.output()].elements(), 2 * network.image.elements());
  EXPECT_EQ(network.level().kind, Kind::sigma);
  EXPECT_EQ(network.classes, 0);
  EXPECT_THROW((void)network.labels(), std::logic_error);
  EXPECT_EQ(info.build({}).image.frames, 3);
  EXPECT_EQ(info.build({.sampling = true, .hoisted_levels = 4}).hoisted_levels, 0)
      << "its builder knows nothing of them";
}

TEST(ANewNetwork, SaysWhatItTakes) {
  const NetworkInfo info = video();
  EXPECT_EQ(refusal(info, {.sizes = {.tokens = 78}}), "tokens 78: video takes 1 to 77");
  EXPECT_NO_THROW(build_or_say_limit(info, {}));
  for (const std::int64_t batch : {1, 3})
    EXPECT_EQ(refusal_of([&] { return build_or_say_limit(info, {.batch = batch, .sampling = true}); }),
              "video cannot be sampled yet: nothing here gives it its words");
  NetworkInfo fixed = info;
  fixed.divisor = 0;
  EXPECT_EQ(refusal(fixed, {.sizes = {.height = 6, .width = 12}}), "width 12: video takes images of 6 x 10 only");
  EXPECT_EQ(refusal(fixed, {.sizes = {.height = 6, .width = 10}}), "");
}

}  // namespace
}  // namespace noisefloor::networks
