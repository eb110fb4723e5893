// What a checkpoint's folder says: used, refused by name, or listed.
#include "bench/pipeline/checkpoint_settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "bench/pipeline/decoding.h"
#include "bench/pipeline/pipeline.h"
#include "bench/pipeline/sample_request.h"
#include "bench/sweep/suite.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

namespace fs = std::filesystem;
using Json = ConfigFile::Json;

const fs::path kHere = "tests/bench/pipeline";

// Of a diffusers pipeline, with the small U-Net of sd15 or sdxl.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::string& network = "sd15") : network_(network) {
    fs::create_directories(path() / "unet");
    fs::create_directories(path() / "scheduler");
    fs::copy_file(kHere / (network == "sd15" ? "small_unet.safetensors" : "small_sdxl.safetensors"),
                  path() / "unet/diffusion_pytorch_model.safetensors");
  }
  const fs::path& path() const { return folder_.path(); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(path() / file) << text; }
  void schedule(const ConfigFile::Json& config) const { write("scheduler/scheduler_config.json", config.dump()); }
  NetworkInfo row() const { return small_network(network_.c_str(), network_ == "sd15" ? kSmall : kSmallXl); }

  SampleArguments arguments() const {
    return {.model = {.network = network_, .weights = path().string(), .dtype = DType::fp32, .plan = "naive"},
            .conditioning = path() / "told.safetensors"};
  }
  pipeline::CheckpointSettings settings(const pipeline::GivenOptions& given = {}) const {
    return pipeline::checkpoint_settings(row(), pipeline::checkpoint_file(path()), true, given);
  }
  std::string refusal(const pipeline::GivenOptions& given = {}) const {
    return refusal_of([&] { return settings(given); });
  }

 private:
  std::string network_;
  TemporaryFolder folder_;
};

// Those of published checkpoints, as far as they say something: the rows of the networks are just that.
const Json& published(const char* what) {
  static const auto file = ConfigFile::read(kHere / "published_settings.json", "published");
  return file->settings().at(what);
}

TEST(CheckpointSettings, OfPublishedCheckpointsAreTheNetworksOwn) {
  for (const auto& [network, config] : published("schedulers").items()) {
    const CheckpointFolder folder(network);
    folder.schedule(config);
    const NetworkInfo own = folder.row();
    const CheckpointSettings settings = folder.settings();
    const auto said = [](const NetworkInfo& row) {
      return std::tuple(row.prediction, row.solver, row.schedule, row.spacing, row.offset, row.ends_noisy);
    };
    EXPECT_EQ(said(settings.row), said(own)) << network;
    const std::vector<double> found = settings.row.training_sigmas(), expected = own.training_sigmas();
    for (std::size_t t = 0; t < expected.size(); ++t) ASSERT_NEAR(found[t] / expected[t], 1, 1e-12);
    EXPECT_FALSE(settings.karras);
    EXPECT_EQ(settings.clamp, 0);
    EXPECT_TRUE(settings.warnings.empty());
  }
}

TEST(CheckpointSettings, OfPublishedNetworksAreAsTheyAreBuilt) {
  const TemporaryFolder folder;
  for (const auto& [network, config] : published("networks").items()) {
    std::ofstream(folder / "config.json") << config;
    const NetworkInfo& own = require_network(network);
    const CheckpointSettings settings = checkpoint_settings(own, folder / "weights.safetensors", false);
    EXPECT_TRUE(settings.warnings.empty()) << network;
    EXPECT_EQ(settings.row.latent_scale, own.latent_scale) << network;
    EXPECT_EQ(settings.row.image.height, own.image.height) << network;
    EXPECT_EQ(settings.row.image.frames, own.most_frames > 1 && !own.decodes() ? 25 : own.image.frames) << network;
  }
}

