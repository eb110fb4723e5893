#include "networks/training.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "kernels/core/fields.h"
#include "kernels/edm_precondition/edm_precondition.h"
#include "networks/backward.h"
#include "networks/rewrite.h"

namespace noisefloor::networks {
namespace {

using sampler_step::Prediction;

// Throws where nothing here knows a loss, or a batch, of it.
void require_trainable(const NetworkInfo& info, const TrainingOptions& options) {
  if (options.dtype != DType::bf16 && options.dtype != DType::fp32)
    throw InvalidInput(fmt::format("dtype {}: a training's is bf16 or fp32", to_string(options.dtype)));
  if (info.decodes()) throw InvalidInput(fmt::format("{} cannot be trained yet: it decodes latents", info.name));
  if (info.most_frames > 1 && options.shifted > 0)
    throw InvalidInput(
        fmt::format("--shift {}: {} is trained on videos, which stay in place", options.shifted, info.name));
  if (info.prediction != Prediction::noise && info.prediction != Prediction::x0)
    throw InvalidInput(fmt::format("{} cannot be trained yet: it predicts neither noise nor x0", info.name));
  info.require(options.dtype);
}

class StepBuilder {
 public:
  StepBuilder(const NetworkInfo& info, const TrainingOptions& options)
      : options_(options),
        edm_(info.prediction == Prediction::x0),
        forward_(info.build({.batch = micro_batch(options),
                             .dtype = options.dtype,
                             .conditional = options.conditional,
                             .merge_products = false,
                             .sizes = options.sizes})) {
    Network& network = training_.network;
    network.info = &info;
    network.batch = network.calls = forward_.batch;
    network.image = forward_.image;
    network.classes = forward_.classes;
  }

  Training build() && {
    lay_out_states();
    take_inputs();
    for (std::int64_t part = 0; part < options_.parts; ++part) add_part(part);
    training_.gradients = sum_;
    update();
    return std::move(training_);
  }

 private:
  // Rounded up: of any batch a limit is looked for.
  static std::int64_t micro_batch(const TrainingOptions& options) {
    const std::int64_t parts = options.devices * options.parts;
    return (options.batch + parts - 1) / parts;
  }

  Graph& graph() { return training_.network.graph; }

  // Gains and shifts of norms, which are read as they are trained: fp32. Copies of 16 bits would not move for tens of
  // steps, since a gain near 1 is off by more than those move it.
  std::set<ValueId> affine_of_norms() const {
    std::set<ValueId> found;
    for (const Node& node : forward_.graph.nodes())
      if (node.op->name == std::string_view("groupnorm"))
        for (const char* name : {"gamma", "beta"}) found.insert(node.value(name));
    return found;
  }

  void lay_out_states() {
    const std::vector<Value>& values = forward_.graph.values();
    std::int64_t elements = 0;
    std::map<ValueId, std::int64_t> first;  // of each weight
    const auto lay_out = [&](const auto& wanted) {
      std::vector<ValueId> found;
      for (ValueId id = 0; id < values.size(); ++id) {
        if (!wanted(values[id])) continue;
        found.push_back(id);
        first[id] = elements;
        elements += (values[id].elements() + kParameterStep - 1) / kParameterStep * kParameterStep;
      }
      return found;
    };
    std::set<std::string> shares;
    const auto weights = lay_out([&](const Value& value) {
      if (value.kind != Value::Kind::weight) return false;
      require_plain(value);
      if (value.source->share) shares.insert(value.source->share->of);
      return true;
    });
    const auto factors =
        lay_out([&](const Value& value) { return value.kind == Value::Kind::unread && shares.contains(value.name); });
    const auto state = [&](const char* name, DType dtype) { return graph().state(name, {elements}, dtype); };
    training_.parameters = state("parameters", DType::fp32);
    training_.m = state("m", DType::fp32);
    training_.v = state("v", DType::fp32);
    sum_ = state("gradients", DType::fp32);
    if (options_.ema) training_.ema = state("ema", DType::fp32);
    if (options_.dtype != DType::fp32) training_.copies = state("copies", options_.dtype);
    const auto part = [&](ValueId of, ValueId weight) {
      return graph().weight_part(of, *values[weight].source, first.at(weight), values[weight].shape);
    };
    for (const ValueId factor : factors) training_.factors.push_back(part(training_.parameters, factor));
    const std::set<ValueId> affine = affine_of_norms();
    for (const ValueId weight : weights) {
      training_.slices.push_back(part(training_.parameters, weight));
      if (training_.ema) part(*training_.ema, weight);
      const bool copied = training_.copies && !affine.contains(weight);
      const ValueId read = copies_[weight] = copied ? part(*training_.copies, weight) : training_.slices.back();
      gradients_[read] = graph().part(sum_, values[weight].name + ".gradient", first.at(weight), values[weight].shape);
    }
    if (options_.parts == 1) return;
    spare_ = state("gradients.sum", DType::fp32);
    of_a_part_ = state("gradients.of_a_part", DType::fp32);
    for (const auto& [read, gradient] : gradients_) {
      const Value value = graph()[gradient];
      later_gradients_[read] = graph().part(of_a_part_, value.name, value.part->first, value.shape);
    }
  }

