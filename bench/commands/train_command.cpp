// noisefloor train: a network's weights, from data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "bench/commands/commands.h"
#include "bench/commands/pipeline_options.h"
#include "bench/commands/training_guard.h"
#include "bench/commands/training_progress.h"
#include "bench/pipeline/pictures.h"
#include "bench/pipeline/pipeline.h"
#include "bench/pipeline/trainer.h"
#include "bench/sweep/suite.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr double kSecondsAtOnce = 0.5;   // of steps between two lines
constexpr double kSecondsOfLosses = 30;  // between two times that they are written

struct TrainCommand {
  TrainerRequest request;
  std::map<std::string, std::string> given;  // numbers of the recipe, by their options' names
  std::vector<std::string> data;
  BreakdownArguments breakdown;
  std::vector<int> devices;  // --devices; empty: device
  std::string device, out, losses, checkpoint;
  std::int64_t every = 100, samples = 0;
  bool resume = false;
  CLI::Option *every_given = nullptr, *plan_given = nullptr;
};

void save(Trainer& trainer, const std::string& file) {
  OutputFiles files;
  files.add("--checkpoint", file);
  files.write("--checkpoint", [&](const fs::path& place) {
    trainer.write_checkpoint(place);
    write_through(place);
  });
  files.commit();
}

// A grid of the weights as they are now. `known`: of the times that its plan takes.
void draw_samples(const TrainCommand& command, const Trainer& trainer, const std::shared_ptr<KnownTimes>& known,
                  Device device) {
  const std::int64_t classes = trainer.training().network.classes;
  const std::int64_t of_each = trainer.training().network.image.frames > 1 ? 2 : 10;
  const fs::path file = fs::path(command.out).replace_extension(fmt::format("step-{:06}.png", trainer.taken()));
  // Whether the training goes on, its own numbers tell.
  const auto without = [&](const std::exception& why) {
    fmt::print(stderr, "\nno pictures of step {}: {}\n", trainer.taken(), why.what());
  };
  try {
    OutputFiles weights;
    weights.add_in_memory("--samples", file);
    weights.write("--samples", [&](const fs::path& place) { trainer.write_weights(place); });
    const SampleRequest request({.model = {.network = command.request.network,
                                           .weights = weights.partial("--samples").string(),
                                           .dtype = trainer.dtype(),
                                           .plan = command.request.plan,
                                           .known = known},
                                 .count = classes > 0 ? std::min<std::int64_t>(100, of_each * classes) : 64,
                                 .out = file.string()});
    Pipeline pipeline(request, device);
    const std::vector<Picture> grids = pipeline.models().drawing.grids(pipeline.draw());
    write_atomically(
        file, request.moves() ? encode_animated_png(file, grids, kFramesPerSecond) : encode_png(file, grids.front()));
  } catch (const NotFinite& error) {
    without(error);
  } catch (const OutOfMemory& error) {
    without(error);
  }
}

int say_not_finite(const TrainCommand& command, Trainer& trainer, const Trainer::Step& step, std::int64_t saved) {
  fmt::print(stderr, "step {} is not finite: loss {}, norm of the gradients {}; ", step.number, std::abs(step.loss),
             std::abs(step.norm));
  const std::string tensor = trainer.gradient_not_finite(step);
  fmt::print(stderr, "{}. {}; {}\n",
             tensor.empty() ? "each gradient is finite, but their squares' sum is not"
                            : fmt::format("the gradient nearest to the loss that is not: {}", tensor),
             saved > 0 ? fmt::format("{} holds step {}", command.checkpoint, saved) : "no weights are written",
             "lower --rate, or limit gradients with --clip");
  return kNotSo;
}

// Behind gradients that are: large rates leave such parameters, and shares of blends that are 0 such weights.
int say_not_finite(const TrainCommand& command, std::int64_t step, std::string_view what, std::int64_t saved,
                   std::string_view advice) {
  fmt::print(stderr, "step {}: {}; {}; {}\n", step, what,
             saved > 0 ? fmt::format("{} holds step {}", command.checkpoint, saved) : "no weights are written", advice);
  return kNotSo;
}

std::int64_t steps_to_next(std::int64_t taken, std::int64_t every) {
  return every > 0 ? every - taken % every : Trainer::kMostAtOnce;
}