// Whatever would change numbers and is not used, or makes no sense, is refused with file, key, value and a way out.
TEST(CheckpointSettings, AreRefusedByName) {
  struct Wrong {
    const char *scheduler, *more;  // of its class, and what it says
    std::initializer_list<std::string_view> says;
    const char* option = nullptr;  // that stands above it
  };
  const char *const dpm = "DPMSolverMultistep", *const euler = "EulerDiscrete";
  const Wrong wrong[] = {
      {"UniPCMultistep", "", {"_class_name", "UniPCMultistepScheduler", "EulerDiscrete"}, "--sampler"},
      {"PNDM", "", {"skip_prk_steps must be true", "not there"}, "--sampler"},
      {"DDIM", "", {"clip_sample must be false"}, "--sampler clamp="},
      {dpm, R"(, "algorithm_type": "sde-dpmsolver++")", {"algorithm_type", "sde-dpmsolver++"}, "--sampler"},
      {dpm, R"(, "solver_order": 3)", {"solver_order must be 2", "is 3"}, "--sampler"},
      {dpm, R"(, "lambda_min_clipped": -5.1)", {"lambda_min_clipped", "-5.1"}},
      {euler, R"(, "use_exponential_sigmas": true)", {"use_exponential_sigmas must be false"}, "--sampler schedule="},
      {euler, R"(, "interpolation_type": "log_linear")", {"interpolation_type"}},
      {euler, R"(, "timestep_type": "continuous")", {"timestep_type must be \"discrete\""}},
      {euler, R"(, "final_sigmas_type": "sigma_min")", {"final_sigmas_type"}, "--sampler final="},
      {euler, R"(, "num_train_timesteps": 4000)", {"num_train_timesteps must be 1000", "4000"}},
      {euler, R"(, "prediction_type": "flow")", {"prediction_type must be", "\"flow\""}, "--sampler prediction="},
      {euler, R"(, "beta_start": "abc")", {"beta_start must be a number above 0", "is \"abc\""}, "betas"},
      {euler, R"(, "beta_end": 1.5)", {"beta_end must be a number", "below 1, is 1.5"}, "betas"},
      {euler, R"(, "beta_start": -Infinity)", {"beta_start", "-Infinity"}, "betas"},
      {euler, R"(, "beta_schedule": "sigmoid")", {"beta_schedule must be", "\"sigmoid\""}, "betas"},
      {euler, R"(, "trained_betas": [0.1, 0.2])", {"trained_betas must be 1000 numbers"}, "betas"},
      {euler, R"(, "timestep_spacing": 7)", {"timestep_spacing must be a text, is 7"}, "--sampler spacing="},
      {euler, R"(, "timestep_spacing": "log")", {"timestep_spacing must be", "\"log\""}, "--sampler spacing="},
      {euler,
       R"(, "steps_offset": 0.5)",
       {"steps_offset must be a whole number, 0 to 999, is 0.5"},
       "--sampler offset="},
      {euler, R"(, "use_karras_sigmas": "yes")", {"use_karras_sigmas must be true or false"}, "--sampler schedule="},
      {euler, R"(, "rescale_betas_zero_snr": 1)", {"rescale_betas_zero_snr must be true or false"}, "betas"}};
  const CheckpointFolder folder;
  for (const auto& [scheduler, more, says, option] : wrong) {
    SCOPED_TRACE(more);
    const std::string config = fmt::format(R"({{"_class_name": "{}Scheduler"{}}})", scheduler, more);
    folder.write("scheduler/scheduler_config.json", config);
    expect_parts(folder.refusal(), {"scheduler_config.json"});
    expect_parts(folder.refusal(), says);
    if (option != nullptr) {
      EXPECT_EQ(folder.refusal({option}), "") << option;
    }
  }
  for (const char* no_object : {"", "[1]", "{", R"({"_class_name": ["EulerDiscreteScheduler"]})",
                                "{\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}"}) {
    folder.write("scheduler/scheduler_config.json", no_object);
    EXPECT_NE(folder.refusal().find("scheduler_config.json"), std::string::npos) << no_object;
  }
  std::string many = R"({"_class_name": "EulerDiscreteScheduler")";
  for (int i = 0; i < 10'000; ++i) many += ", \"k" + std::to_string(i) + std::string(i == 0 ? 5'000 : 0, 'x') + "\": 1";
  folder.write("scheduler/scheduler_config.json", many + "}");
  EXPECT_LE(folder.settings().warnings.size(), 101u);
  for (const std::string& line : folder.settings().warnings) EXPECT_LE(line.size(), 300u);
  folder.write("scheduler/scheduler_config.json", "{\"a\": \"" + std::string(2 << 20, 'x') + "\"}");
  EXPECT_NE(folder.refusal().find("scheduler_config.json"), std::string::npos);
}

