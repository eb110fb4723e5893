// The networks of diffusers' pipelines by the settings of their config.json.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "networks/diffusers.h"

namespace noisefloor::networks {
namespace {

using Json = nlohmann::ordered_json;

// Of every U-Net of images that is built here.
constexpr const char* kAllAlike = R"({
  "mid_block_type": "UNetMidBlock2DCrossAttn", "act_fn": "silu", "norm_eps": 1e-5, "flip_sin_to_cos": true,
  "freq_shift": 0, "downsample_padding": 1, "mid_block_scale_factor": 1, "resnet_time_scale_shift": "default",
  "resnet_out_scale_factor": 1, "time_embedding_type": "positional", "attention_type": "default", "conv_in_kernel": 3,
  "conv_out_kernel": 3, "center_input_sample": null, "only_cross_attention": null,
  "reverse_transformer_layers_per_block": null, "encoder_hid_dim": null, "encoder_hid_dim_type": null,
  "num_attention_heads": null, "dual_cross_attention": null, "class_embed_type": null, "num_class_embeds": null,
  "resnet_skip_time_act": null, "time_embedding_dim": null, "time_embedding_act_fn": null, "timestep_post_act": null,
  "time_cond_proj_dim": null, "class_embeddings_concat": null, "mid_block_only_cross_attention": null,
  "cross_attention_norm": null})";

}  // namespace

std::string configuration_of(const UNet& unet, bool videos) {
  Json channels = Json::array(), down = channels, up = channels, transformers = channels, heads = channels;
  for (const UNet::Level& level : unet.levels) {
    const bool reads = level.transformer_blocks > 0, last = &level == &unet.levels.back();
    const auto block = [&](const char* way) {
      return fmt::format("{}{}Block{}", reads ? "CrossAttn" : "", way, videos ? "SpatioTemporal" : "2D");
    };
    channels.push_back(level.channels);
    down.push_back(block("Down"));
    up.insert(up.begin(), block("Up"));
    // A level without transformers may say anything of them, but for the last, which the middle follows.
    const int blocks = last ? unet.middle_transformer_blocks : level.transformer_blocks;
    transformers.push_back(reads || last ? Json(blocks) : Json());
    heads.push_back(reads || last ? Json(level.heads) : Json());
  }
  const UNet::Added& added = unet.added;
  const bool adds = added.count > 0;
  Json settings{
      {"_class_name", videos ? "UNetSpatioTemporalConditionModel" : "UNet2DConditionModel"},
      {"in_channels", videos ? 8 : 4},
      {"out_channels", 4},
      {"block_out_channels", channels},
      {"down_block_types", down},
      {"up_block_types", up},
      {"layers_per_block", unet.blocks},
      {"cross_attention_dim", unet.text_width},
      {"transformer_layers_per_block", transformers},
      {videos ? "num_attention_heads" : "attention_head_dim", heads},
      {"addition_time_embed_dim", adds ? Json(added.width) : Json()},
      {"projection_class_embeddings_input_dim", adds ? Json(added.vector_width + added.count * added.width) : Json()}};
  if (videos) return settings.dump();
  settings["norm_num_groups"] = unet.groups;
  settings["use_linear_projection"] = unet.linear_projection;
  settings["addition_embed_type"] = adds ? Json("text_time") : Json();
  settings.update(Json::parse(kAllAlike));
  return settings.dump();
}

std::string configuration_of(const Decoder& decoder) {
  Json settings{{"_class_name", decoder.temporal ? "AutoencoderKLTemporalDecoder" : "AutoencoderKL"},
                {"block_out_channels", decoder.channels},
                {"layers_per_block", decoder.blocks - 1},
                {"out_channels", 3},
                {"latent_channels", 4}};
  for (const char* none : {"shift_factor", "latents_mean", "latents_std"}) settings[none] = Json();
  if (decoder.temporal) return settings.dump();
  settings["norm_num_groups"] = decoder.groups;
  settings["up_block_types"] = std::vector<std::string>(decoder.channels.size(), "UpDecoderBlock2D");
  settings.update(Json::parse(R"({"act_fn": "silu", "use_post_quant_conv": true, "mid_block_add_attention": true})"));
  return settings.dump();
}

}  // namespace noisefloor::networks