// Takes the steps, and saves and draws on the way; the exit code.
int take_steps(const TrainCommand& command, Trainer& trainer, Losses& losses, Device device) {
  const TrainingRecipe& recipe = trainer.recipe();
  const bool saves = !command.checkpoint.empty();
  std::int64_t at_once = 1, saved = command.resume ? trainer.taken() : 0;
  double written = 0;
  Keeper keeper;
  const auto known = std::make_shared<KnownTimes>();
  TrainingLine line(recipe, trainer.taken());
  while (trainer.taken() < recipe.steps) {
    const std::int64_t count =
        std::min({at_once, recipe.steps - trainer.taken(), steps_to_next(trainer.taken(), saves ? command.every : 0),
                  steps_to_next(trainer.taken(), command.samples)});
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Trainer::Step> steps = trainer.take(count);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    losses.add(steps, recipe);
    line.show(steps, seconds);
    for (const Trainer::Step& step : steps)
      if (!step.finite()) {
        line.end();
        return say_not_finite(command, trainer, step, saved);
      }
    at_once = std::clamp<std::int64_t>(
        std::llround(kSecondsAtOnce * static_cast<double>(steps.size()) / std::max(seconds, 1e-9)), 1,
        Trainer::kMostAtOnce);
    const auto due = [&](std::int64_t every) {
      return every > 0 && (trainer.taken() % every == 0 || trainer.taken() == recipe.steps);
    };
    const bool ends = trainer.taken() == recipe.steps;
    const int interrupted = ends ? 0 : Interruption::number();
    // Also before a grid is drawn: that may take longer than who sends a signal waits.
    const bool saving = saves && (due(command.every) || due(command.samples) || interrupted != 0);
    if (saving || line.seconds() - written > kSecondsOfLosses) {
      losses.keep();
      written = line.seconds();
    }
    if ((saving || ends || due(command.samples)) && !trainer.states_finite()) {
      line.end();
      return say_not_finite(command, trainer.taken(), "parameters or their moments are not finite", saved,
                            "lower --rate");
    }
    if (saving) {
      save(trainer, command.checkpoint);
      saved = trainer.taken();
      keeper.kept();
    }
    if (interrupted != 0) {
      line.end();
      fmt::print(stderr, "interrupted behind step {} of {}: {}\n", trainer.taken(), recipe.steps,
                 saves ? fmt::format("{} holds it; --resume goes on from it", command.checkpoint)
                       : "without --checkpoint no weights are kept");
      return kInterrupted + interrupted;
    }
    if (due(command.samples)) draw_samples(command, trainer, known, device);
    keeper.keep_if_due(trainer);
  }
  line.end();
  if (line.seconds() > 0)
    fmt::print("{}: {} steps of {} images, loss {:.4f} at the end; {:.1f} s, {:.0f} images/s\n",
               command.request.network, trainer.taken(), recipe.batch, line.loss(), line.seconds(),
               line.images_a_second());
  return kDone;
}

int run_training(const TrainCommand& command, Trainer& trainer, OutputFiles& files, Device device) {
  Losses losses(command.losses, trainer.taken());
  const Interruption interruption;  // also while files are written
  int code = kDone;
  try {
    code = take_steps(command, trainer, losses, device);
    if (code == kDone) {  // before the losses, which may not be written
      files.write("--out", [&](const fs::path& place) { trainer.write_weights(place, command.out); });
      files.commit();
      fmt::print("wrote {}\n", command.out);
    }
  } catch (const NotFinite& error) {
    code = say_not_finite(command, trainer.taken(), error.what(), command.checkpoint.empty() ? 0 : trainer.taken(),
                          "begin with other --weights");
  } catch (...) {  // of another file, or of a device
    losses.keep();
    throw;
  }
  losses.write();
  return code;
}

// What is wrong is said before anything is opened.
TrainerRequest checked(const TrainCommand& command) {
  TrainerRequest request = command.request;
  (void)require_network(request.network);
  request.recipe = recipe_of(request.network);
  for (const char* of_levels : {"p-mean", "p-std"})
    if (command.given.contains(of_levels) &&
        require_network(request.network).prediction == sampler_step::Prediction::noise)
      throw refusal("--{}: {} is trained at the timesteps of its schedule, each as often", of_levels, request.network);
  if (command.given.contains("unlabelled") && require_network(request.network).classes == 0)
    throw refusal("--unlabelled: {} has no labels", request.network);
  for (const RecipeField& field : recipe_fields())
    if (const auto given = command.given.find(field.name); given != command.given.end())
      field.set(request.recipe, given->second);
  std::error_code error;
  if (command.resume && command.checkpoint.empty())
    throw InvalidInput("--resume needs --checkpoint FILE, the file to go on from");
  if (command.every_given->count() > 0 && command.checkpoint.empty())
    throw InvalidInput("--every needs --checkpoint FILE, the file to write");
  if (command.resume && command.plan_given->count() > 0)
    throw InvalidInput("--plan: --resume goes on with the variants that the checkpoint names");
  if (command.resume && !request.weights.empty())
    throw InvalidInput("--resume and --weights: a training begins with one of them");
  if (command.resume && !fs::exists(command.checkpoint, error))
    throw refusal("--resume: there is no {}; without --resume a training begins", command.checkpoint);
  if (!command.resume && !command.checkpoint.empty() && fs::exists(command.checkpoint, error))
    throw refusal("--checkpoint {}: is there already; --resume goes on from it, or remove it", command.checkpoint);
  if (command.resume) request.resume = command.checkpoint;
  if (!command.devices.empty()) require_nccl();
  return request;
}