// What no shape of a weight tells.
TEST(CheckpointSettings, OfAnotherNetworkAreRefusedByName) {
  const CheckpointFolder folder;
  for (const auto& [config, says] :
       {std::pair{R"({"attention_head_dim": 8})", "attention_head_dim must be [2,2], as small is built"},
        std::pair{R"({"norm_num_groups": 32})", "norm_num_groups must be 8"},
        std::pair{R"({"cross_attention_dim": 768})", "cross_attention_dim must be 24"},
        std::pair{R"({"block_out_channels": [16, 32, 32]})", "block_out_channels must be [16,32]"},
        std::pair{R"({"resnet_time_scale_shift": "scale_shift"})", "resnet_time_scale_shift"},
        std::pair{R"({"class_embed_type": "timestep"})", "class_embed_type"},
        std::pair{R"({"sample_size": 9})", "sample_size"},
        std::pair{R"({"sample_size": "64"})", "sample_size must be a whole number"}}) {
    folder.write("unet/config.json", config);
    expect_parts(folder.refusal(), {"unet/config.json", says});
  }
  folder.write("unet/config.json", R"({"_class_name": "UNet2DConditionModel", "attention_head_dim": 2, "dropout": 0.1,
      "block_out_channels": [16, 32], "norm_eps": 1e-05, "class_embed_type": null, "sample_size": [16, 24],
      "a_new_one": 3, "another": null})");
  const CheckpointSettings settings = folder.settings();
  EXPECT_EQ(settings.row.image.height, 16);
  EXPECT_EQ(settings.row.image.width, 24);
  ASSERT_EQ(settings.warnings.size(), 1u);
  EXPECT_NE(settings.warnings[0].find("a_new_one 3"), std::string::npos) << settings.warnings[0];
  EXPECT_EQ(settings.ignored.size(), 2u);  // dropout, another
}

// model_index.json names the class that diffusers makes; of DDPM and Heun, x0 is clipped as they clip it.
TEST(CheckpointSettings, AClassIsThatOfThePipeline) {
  const CheckpointFolder folder;
  folder.schedule({{"_class_name", "PNDMScheduler"}, {"clip_sample_range", 3.0}});
  folder.write("model_index.json", R"({"scheduler": ["diffusers", "DDPMScheduler"]})");
  EXPECT_EQ(folder.settings().row.solver, sampler_step::Solver::ddpm);
  EXPECT_EQ(folder.settings().clamp, 3);
  EXPECT_EQ(folder.settings({"--sampler clamp="}).clamp, 0);
  folder.write("model_index.json", R"({"scheduler": "DDPMScheduler"})");
  EXPECT_NE(folder.refusal().find("model_index.json: scheduler must be a list"), std::string::npos);
}

// Of zero terminal SNR a predictor of noise is told nothing.
TEST(CheckpointSettings, NoiseIsNotPredictedWhereThereIsNoSignal) {
  const CheckpointFolder folder;
  folder.schedule({{"_class_name", "EulerDiscreteScheduler"}, {"rescale_betas_zero_snr", true}});
  SampleArguments arguments = folder.arguments();
  EXPECT_THROW(SampleRequest(arguments, folder.row()), InvalidInput);
  arguments.prediction = sampler_step::Prediction::v;
  EXPECT_NEAR(SampleRequest(arguments, folder.row()).steps.front().sigma, 4096, 1);
  arguments = folder.arguments();
  arguments.schedule = sampler_step::Schedule::scaled_linear;
  EXPECT_LT(SampleRequest(arguments, folder.row()).steps.front().sigma, 20);
}

