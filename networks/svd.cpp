// Stable Video Diffusion (14 frames, and 25: one network): Blattmann et al., "Stable Video Diffusion: Scaling Latent
// Video Diffusion Models to Large Datasets" (2023), by the names of diffusers' checkpoints, under EDM's
// preconditioning. It moves a picture: whose latents it takes beside the noisy ones, and whose embedding is its only
// text.
#include "networks/unet.h"

namespace noisefloor::networks {

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
