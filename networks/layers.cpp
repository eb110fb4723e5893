#include "networks/layers.h"

#include <fmt/format.h>

#include <string_view>

namespace noisefloor::networks {

namespace {

// What a problem has beside its sizes, and the tensor of that name.
void add_if(const char* name, const std::optional<ValueId>& value, std::string& problem, Bindings& inputs) {
  if (!value) return;
  problem += fmt::format(",{}=1", name);
  inputs[name] = *value;
}

// Gain and shift of a norm, and what it norms.
Bindings normed(Graph& graph, const std::string& name, ValueId x, std::int64_t channels, DType dtype) {
  const ValueId gamma = graph.weight({name + ".weight", {channels}}, {channels}, dtype);
  return {{"x", x}, {"gamma", gamma}, {"beta", graph.weight({name + ".bias", {channels}}, {channels}, dtype)}};
}

}  // namespace

ValueId Layers::add(const std::string& name, const char* op, const std::string& problem, const Bindings& inputs) {
  return graph_->add(name, op, problem, dtype_, inputs).at(0);
}

Image Layers::waves(const std::string& name, ValueId t, std::int64_t channels, const char* order) {
  const std::string problem = fmt::format("batch={},channels={},{}", batch_, channels, order);
  return {add(name, "timestep_embedding", problem, {{"t", t}}), 1, 1, channels};
}

Image Layers::conv(const std::string& name, const Image& x, std::int64_t cout, int kernel, const ConvOptions& options) {
  std::string problem = fmt::format("n={},h={},w={},cin={},cout={},kernel={},pad={},gain={},act={}", batch_, x.height,
                                    x.width, x.channels, cout, kernel, kernel / 2, options.gain, options.act);
  Bindings inputs{{"x", x.id}};
  const std::int64_t file_cout = options.file_cout == 0 ? cout : options.file_cout;
  WeightSource w{name + ".weight", {file_cout, x.channels, kernel, kernel}, WeightSource::Layout::ohwi, cout};
  w.times = options.times;
  inputs["w"] = graph_->weight(std::move(w), {cout, kernel, kernel, x.channels}, dtype_);
  inputs["bias"] = graph_->weight({name + ".bias", {file_cout}, WeightSource::Layout::plain, cout}, {cout}, dtype_);
  if (options.stride != 1) problem += fmt::format(",stride={}", options.stride);
  if (options.upsample) problem += ",upsample=1";
  add_if("image_shift", options.image_shift, problem, inputs);
  add_if("residual", options.residual, problem, inputs);
  const ValueId y = add(name, "conv2d", problem, inputs);
  const auto extent = [&](std::int64_t in) {  // as padded by half the kernel
    return ((options.upsample ? 2 * in : in) + options.stride - 1) / options.stride;
  };
  return {y, extent(x.height), extent(x.width), cout};
}

Image Layers::conv_transpose(const std::string& name, const Image& x, std::int64_t cout) {
  WeightSource w{name + ".weight", {x.channels, cout, 2, 2}, WeightSource::Layout::transposed};
  const ValueId y =
      add(name, "conv_transpose2d",
          fmt::format("n={},h={},w={},cin={},cout={},kernel=2", batch_, x.height, x.width, x.channels, cout),
          {{"x", x.id},
           {"w", graph_->weight(std::move(w), {cout, 2, 2, x.channels}, dtype_)},
           {"bias", graph_->weight({name + ".bias", {cout}}, {cout}, dtype_)}});
  return {y, 2 * x.height, 2 * x.width, cout};
}

Image Layers::norm(const std::string& name, const Image& x, const NormOptions& options) {
  const char* fusion = options.scale_shift ? "silu+ss" : options.silu ? "silu" : "none";
  Bindings inputs = normed(*graph_, name, x.id, x.channels, dtype_);
  if (options.scale_shift) inputs["scale_shift"] = *options.scale_shift;
  const ValueId y = add(name, "groupnorm",
                        fmt::format("n={},hw={},channels={},groups={},fusion={},eps={},packed={}", batch_, x.pixels(),
                                    x.channels, options.groups, fusion, options.eps, options.scale_shift ? 1 : 0),
                        inputs);
  return x.with(y);
}

Image Layers::linear(const std::string& name, const Image& x, std::int64_t n, const LinearOptions& options) {
  const std::int64_t m = batch_ * x.pixels(), k = x.channels;
  const bool transposed = options.layout == WeightSource::Layout::transposed;
  const std::int64_t rows = std::string_view(options.act) == "geglu" ? 2 * n : n;  // of the weight: values, then gates
  const std::int64_t part = rows / static_cast<std::int64_t>(1 + options.below.size());
  std::vector<std::int64_t> file = transposed ? std::vector<std::int64_t>{k, part} : std::vector<std::int64_t>{part, k};
  file.insert(file.end(), options.file_shape_suffix.begin(), options.file_shape_suffix.end());
  WeightSource source{name + ".weight", file, options.layout};
  WeightSource bias{name + ".bias", {part}};
  if (options.layout == WeightSource::Layout::hd3_to_3hd) bias.layout = options.layout;
  for (const std::string& module : options.below) {
    source.below.push_back({module + ".weight", part});
    bias.below.push_back({module + ".bias", part});
  }
  source.share = bias.share = options.share;
  Bindings inputs{{"a", x.id}};
  inputs["b"] = graph_->weight(std::move(source), {rows, k}, dtype_);
  if (options.bias) inputs["bias"] = graph_->weight(std::move(bias), {rows}, dtype_);
  std::string problem =
      fmt::format("m={},n={},k={},act={},scale={},bias={}", m, n, k, options.act, options.scale, options.bias ? 1 : 0);
  add_if("residual", options.residual, problem, inputs);
  add_if("image_shift", options.image_shift, problem, inputs);
  if (options.image_shift) problem += fmt::format(",images={}", (*graph_)[*options.image_shift].shape.front());
  if (options.blend) {
    add_if("blend", options.blend->with, problem, inputs);
    WeightSource share{options.blend->factor, {1}};
    share.sigmoid = true;
    inputs["share"] = graph_->weight(std::move(share), {1}, DType::fp32);
  }
  return {add(name, "gemm", problem, inputs), x.height, x.width, n};
}

Image Layers::attention(const std::string& name, const Image& qkv, std::int64_t heads, std::int64_t frames) {
  const std::int64_t pixels = qkv.pixels(), channels = qkv.channels / 3;
  const std::string sizes = frames > 0 ? fmt::format("batch={},frames={},hw={}", batch_ / frames, frames, pixels)
                                       : fmt::format("batch={},seq_q={},seq_kv={}", batch_, pixels, pixels);
  const ValueId y =
      add(name, frames > 0 ? "temporal_attention" : "attention",
          fmt::format("{},heads={},dim={},layout=packed_3hd", sizes, heads, channels / heads), {{"qkv", qkv.id}});
  return {y, qkv.height, qkv.width, channels};
}

Image Layers::attention(const std::string& name, const Image& q, const Image& k, const Image& v, std::int64_t heads) {
  return q.with(add(name, "attention",
                    fmt::format("batch={},heads={},seq_q={},seq_kv={},dim={}", batch_, heads, q.pixels(), k.pixels(),
                                q.channels / heads),
                    {{"q", q.id}, {"k", k.id}, {"v", v.id}}));
}

Image Layers::temporal_conv(const std::string& name, const Image& x, std::int64_t cout, std::int64_t frames,
                            const TemporalOptions& options) {
  constexpr std::int64_t kTaps = 3;
  WeightSource w{name + ".weight", {cout, x.channels, kTaps, 1, 1}, WeightSource::Layout::ohwi},
      bias{name + ".bias", {cout}};
  w.share = bias.share = options.share;
  Bindings inputs{{"x", x.id},
                  {"w", graph_->weight(std::move(w), {cout, kTaps, x.channels}, dtype_)},
                  {"bias", graph_->weight(std::move(bias), {cout}, dtype_)}};
  std::string problem =
      fmt::format("batch={},frames={},hw={},cin={},cout={}", batch_, frames, x.pixels() / frames, x.channels, cout);
  add_if("image_shift", options.image_shift, problem, inputs);
  add_if("residual", options.residual, problem, inputs);
  return {add(name, "conv3d_temporal", problem, inputs), x.height, x.width, cout};
}

// A convolution of zeros, whose epilogue has both: no op adds one row to many.
Image Layers::shifted(const std::string& name, const Image& x, ValueId shift) {
  constexpr std::int64_t kZeros = 8;  // channels: what a vector load takes
  const ValueId zeros = graph_->constant("zeros", {batch_, x.height, x.width, kZeros}, dtype_, 1);
  const ValueId w = graph_->constant("zero weight", {x.channels, 1, 1, kZeros}, dtype_, 1);
  return x.with(add(name, "conv2d",
                    fmt::format("n={},h={},w={},cin={},cout={},kernel=1,pad=0,bias=0,image_shift=1,residual=1", batch_,
                                x.height, x.width, kZeros, x.channels),
                    {{"x", zeros}, {"w", w}, {"image_shift", shift}, {"residual", x.id}}));
}

Image Layers::repeated(const std::string& name, const Image& x, std::int64_t times) {
  Image power{x.id, 1, 1, x.pixels() * x.channels};
  std::optional<Image> all;
  for (std::int64_t left = times;;) {
    if (left % 2 == 1) all = all ? concat(name, *all, power) : power;
    left /= 2;
    if (left == 0) return x.with(all->id);
    power = concat(name, power, power);
  }
}

Image Layers::layer_norm(const std::string& name, const Image& x) {
  return x.with(add(name, "layernorm", fmt::format("rows={},channels={}", batch_ * x.pixels(), x.channels),
                    normed(*graph_, name, x.id, x.channels, dtype_)));
}

Image Layers::silu(const std::string& name, const Image& rows) {
  const std::string problem = fmt::format("op=silu,n={},hw=1,channels={}", batch_, rows.channels);
  return rows.with(add(name, "elementwise", problem, {{"x", rows.id}}));
}

Image Layers::channels_first_and_back(const std::string& name, const Image& x) {
  Image copy = x;
  for (const char* operation : {"nhwc_to_nchw", "nchw_to_nhwc"})
    copy.id =
        add(name, "elementwise", fmt::format("op={},n={},hw={},channels={}", operation, batch_, x.pixels(), x.channels),
            {{"x", copy.id}});
  return copy;
}

ValueId Layers::resample(const std::string& name, const char* operation, const Image& x, const std::string& more,
                         const Bindings& also) {
  Bindings inputs{{"x", x.id}};
  inputs.insert(also.begin(), also.end());
  return add(name, "resample",
             fmt::format("op={},n={},h={},w={},channels={}{}", operation, batch_, x.height, x.width, x.channels, more),
             inputs);
}

Image Layers::upsample(const std::string& name, const Image& x) {
  return {resample(name, "nearest_up2", x), 2 * x.height, 2 * x.width, x.channels};
}

Image Layers::downsample(const std::string& name, const Image& x) {
  return {resample(name, "average_down2", x), x.height / 2, x.width / 2, x.channels};
}

Image Layers::concat(const std::string& name, const Image& x, const Image& skip) {
  const std::string more = fmt::format(",skip_channels={}", skip.channels);
  return {resample(name, "concat", x, more, {{"skip", skip.id}}), x.height, x.width, x.channels + skip.channels};
}

Image Layers::kept(const Image& x) {
  kept_.push_back(x);
  return x;
}

Image Layers::join(const std::string& name, const Image& below) {
  below_.push_back(below.id);
  const Image skip = kept_.back();
  kept_.pop_back();
  return concat(name, below, skip);
}

ValueId Layers::cast(const std::string& name, ValueId x, DType to) {
  const DType from = graph()[x].dtype;
  if (from == to) return x;
  const std::int64_t inner = graph()[x].elements() / batch_;
  const std::string problem = fmt::format("op=cast,n={},hw={},channels=1,to={}", batch_, inner, to_string(to));
  return graph_->add(name, "elementwise", problem, from, {{"x", x}}).at(0);
}

}  // namespace noisefloor::networks