TEST(CheckpointSettings, AnOptionStandsAboveTheFolder) {
  const CheckpointFolder folder("sdxl");
  folder.schedule({{"_class_name", "EulerDiscreteScheduler"},
                   {"prediction_type", "v_prediction"},
                   {"beta_end", 0.03},
                   {"timestep_spacing", "trailing"}});
  SampleArguments arguments = folder.arguments();
  const SampleRequest as_folder_says(arguments, folder.row());
  EXPECT_EQ(as_folder_says.row().prediction, sampler_step::Prediction::v);
  EXPECT_EQ(as_folder_says.options.spacing, sampler_step::Spacing::trailing);
  EXPECT_EQ(as_folder_says.options.schedule, sampler_step::Schedule::linear);
  arguments.prediction = sampler_step::Prediction::noise;
  arguments.spacing = sampler_step::Spacing::leading;
  arguments.schedule = sampler_step::Schedule::scaled_linear;
  arguments.sampler = sampler_step::Solver::ddim;
  const SampleRequest as_asked(arguments, folder.row());
  EXPECT_EQ(as_asked.row().prediction, sampler_step::Prediction::noise);
  EXPECT_EQ(as_asked.options.spacing, sampler_step::Spacing::leading);
  EXPECT_EQ(as_asked.options.schedule, sampler_step::Schedule::scaled_linear);
  EXPECT_EQ(as_asked.options.solver, sampler_step::Solver::ddim);
  EXPECT_EQ(as_asked.row().training_sigmas(), folder.row().training_sigmas());
}

// A null that is said is not a key that is not there: for Python it is off, where it means anything.
TEST(CheckpointSettings, NullIsOffOrRefused) {
  const CheckpointFolder folder;
  folder.schedule({{"_class_name", "DDIMScheduler"}, {"clip_sample", nullptr}, {"set_alpha_to_one", nullptr}});
  EXPECT_EQ(folder.refusal(), "");
  EXPECT_TRUE(folder.settings().row.ends_noisy);
  folder.schedule({{"_class_name", "DDPMScheduler"}, {"clip_sample", nullptr}});
  EXPECT_EQ(folder.settings().clamp, 0);
  folder.schedule({{"_class_name", "DDPMScheduler"}, {"prediction_type", nullptr}});
  EXPECT_NE(folder.refusal().find("prediction_type"), std::string::npos);
  folder.schedule({{"_class_name", "EulerDiscreteScheduler"}});
  folder.write("unet/config.json", R"({"flip_sin_to_cos": null})");
  EXPECT_NE(folder.refusal().find("flip_sin_to_cos must be true"), std::string::npos);
}

// With --sampler a class that no sampler is says what it says, and nothing by defaults that are not known here.
TEST(CheckpointSettings, OfAClassOfOthersNothingIsMadeUp) {
  const CheckpointFolder folder;
  folder.schedule({{"_class_name", "LCMScheduler"}, {"timestep_scaling", 10.0}, {"prediction_type", "v_prediction"}});
  EXPECT_NE(folder.refusal().find("--sampler"), std::string::npos);
  const NetworkInfo own = folder.row(), row = folder.settings({"--sampler"}).row;
  EXPECT_EQ(row.prediction, sampler_step::Prediction::v);
  EXPECT_EQ(row.training_sigmas(), own.training_sigmas());
  EXPECT_EQ(row.offset, own.offset);
  EXPECT_EQ(row.ends_noisy, own.ends_noisy);
  EXPECT_TRUE(folder.settings({"--sampler"}).warnings.empty());
}

// A file that cannot be reached is not one that is not there, and settings lie where links lead.
TEST(CheckpointSettings, LinksAreFollowed) {
  const CheckpointFolder folder;
  const fs::path scheduler = folder.path() / "scheduler/scheduler_config.json";
  for (const char* target : {"../gone.json", "scheduler_config.json"}) {
    fs::create_symlink(target, scheduler);
    EXPECT_NE(folder.refusal().find("scheduler_config.json"), std::string::npos) << target;
    fs::remove(scheduler);
  }
  folder.schedule({{"_class_name", "EulerDiscreteScheduler"}, {"prediction_type", "v_prediction"}});
  const TemporaryFolder elsewhere;
  fs::create_directory_symlink(fs::absolute(folder.path() / "unet"), elsewhere / "latest");
  fs::create_symlink(fs::absolute(checkpoint_file(folder.path())), elsewhere / "latest.safetensors");
  for (const fs::path& weights : {elsewhere / "latest", elsewhere / "latest.safetensors"})
    EXPECT_EQ(checkpoint_settings(folder.row(), checkpoint_file(weights), true).row.prediction,
              sampler_step::Prediction::v)
        << weights;
}