  // A micro-batch from its images to its gradients, and those to the sum of the ones before.
  void add_part(std::int64_t part) {
    std::erase_if(copies_, [&](const auto& copy) {  // what weights and constants are not
      const Value::Kind kind = forward_.graph[copy.first].kind;
      return kind == Value::Kind::activation || kind == Value::Kind::input;
    });
    draw_batch(part);
    for (const Node& node : forward_.graph.nodes()) copy(node);
    const ValueId gradient = take_loss();
    const std::size_t backward = graph().nodes().size();
    Backward(graph(), part == 0 ? gradients_ : later_gradients_).run(prediction_, gradient);
    if (options_.recompute) recompute(training_.network, backward);
    if (part == 0) return;
    graph().add("gradients.sum", "elementwise",
                fmt::format("op=add,n=1,hw={},channels={}", graph()[sum_].elements() / kParameterStep, kParameterStep),
                DType::fp32, {{"a", sum_}, {"b", of_a_part_}}, {{"y", spare_}});
    std::swap(sum_, spare_);
  }

  // What is trained is a checkpoint's tensor as it is, so that it can be written as that.
  void require_plain(const Value& weight) const {
    const WeightSource& source = *weight.source;
    if (weight.dtype != options_.dtype || source.sigmoid || source.times != 1 || !source.plus.empty() ||
        source.rows != 0)
      throw InvalidInput(fmt::format("{} cannot be trained yet: its weight {} is more than a tensor of the checkpoint",
                                     forward_.name(), weight.name));
  }

  void take_inputs() {
    const auto& [height, width, channels, frames] = forward_.image;
    const auto take = [&](const char* name, NetworkTensor::Kind kind, std::vector<std::int64_t> shape,
                          std::int64_t range = 0) {
      return training_.network.take(name, kind, std::move(shape), DType::fp32, range);
    };
    using Kind = NetworkTensor::Kind;
    training_.images = take("images", Kind::image, {options_.images, frames * height, width, channels});
    if (forward_.classes > 0) training_.labels = take("labels", Kind::labels, {options_.images}, forward_.classes);
    training_.step = take("step", Kind::timesteps, {2});
    training_.rates = take("rates", Kind::sigma, {4});
  }

  void draw_batch(std::int64_t part) {
    std::vector<std::pair<ValueId, const char*>> drawn;
    for (const NetworkTensor& input : forward_.inputs) drawn.emplace_back(input.value, drawn_as(input));
    const auto& [height, width, channels, frames] = forward_.image;
    Bindings inputs{{"images", training_.images}, {"step", training_.step}};
    if (training_.labels) inputs["labels"] = *training_.labels;
    const std::string level =
        edm_ ? fmt::format("level=edm,p_mean={},p_std={}", options_.p_mean, options_.p_std)
             : fmt::format("level=ddpm,schedule={}",
                           sampler_step::kScheduleNames[static_cast<int>(forward_.info->schedule)]);
    const std::string problem = fmt::format(
        "batch={},h={},w={},channels={},classes={},dataset={},first={},seed={},{},shifted={},flipped={},unlabelled={}",
        forward_.batch, frames * height, width, channels, forward_.classes, options_.images,
        (options_.device * options_.parts + part) * forward_.batch, options_.seed, level, options_.shifted,
        options_.flipped, options_.unlabelled);
    training_.draws.push_back(graph().nodes().size());
    graph().add("batch", "training_batch", problem, options_.dtype, inputs);
    batch_ = graph().nodes().back();
    for (const auto& [input, output] : drawn) copies_[input] = batch_.value(output);
  }

  // The output of training_batch that the network takes as an input.
  const char* drawn_as(const NetworkTensor& input) const {
    using Kind = NetworkTensor::Kind;
    if (input.value == forward_.x()) return "x";
    if (input.kind == Kind::sigma || input.kind == Kind::timesteps) return "level";
    if (input.kind == Kind::labels) return "one_hot";
    throw InvalidInput(fmt::format("{} cannot be trained yet: nothing gives it its {}", forward_.name(), input.name));
  }