void add_files(OutputFiles& files, const TrainCommand& command) {
  for (const std::string& file : command.data) files.add_input("--data", file);
  if (!command.request.weights.empty())
    add_inputs(files, ModelRequest{command.request.network, command.request.weights});
  files.add("--out", command.out);
  files.add("--losses", command.losses);
  files.add("--checkpoint", command.checkpoint);
  if (files.is_stream("--checkpoint")) throw refusal("--checkpoint {}: is no regular file", command.checkpoint);
  if (command.samples > 0 && files.is_stream("--out"))
    throw refusal("--samples: its pictures stand beside --out, and {} is no file", command.out);
  const std::string pictures = fs::path(command.out).stem().string() + ".step-";
  std::vector<std::pair<const char*, std::string>> others{{"--losses", command.losses},
                                                          {"--breakdown", command.breakdown.csv},
                                                          {"--trace", command.breakdown.trace},
                                                          {"--weights", command.request.weights},
                                                          {"--plan", command.request.plan}};
  for (const std::string& file : command.data) others.emplace_back("--data", file);
  for (const auto& [option, file] : others)
    if (!command.checkpoint.empty() && file == command.checkpoint + ".lock")
      throw refusal("{} {}: that is the lock of --checkpoint", option, file);
  others.emplace_back("--checkpoint", command.checkpoint);
  for (const auto& [option, file] : others)
    if (command.samples > 0 && fs::path(file).filename().string().starts_with(pictures))
      throw refusal("{} {}: pictures of --samples have such names ({}NUMBER.png)", option, file, pictures);
  if (!command.checkpoint.empty() && command.out == command.checkpoint + ".lock")
    throw refusal("--out {}: that is the lock of --checkpoint", command.out);
  check_breakdown(command.breakdown, command.request.plan, command.device, files);
  for (const std::string& file : {command.out, command.losses, command.checkpoint})
    if (!file.empty()) remove_left_partials(follow_links(file));
}

std::vector<int> device_numbers(const std::string& text) {
  std::vector<int> devices;
  for (const std::string& item : split_list(text)) {
    const std::int64_t device = require_integer("--devices", item);
    if (device < 0 || device > 1000 || std::ranges::find(devices, device) != devices.end())
      throw refusal("--devices {}: is device numbers from 0 to 1000, each once, such as 0,1 (noisefloor devices)",
                    text);
    devices.push_back(static_cast<int>(device));
  }
  return devices;
}

// --devices, in order; else --device.
std::vector<std::unique_ptr<Platform>> open_platforms(const TrainCommand& command) {
  std::vector<std::unique_ptr<Platform>> platforms;
  for (const int device : command.devices) platforms.push_back(open_platform(std::to_string(device)));
  if (platforms.empty()) platforms.push_back(open_platform(command.device));
  const std::string& name = platforms.front()->description().name;
  for (const auto& platform : platforms)
    if (platform->description().name != name)
      throw refusal("--devices: {} is {}, not {} as the first; they are of one kind", platform->description().index,
                    platform->description().name, name);
  return platforms;
}

