// The networks of diffusers' pipelines by the settings of their config.json.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "networks/diffusers.h"

namespace noisefloor::networks {
namespace {

std::string array_of(const std::vector<std::string>& items) {
  return fmt::format("[{}]", fmt::join(items, ", "));
}

template <class Item, class Of>
std::string each(const std::vector<Item>& items, const Of& of) {
  std::vector<std::string> texts;
  for (const Item& item : items) texts.push_back(of(item));
  return array_of(texts);
}

std::string quoted(const std::string& text) {
  return fmt::format("\"{}\"", text);
}

// Of every U-Net of images that is built here.
constexpr std::pair<const char*, const char*> kAllAlike[] = {
    {"mid_block_type", "\"UNetMidBlock2DCrossAttn\""},
    {"act_fn", "\"silu\""},
    {"norm_eps", "1e-5"},
    {"flip_sin_to_cos", "true"},
    {"freq_shift", "0"},
    {"downsample_padding", "1"},
    {"mid_block_scale_factor", "1"},
    {"resnet_time_scale_shift", "\"default\""},
    {"resnet_out_scale_factor", "1"},
    {"time_embedding_type", "\"positional\""},
    {"attention_type", "\"default\""},
    {"conv_in_kernel", "3"},
    {"conv_out_kernel", "3"},
    {"center_input_sample", "null"},
    {"only_cross_attention", "null"},
    {"reverse_transformer_layers_per_block", "null"},
    {"encoder_hid_dim", "null"},
    {"encoder_hid_dim_type", "null"},
    {"num_attention_heads", "null"},
    {"dual_cross_attention", "null"},
    {"class_embed_type", "null"},
    {"num_class_embeds", "null"},
    {"resnet_skip_time_act", "null"},
    {"time_embedding_dim", "null"},
    {"time_embedding_act_fn", "null"},
    {"timestep_post_act", "null"},
    {"time_cond_proj_dim", "null"},
    {"class_embeddings_concat", "null"},
    {"mid_block_only_cross_attention", "null"},
    {"cross_attention_norm", "null"},
};

}  // namespace

std::vector<ConfiguredAs> configuration_of(const UNet& unet, bool videos) {
  using Level = UNet::Level;
  const std::vector<Level> up(unet.levels.rbegin(), unet.levels.rend());
  const char* const kind = videos ? "SpatioTemporal" : "2D";
  const auto blocks = [&](const std::vector<Level>& levels, const char* way) {
    return each(levels, [&](const Level& level) {
      return quoted(fmt::format("{}{}Block{}", level.transformer_blocks > 0 ? "CrossAttn" : "", way, kind));
    });
  };
  // A level without transformers may say anything of them, but for the last, which the middle follows.
  const auto of_transformers = [&](const auto& of) {
    std::string text = "[";
    for (std::size_t i = 0; i < unet.levels.size(); ++i) {
      const bool last = i + 1 == unet.levels.size();
      text += unet.levels[i].transformer_blocks > 0 || last ? std::to_string(of(unet.levels[i], last)) : "null";
      text += last ? "]" : ", ";
    }
    return text;
  };
  const UNet::Added& added = unet.added;
  const bool adds = added.count > 0;
  std::vector<ConfiguredAs> settings{
      {"_class_name", videos ? "\"UNetSpatioTemporalConditionModel\"" : "\"UNet2DConditionModel\""},
      {"in_channels", videos ? "8" : "4"},
      {"out_channels", "4"},
      {"block_out_channels", each(unet.levels, [](const Level& level) { return std::to_string(level.channels); })},
      {"down_block_types", blocks(unet.levels, "Down")},
      {"up_block_types", blocks(up, "Up")},
      {"layers_per_block", std::to_string(unet.blocks)},
      {"cross_attention_dim", std::to_string(unet.text_width)},
      {"transformer_layers_per_block", of_transformers([&](const Level& level, bool last) {
         return last ? unet.middle_transformer_blocks : level.transformer_blocks;
       })},
      {videos ? "num_attention_heads" : "attention_head_dim",
       of_transformers([](const Level& level, bool) { return level.heads; })},
      {"addition_time_embed_dim", adds ? std::to_string(added.width) : "null"},
      {"projection_class_embeddings_input_dim",
       adds ? std::to_string(added.vector_width + added.count * added.width) : "null"},
  };
  if (videos) return settings;
  settings.push_back({"norm_num_groups", std::to_string(unet.groups)});
  settings.push_back({"use_linear_projection", unet.linear_projection ? "true" : "false"});
  settings.push_back({"addition_embed_type", adds ? "\"text_time\"" : "null"});
  for (const auto& [key, value] : kAllAlike) settings.push_back({key, value});
  return settings;
}

std::vector<ConfiguredAs> configuration_of(const Decoder& decoder) {
  std::vector<ConfiguredAs> settings{
      {"_class_name", decoder.temporal ? "\"AutoencoderKLTemporalDecoder\"" : "\"AutoencoderKL\""},
      {"block_out_channels", each(decoder.channels, [](std::int64_t channels) { return std::to_string(channels); })},
      {"layers_per_block", std::to_string(decoder.blocks - 1)},
      {"out_channels", "3"},
      {"latent_channels", "4"},
      {"shift_factor", "null"},
      {"latents_mean", "null"},
      {"latents_std", "null"},
  };
  if (decoder.temporal) return settings;
  const std::vector<std::string> up(decoder.channels.size(), quoted("UpDecoderBlock2D"));
  const std::vector<ConfiguredAs> more{{"norm_num_groups", std::to_string(decoder.groups)},
                                       {"up_block_types", array_of(up)},
                                       {"act_fn", "\"silu\""},
                                       {"use_post_quant_conv", "true"},
                                       {"mid_block_add_attention", "true"}};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

}  // namespace noisefloor::networks