TEST(CheckpointSettings, FramesThatNobodyTakesAreOverridden) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << R"({"num_frames": 48})";
  const auto read = [&](const GivenOptions& given) {
    return checkpoint_settings(require_network("svd"), folder / "weights.safetensors", false, given).row.image.frames;
  };
  EXPECT_THROW(read({}), InvalidInput);
  EXPECT_EQ(read({"--size frames="}), require_network("svd").image.frames);
}

TEST(CheckpointSettings, ADecoderTakesItsScale) {
  const TemporaryFolder folder;
  fs::copy_file(kHere / "small_vae.safetensors", folder / "diffusion_pytorch_model.safetensors");
  const auto read = [&](const std::string& text) {
    std::ofstream(folder / "config.json") << text;
    return checkpoint_settings(small_decoder(5, 7), folder / "diffusion_pytorch_model.safetensors", false);
  };
  EXPECT_EQ(read(R"({"scaling_factor": 0.5, "force_upcast": true})").row.latent_scale, 0.5);
  EXPECT_TRUE(read(R"({"scaling_factor": 0.5, "force_upcast": true})").upcast);
  EXPECT_EQ(read("{}").row.latent_scale, 0.18215);
  for (const char* wrong : {R"({"scaling_factor": 0})", R"({"scaling_factor": true})", R"({"shift_factor": 0.1})",
                            R"({"latents_mean": [0, 0, 0, 1]})", R"({"use_post_quant_conv": false})",
                            R"({"norm_num_groups": 32})", R"({"force_upcast": 1})"})
    EXPECT_THROW(read(wrong), InvalidInput) << wrong;
  (void)read(R"({"scaling_factor": 0.5})");
  const auto decoded = [&](const std::string& weights, float times) {
    const NetworkInfo row = small_decoder(5, 7);
    const auto platform = make_host_platform();
    const ModelRequest request{.network = "", .weights = weights, .dtype = DType::fp32, .plan = "naive"};
    std::vector<float> latents(static_cast<std::size_t>(row.image.elements()), times);
    for (std::size_t i = 0; i < latents.size(); i += 3) latents[i] *= -2;
    return Decoding(row, request, row.image, {*platform, suite()}).run(latents, 0);
  };
  EXPECT_LE(distance(decoded((folder / "diffusion_pytorch_model.safetensors").string(), 0.5f),
                     decoded((kHere / "small_vae.safetensors").string(), 0.18215f)),
            1e-5);
}

// ---- latents drawn as a folder says, held to those of diffusers' loops over it (checkpoint_settings.py)

// Latents: there is no decoder of such a size.
std::vector<float> drawn_as_folder_says(const CheckpointFolder& folder, const SampleArguments& asked) {
  const bool xl = asked.model.network == "sdxl";
  write_told(asked.conditioning,
             SafetensorsFile(kHere / (xl ? "small_sdxl_pipeline.safetensors" : "small_pipeline.safetensors")), 1);
  NetworkInfo row = folder.row();
  row.decoder = "";
  const auto platform = make_host_platform();
  return Pipeline(SampleRequest(asked, row), {*platform, suite()}).draw().images;
}

TEST(CheckpointSettings, DrawWhatDiffusersDraws) {
  const auto file = ConfigFile::read(kHere / "checkpoint_settings.json", "cases");
  const SafetensorsFile latents(kHere / "checkpoint_settings.safetensors");
  int cases = 0;
  for (const auto& [name, one] : file->settings().items()) {
    if (!one.is_object()) continue;
    const CheckpointFolder folder(one["network"].get<std::string>());
    folder.schedule(one["scheduler"]);
    SampleArguments arguments = folder.arguments();
    arguments.steps = file->whole("steps", 0, 1, 1000);
    arguments.guidance = file->number("guidance", 0, 0, 100);
    const double error = distance(drawn_as_folder_says(folder, arguments), recorded_images(latents, name.c_str()));
    EXPECT_LE(error, 2e-5) << name;
    if (name == "sdxl-v") {  // what the folder says is what makes it so
      arguments.model.own_settings = true;
      EXPECT_GE(distance(drawn_as_folder_says(folder, arguments), recorded_images(latents, "sdxl-v")), 0.1);
    }
    ++cases;
  }
  EXPECT_EQ(cases, std::ssize(latents.tensors()));
}

}  // namespace
}  // namespace noisefloor::pipeline