int train(const TrainCommand& command) {
  const TrainerRequest request = checked(command);
  OutputFiles files;
  add_files(files, command);
  std::optional<CheckpointLock> lock;
  if (!command.checkpoint.empty()) lock.emplace(follow_links(command.checkpoint));
  const TrainingData data = read_training_data(command.data, require_network(request.network));
  const std::vector<std::unique_ptr<Platform>> platforms = open_platforms(command);
  std::vector<Device> devices;
  for (const auto& platform : platforms) devices.push_back({*platform, suite()});
  Trainer::Connect connect;
  if (!command.devices.empty()) connect = [&] { return make_nccl(command.devices); };
  try {
    Trainer trainer(request, data, devices, connect);
    if (!trainer.note().empty()) fmt::print(stderr, "{}\n", trainer.note());
    if (command.breakdown.wanted()) {
      trainer.break_down([&](const Meeting& meet) {
        break_down(
            command.breakdown, *platforms.front(), trainer.executor(), request.plan,
            [&] { return trainer.executor().enqueue(); },
            fmt::format("a training step of {}{}", images_in_words(request.recipe.batch, false),
                        devices.size() > 1 ? fmt::format(" on {} devices, on the first one", devices.size()) : ""),
            files, meet);
      });
      files.commit();  // what cannot be written ends no training later
      trainer.rewind();
    }
    return run_training(command, trainer, files, devices.front());
  } catch (const RankFailed& error) {
    fmt::print(stderr, "\nnoisefloor: {}{}\n", error.what(),
               command.checkpoint.empty() ? "" : fmt::format("; {} stays as it was", command.checkpoint));
    return kNotSo;
  }
}

}  // namespace

void add_train_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(app, result, "train", "Train a network's weights on images", train);
  command.add_option("network", arguments.request.network, networks_with_recipes())->required();
  command
      .add_option("--data", arguments.data,
                  "Files of images, each told by its content: safetensors (images [n, channels, height, width], videos "
                  "[n, frames, channels, height, width], of -1 to 1, labels [n]), IDX (images, and behind them their "
                  "labels), CIFAR-10's binary version or unet.cu's data; or "
                  "'generated': random pictures, to time steps by")
      ->required();
  add_output_file(command, "--out", arguments.out,
                  "File of the weights for --weights: safetensors; of unetcu also .bin, as unet.cu has them")
      ->required();
  add_output_file(command, "--losses", arguments.losses,
                  "CSV file of step, loss, norm of the gradients and learning rate, a line a step");
  for (const RecipeField& field : recipe_fields()) {
    if (std::string_view(field.name).starts_with("beta")) continue;
    command.add_option_function<std::string>(
        field.option(), [&given = arguments.given, name = field.name](const std::string& text) { given[name] = text; },
        fmt::format("{}{} [{}] (default of digits: {})", static_cast<char>(std::toupper(field.meaning[0])),
                    field.meaning + 1, field.range(), field.text(recipe_of("digits"))));
  }
  command.add_option_function<std::string>(
      "--betas",
      [&given = arguments.given](const std::string& text) {
        const std::vector<std::string> betas = split_list(text);
        if (betas.size() != 2) throw refusal("--betas {}: is two numbers, such as 0.9,0.99", text);
        given["beta1"] = betas[0];
        given["beta2"] = betas[1];
      },
      "AdamW's betas, each below 1 (default: 0.9,0.99)");
  command.add_option("--weights", arguments.request.weights,
                     "Weights to begin with (default: as PyTorch's layers begin, by the seed)");
  command.add_option("--checkpoint", arguments.checkpoint,
                     "Training checkpoint: a file written every K steps, from which --resume goes on");
  arguments.every_given = command.add_option("--every", arguments.every, "Steps between two checkpoints")
                              ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
                              ->capture_default_str();
  command.add_flag(
      "--resume", arguments.resume,
      "Go on from --checkpoint, with the data and options that it was begun with: with our variants the numbers are "
      "those of a training that was not interrupted");
  command
      .add_option("--samples", arguments.samples,
                  "Draw a grid of pictures every K steps, beside --out (.step-000100.png)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  add_device_option(command, arguments.device);
  command
      .add_option_function<std::string>(
          "--devices", [&devices = arguments.devices](const std::string& text) { devices = device_numbers(text); },
          "CUDA device numbers, such as 0,1: each takes an equal share of the batch, and NCCL sums their gradients")
      ->excludes("--device");
  command
      .add_option("--accumulate", arguments.request.accumulate,
                  "Micro-batches of a device, one behind the other, whose gradients are added: less memory")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{256}))
      ->capture_default_str();
  command.add_option_function<std::string>(
      "--dtype", [&](const std::string& name) { arguments.request.dtype = require_dtype(network_workload(), name); },
      "bf16 or fp32, of activations; parameters are fp32 (default: bf16 on a GPU, fp32 on the host)");
  arguments.plan_given = command
                             .add_option("--plan", arguments.request.plan,
                                         "own, baseline, fastest, naive, or a plan.csv of `noisefloor roofline`")
                             ->capture_default_str();
  command.add_flag("--recompute", arguments.request.recompute,
                   "Make norms and activations again in the backward pass: less memory, more time, the same numbers");
  add_breakdown_options(command, arguments.breakdown);
}

}  // namespace noisefloor
