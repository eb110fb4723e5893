// Stable Diffusion XL's base: Podell et al., "SDXL: Improving Latent Diffusion Models for High-Resolution Image
// Synthesis" (2023), by the names of diffusers' checkpoints. Beside the text it takes the pooled embedding of its
// second encoder, and six numbers: the original's size, the crop's corner and the size asked for.
#include "networks/unet.h"

namespace noisefloor::networks {

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

}  // namespace noisefloor::networks
