// Latents that are drawn as a checkpoint's folder says, held to those of diffusers' loops over the same folder
// (checkpoint_settings.py).
#include <gtest/gtest.h>

#include "bench/pipeline/pipeline.h"
#include "bench/sweep/suite.h"
#include "tests/support/checkpoint_folder.h"
#include "tests/support/recorded_tensors.h"

namespace noisefloor::pipeline {
namespace {

const std::filesystem::path kCases = "tests/bench/pipeline";

// Latents: there is no decoder of such a size.
std::vector<float> drawn_as_folder_says(const CheckpointFolder& folder, const SampleArguments& asked) {
  const bool xl = asked.model.network == "sdxl";
  write_told(asked.conditioning,
             SafetensorsFile(kCases / (xl ? "small_sdxl_pipeline.safetensors" : "small_pipeline.safetensors")), 1);
  NetworkInfo row = folder.row();
  row.decoder = "";
  const auto platform = make_host_platform();
  return Pipeline(SampleRequest(asked, row), {*platform, suite()}).draw().images;
}

TEST(CheckpointSettings, DrawWhatDiffusersDraws) {
  const auto file = ConfigFile::read(kCases / "checkpoint_settings.json", "cases");
  const SafetensorsFile latents(kCases / "checkpoint_settings.safetensors");
  int cases = 0;
  for (const auto& [name, one] : file->settings().items()) {
    if (!one.is_object()) continue;
    const CheckpointFolder folder(one["network"].get<std::string>());
    folder.schedule(one["scheduler"]);
    SampleArguments arguments = folder.arguments();
    arguments.steps = file->whole("steps", 0, 1, 1000);
    arguments.guidance = file->number("guidance", 0, 0, 100);
    const double error =
        distance(drawn_as_folder_says(folder, arguments),
                 channels_last_of(recorded_numbers(latents, name.c_str()), 4, static_cast<std::size_t>(8 * 12)));
    EXPECT_LE(error, 2e-5) << name;
    if (name == "sdxl-v") {  // what the folder says is what makes it so
      arguments.model.own_settings = true;
      EXPECT_GE(distance(drawn_as_folder_says(folder, arguments),
                         channels_last_of(recorded_numbers(latents, "sdxl-v"), 4, 8 * 12)),
                0.1);
    }
    RecordProperty(name, std::to_string(1e6 * error) + "e-6");
    ++cases;
  }
  EXPECT_EQ(cases, std::ssize(latents.tensors()));
}

}  // namespace
}  // namespace noisefloor::pipeline
