// Latents that are drawn as a checkpoint's folder says, held to those of diffusers' loops over the same folder
// (checkpoint_settings.py).
#include <gtest/gtest.h>

#include "bench/pipeline/conditioning.h"
#include "bench/pipeline/sampling.h"
#include "tests/support/checkpoint_folder.h"
#include "tests/support/recorded_tensors.h"

namespace noisefloor::pipeline {
namespace {

const std::filesystem::path kCases = "tests/bench/pipeline";

// The first picture of what the small networks are told.
void write_conditioning(const std::filesystem::path& file, const std::string& network) {
  const SafetensorsFile recorded(
      kCases / (network == "sd15" ? "small_pipeline.safetensors" : "small_sdxl_pipeline.safetensors"));
  std::vector<FileTensor> tensors;
  std::vector<std::vector<std::byte>> storage;
  for (const FileTensor& tensor : recorded.tensors()) {
    if (tensor.name == "final_latents" || tensor.name == "images" || tensor.name == "x" || tensor.name == "output")
      continue;
    storage.push_back(recorded.read(tensor));
    storage.back().resize(storage.back().size() / static_cast<std::size_t>(tensor.shape.front()));
    std::vector<std::int64_t> shape = tensor.shape;
    shape.front() = 1;
    tensors.push_back({tensor.name, tensor.dtype, shape, storage.back()});
  }
  write_safetensors(file, tensors);
}

std::vector<float> drawn_as_folder_says(const CheckpointFolder& folder, SampleArguments arguments) {
  (void)resolve_options(arguments, folder.row());
  OpenNetwork open = build_network(*arguments.settings, arguments.network, {.sampling = true, .guided = true});
  write_conditioning(folder.path() / "told.safetensors", arguments.network.network);
  Conditioning conditioning(folder.path() / "told.safetensors", arguments.row(), true);
  conditioning.read(*open.network, 1);
  start_network(open, arguments.network);
  conditioning.set(*open.platform, *open.executor, 0);
  Sampler sampler(*open.platform, *open.executor, arguments.options);
  sampler.begin_from(conditioning.noise(*open.network, 0));
  return sampler.run({}, 0);
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
      arguments.network.settings = "own";
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
