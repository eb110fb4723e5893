// Stable Diffusion 1.5 (1.1 to 1.5 are one network): Rombach et al., "High-Resolution Image Synthesis with Latent
// Diffusion Models" (CVPR 2022), by the names of diffusers' checkpoints (unet/diffusion_pytorch_model.safetensors).
#include "networks/unet.h"

namespace noisefloor::networks {

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

}  // namespace noisefloor::networks
