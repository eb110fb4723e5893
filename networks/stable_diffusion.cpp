#include "networks/diffusers.h"

namespace noisefloor::networks {

// Stable Diffusion 1.5 (1.1 to 1.5 are one network): Rombach et al., "High-Resolution Image Synthesis with Latent
// Diffusion Models" (CVPR 2022), by the names of diffusers' checkpoints (unet/diffusion_pytorch_model.safetensors).
NetworkInfo sd15_row() {
  // Heads are 8 at every level: what its configuration calls attention_head_dim.
  const UNet unet{.levels = {{320}, {640}, {1280}, {1280, 8, 0}}};
  return {.name = "sd15",
          .description = "Stable Diffusion 1.5's U-Net (Rombach et al. 2022), diffusers' checkpoints",
          .prediction = sampler_step::Prediction::noise,
          .image = {64, 64, 4},
          .divisor = unet.divisor(),
          .tokens = 77,
          .most_tokens = 65536,
          .parameters = 859'520'964,
          .schedule = sampler_step::Schedule::scaled_linear,
          .solver = sampler_step::Solver::pndm,  // as its checkpoints' scheduler_config.json has it all
          .steps = 50,
          .spacing = sampler_step::Spacing::leading,
          .offset = 1,
          .ends_noisy = true,
          .guidance = 7.5,
          .conditioning = {{"encoder_hidden_states", "prompt_embeds", "negative_prompt_embeds"}},
          .decoder = "sd-vae",
          .configuration = configuration_of(unet),
          .builder = [unet](const BuildOptions& options, Network& network) { build_unet(unet, options, network); }};
}

// Stable Diffusion XL's base: Podell et al., "SDXL: Improving Latent Diffusion Models for High-Resolution Image
// Synthesis" (2023), by the names of diffusers' checkpoints. Beside the text it takes the pooled embedding of its
// second encoder, and six numbers: the original's size, the crop's corner and the size asked for.
NetworkInfo sdxl_row() {
  const UNet unet{.levels = {{320, 5, 0}, {640, 10, 2}, {1280, 20, 10}},
                  .middle_transformer_blocks = 10,
                  .text_width = 2048,
                  .linear_projection = true,
                  .added = {.vector = "text_embeds", .vector_width = 1280, .numbers = "time_ids", .count = 6}};
  return {.name = "sdxl",
          .description = "Stable Diffusion XL's base U-Net (Podell et al. 2023), diffusers' checkpoints",
          .prediction = sampler_step::Prediction::noise,
          .image = {128, 128, 4},
          .divisor = unet.divisor(),
          .tokens = 77,
          .most_tokens = 65536,
          .rounding =
              2.9e-2,  // 1.25 times that of PyTorch's bf16, with weights as ours are drawn (docs/experiments/networks)
          .parameters = 2'567'463'684,
          .schedule = sampler_step::Schedule::scaled_linear,
          .solver = sampler_step::Solver::edm_euler,  // as its checkpoints' scheduler_config.json has it all
          .steps = 50,
          .spacing = sampler_step::Spacing::leading,
          .offset = 1,
          .guidance = 5,
          .conditioning = {{"encoder_hidden_states", "prompt_embeds", "negative_prompt_embeds"},
                           {"text_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds"},
                           {"time_ids", "time_ids", "time_ids"}},
          .decoder = "sdxl-vae",
          .configuration = configuration_of(unet),
          .builder = [unet](const BuildOptions& options, Network& network) { build_unet(unet, options, network); }};
}

// Stable Video Diffusion (14 frames, and 25: one network): Blattmann et al., "Stable Video Diffusion: Scaling Latent
// Video Diffusion Models to Large Datasets" (2023), by the names of diffusers' checkpoints, under EDM's
// preconditioning. It moves a picture: whose latents it takes beside the noisy ones, and whose embedding is its only
// text.
NetworkInfo svd_row() {
  const UNet unet{.levels = {{320, 5}, {640, 10}, {1280, 20}, {1280, 20, 0}},
                  .text_width = 1024,
                  .linear_projection = true,
                  .added = {.numbers = "added_time_ids", .count = 3}};
  return {
      .name = "svd",
      .description = "Stable Video Diffusion's U-Net (Blattmann et al. 2023), diffusers' checkpoints",
      .prediction = sampler_step::Prediction::v,
      .image = {72, 128, 4, 14},
      .divisor = unet.divisor(),
      .most_frames = 32,
      .parameters = 1'524'623'082,
      .schedule = sampler_step::Schedule::karras,
      .solver = sampler_step::Solver::edm_euler,  // as its checkpoints' scheduler_config.json and its pipeline have it
      .steps = 25,
      .sigma_max = 700,
      .guidance = 3,
      .first_guidance = 1,
      .conditioning = {{"encoder_hidden_states", "image_embeds", ""},
                       {"image_latents", "image_latents", ""},
                       {"added_time_ids", "added_time_ids", "added_time_ids"}},
      .decoder = "svd-vae",
      .configuration = configuration_of(unet, /*videos=*/true),
      .builder = [unet](const BuildOptions& options, Network& network) { build_video_unet(unet, options, network); }};
}

}  // namespace noisefloor::networks