  // A value of the network's graph in that of the step.
  ValueId copied(ValueId id) {
    const auto [place, added] = copies_.emplace(id, 0);
    if (!added) return place->second;
    const Value& value = forward_.graph[id];
    if (value.kind == Value::Kind::constant)
      return place->second = graph().constant(value.name, value.shape, value.dtype, value.period);
    if (!value.part) throw std::logic_error(fmt::format("{} is read before it is written", value.name));
    return place->second = graph().part(copied(value.part->of), value.name, value.part->first, value.shape);
  }

  void copy(const Node& node) {
    Bindings inputs;
    std::vector<ValueId> outputs;
    for (const Node::Tensor& tensor : node.tensors())
      if (tensor.role == Role::in)
        inputs[tensor.name] = copied(tensor.value);
      else
        outputs.push_back(tensor.value);
    const AdjointRule* rule = find_adjoint(node.op->name);
    const auto written = rule != nullptr && rule->forward != nullptr
                             ? rule->forward(node, inputs, graph())
                             : graph().add(node.name, node.op->name, node.text, node.dtype, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) copies_[outputs[i]] = written.at(i);
  }

  // The gradient of the prediction.
  ValueId take_loss() {
    const std::int64_t n = forward_.batch, channels = forward_.image.channels;
    prediction_ = copied(forward_.output());
    // Behind the noise some predict its variance, which this loss does not know.
    if (const std::int64_t more = forward_.out_channels() - channels; more > 0)
      prediction_ = graph()
                        .add("noise", "resample",
                             fmt::format("op=split,n={},h={},w={},channels={},skip_channels={}", n,
                                         forward_.image.height, forward_.image.width, channels, more),
                             DType::fp32, {{"x", prediction_}})
                        .at(0);
    Bindings inputs{{"y", prediction_}, {"target", batch_.value(edm_ ? "x0" : "noise")}};
    std::string problem = fmt::format("batch={},elements={},scale={}", n, forward_.image.elements(),
                                      static_cast<double>(n) / static_cast<double>(options_.batch));
    if (edm_) {
      inputs["sigma"] = batch_.value("level");
      problem += fmt::format(",weight=edm,sigma_data={}", sigma_data());
    }
    const auto outputs = graph().add("loss", "mse_loss", problem, DType::fp32, inputs);
    training_.losses.push_back(outputs.at(0));
    training_.network.give("loss", outputs.at(0), {1});
    return outputs.at(1);
  }

  double sigma_data() const {
    for (const Node& node : forward_.graph.nodes())
      if (node.op->name == std::string_view("edm_precondition"))
        return node.problem.as<edm_precondition::Problem>().sigma_data;
    throw InvalidInput(
        fmt::format("{} cannot be trained yet: it predicts x0 without EDM's preconditioning", forward_.name()));
  }

  void update() {
    Training& t = training_;
    t.update = graph().nodes().size();
    const std::int64_t elements = t.elements();
    const auto norm = graph().add("gradients", "grad_norm", fmt::format("elements={},clip={}", elements, options_.clip),
                                  DType::fp32, {{"g", t.gradients}});
    t.norm = norm.at(0);
    t.network.give("norm", t.norm, {1});
    t.network.give("gradients", t.gradients, {elements});
    Bindings inputs{{"p", t.parameters}, {"m", t.m},        {"v", t.v},
                    {"g", t.gradients},  {"step", t.rates}, {"grad_scale", norm.at(1)}},
        outputs;
    if (t.ema) inputs["ema"] = *t.ema;
    if (t.copies) outputs["copy"] = *t.copies;
    graph().add(
        "update", "adamw",
        fmt::format("elements={},beta1={},beta2={},eps={},decay={},ema={:d},copy={:d}", elements, options_.beta1,
                    options_.beta2, options_.eps, options_.decay, t.ema.has_value(), t.copies.has_value()),
        options_.dtype, inputs, outputs);
  }

  const TrainingOptions& options_;
  bool edm_;
  Network forward_;
  Training training_;
  std::map<ValueId, ValueId> copies_;                       // of the network's values those of the step
  std::map<ValueId, ValueId> gradients_, later_gradients_;  // of each weight that nodes read, of parts behind the first
  ValueId sum_ = 0, spare_ = 0, of_a_part_ = 0;             // sums are not written where they are read
  Node batch_;
  ValueId prediction_ = 0;
};

}  // namespace

Training build_training(const NetworkInfo& info, const TrainingOptions& options) {
  require_trainable(info, options);
  Training training;
  build_or_say_limit(info, options.batch, /*guided=*/false, [&](std::int64_t batch) {
    TrainingOptions so_many = options;
    so_many.batch = batch;
    training = StepBuilder(info, so_many).build();
  });
  return training;
}

}  // namespace noisefloor::networks
