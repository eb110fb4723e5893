// The decoder of latents, and a whole picture of Stable Diffusion (sampling loop, guidance, decoder), held to
// diffusers' own at a reduced width, and so SDXL's and Stable Video Diffusion's. diffusers_pipeline.py wrote the files.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/pipeline.h"
#include "tests/support/on_host.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

const std::filesystem::path kDecoder = "tests/bench/pipeline/small_vae.safetensors",
                            kUnet = "tests/bench/pipeline/small_unet.safetensors",
                            kXl = "tests/bench/pipeline/small_sdxl.safetensors",
                            kXlPipeline = "tests/bench/pipeline/small_sdxl_pipeline.safetensors";

const SafetensorsFile& recorded_pipeline() {
  static const SafetensorsFile file("tests/bench/pipeline/small_pipeline.safetensors");
  return file;
}

// Of pictures of latents of two images.
std::vector<float> decoded(const std::vector<float>& latents, std::int64_t height, std::int64_t width, DType dtype,
                           bool old_names = false, const std::filesystem::path& weights = kDecoder) {
  return OnHost(small_decoder(height, width), {.batch = 2, .dtype = dtype, .old_names = old_names}, Checkpoint(weights))
      .call(latents);
}

TEST(DiffusersPipeline, TheDecoderIsWhatItComputes) {
  const std::vector<float> x = recorded_images(recorded_pipeline(), "x");
  for (const auto& [dtype, limit] : {std::pair{DType::fp32, 1e-5}, std::pair{DType::bf16, 1e-2}})
    EXPECT_LE(distance(decoded(x, 5, 7, dtype), recorded_images(recorded_pipeline(), "output")), limit)
        << to_string(dtype);
}

// Files from before diffusers 0.15 name the attention's modules otherwise.
TEST(DiffusersPipeline, ADecoderOfOldNamesIsTheSame) {
  const TemporaryFolder folder;
  write_changed(kDecoder, folder / "old.safetensors", [](FileTensor& tensor, const std::vector<std::byte>&) {
    for (const auto& [now, before] : {std::pair{".to_q.", ".query."}, std::pair{".to_k.", ".key."},
                                      std::pair{".to_v.", ".value."}, std::pair{".to_out.0.", ".proj_attn."}})
      if (const std::size_t at = tensor.name.find(now); at != std::string::npos)
        tensor.name.replace(at, std::string_view(now).size(), before);
  });
  EXPECT_TRUE(Checkpoint(folder / "old.safetensors").has(require_network("sd-vae").old_weight));
  EXPECT_FALSE(Checkpoint(kDecoder).has(require_network("sd-vae").old_weight));
  const std::vector<float> x = recorded_images(recorded_pipeline(), "x");
  EXPECT_EQ(decoded(x, 5, 7, DType::fp32, true, folder / "old.safetensors"), decoded(x, 5, 7, DType::fp32));
  EXPECT_THROW(Checkpoint(folder / "old.safetensors").check(small_decoder(5, 7).build({})), InvalidInput);
}

// The encoder of a checkpoint is let pass; another tensor is not.
TEST(DiffusersPipeline, AStrayTensorOfADecoderIsNamed) {
  const NetworkInfo& info = require_network("sd-vae");
  for (const char* name : {"encoder.conv_in.weight", "quant_conv.bias"}) EXPECT_TRUE(info.lets_pass(name)) << name;
  for (const char* name : {"decoder.conv_in.odd", "post_quant_conv.odd", "my_encoder.conv_in.weight"})
    EXPECT_FALSE(info.lets_pass(name)) << name;
}

// What a file of conditioning tells, beginning with that file's noise, makes of two pictures: latents, as there is no
// decoder of such a size. Where nobody says, all is as the row has it.
Images drawn(NetworkInfo row, const SafetensorsFile& recorded, const std::filesystem::path& weights) {
  const TemporaryFolder folder;
  row.decoder = "";
  const SampleArguments asked{.model = {.network = row.name, .weights = weights, .dtype = DType::fp32, .plan = "naive"},
                              .steps = 20,
                              .count = 2,
                              .conditioning = folder / "told.safetensors"};
  write_told(asked.conditioning, recorded, asked.count);
  const auto platform = make_host_platform();
  return Pipeline(SampleRequest(asked, row), {*platform, suite()}).draw();
}

// Guided, from the same noise, 20 steps of PNDM as Stable Diffusion's checkpoints configure it.
TEST(DiffusersPipeline, APictureIsWhatItDraws) {
  const Images found = drawn(small_network("sd15", kSmall), recorded_pipeline(), kUnet);
  EXPECT_EQ(found.noise, recorded_images(recorded_pipeline(), "latents"));
  EXPECT_LE(distance(found.images, recorded_images(recorded_pipeline(), "final_latents")), 1e-3);
  EXPECT_LE(distance(decoded(found.images, 8, 12, DType::fp32), recorded_images(recorded_pipeline(), "images")), 1e-3);
}

// Euler over the timesteps, two pooled texts and sizes.
TEST(DiffusersPipeline, APictureOfXlIsWhatItDraws) {
  const SafetensorsFile recorded(kXlPipeline);
  EXPECT_LE(distance(drawn(small_network("sdxl", kSmallXl), recorded, kXl).images,
                     recorded_images(recorded, "final_latents")),
            1e-3);
}

// Euler over EDM's levels, guidance that grows from frame to frame, and a decoder of two frames at a time.
TEST(DiffusersPipeline, AVideoIsWhatItDraws) {
  const SafetensorsFile recorded("tests/bench/pipeline/small_svd_pipeline.safetensors");
  const TemporaryFolder folder;
  const NetworkInfo unet = small_network("svd", kSmallSvd), decoder = small_video_decoder();
  write_weights_by_rule(folder / "unet.safetensors", unet.build({}).graph);
  write_weights_by_rule(folder / "vae.safetensors", decoder.build({}).graph);
  const std::vector<float> latents = drawn(unet, recorded, folder / "unet.safetensors").images;
  EXPECT_LE(distance(latents, recorded_images(recorded, "final_latents")), 1e-3);
  const auto platform = make_host_platform();
  const ModelRequest request{
      .network = "", .weights = folder / "vae.safetensors", .dtype = DType::fp32, .plan = "naive"};
  Decoding decoding(decoder, request, decoder.image, {*platform, suite()}, 2);
  EXPECT_LE(distance(decoding.run(latents, 0), recorded_images(recorded, "images")), 1e-3);
}

}  // namespace
}  // namespace noisefloor::pipeline
