// scheduler/scheduler_config.json of a diffusers pipeline. A key that a class of diffusers' does not have is ignored
// there, and here; one that is not there is as the class has it by default.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

#include "bench/pipeline/checkpoint_settings.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

using Json = ConfigFile::Json;
using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::Solver;
using sampler_step::Spacing;

enum : unsigned { kDdpm = 1, kDdim = 2, kPndm = 4, kEuler = 8, kHeun = 16, kDpm = 32, kOther = 64, kEvery = 127 };

struct SchedulerClass {
  const char* name;
  unsigned bit;
  std::optional<Solver> solver;
  Spacing spacing;
  double beta_start, beta_end;
  bool set_alpha_to_one, clip_sample;
};
constexpr SchedulerClass kClasses[] = {
    {"DDPMScheduler", kDdpm, Solver::ddpm, Spacing::leading, 1e-4, 0.02, true, true},
    {"DDIMScheduler", kDdim, Solver::ddim, Spacing::leading, 1e-4, 0.02, true, true},
    {"PNDMScheduler", kPndm, Solver::pndm, Spacing::leading, 1e-4, 0.02, false, false},
    {"EulerDiscreteScheduler", kEuler, Solver::edm_euler, Spacing::linspace, 1e-4, 0.02, true, false},
    {"HeunDiscreteScheduler", kHeun, Solver::edm_heun, Spacing::linspace, 0.00085, 0.012, true, false},
    {"DPMSolverMultistepScheduler", kDpm, Solver::dpmpp_2m, Spacing::linspace, 1e-4, 0.02, true, false},
};
constexpr SchedulerClass kOtherClass{"", kOther, std::nullopt, Spacing::linspace, 1e-4, 0.02, true, false};

// The keys that classes have; and what one must say for ours to be what a class computes.
struct Key {
  const char* key;
  unsigned classes;
  const char* must = "";    // a list; empty: the Reader takes what it says
  const char* absent = "";  // what it says where it is not there
  const char* option = "";  // that overrides it
};
constexpr unsigned kRescaled = kEvery & ~(kPndm | kHeun), kWithKarras = kEvery & ~(kDdpm | kDdim | kPndm);
constexpr Key kKeys[] = {
    {"beta_start", kEvery},
    {"beta_end", kEvery},
    {"beta_schedule", kEvery},
    {"trained_betas", kEvery},
    {"prediction_type", kEvery},
    {"timestep_spacing", kEvery},
    {"steps_offset", kEvery},
    {"set_alpha_to_one", kDdim | kPndm},
    {"rescale_betas_zero_snr", kRescaled},
    {"use_karras_sigmas", kWithKarras},
    {"sigma_min", kEuler},
    {"sigma_max", kEuler},
    {"clip_sample", kDdpm | kDdim | kHeun},
    {"clip_sample_range", kDdpm | kHeun},
    {"num_train_timesteps", kEvery, "[1000]", "1000"},
    {"skip_prk_steps", kPndm, "[true]", "false", "--sampler"},
    {"timestep_spacing", kPndm, "[\"leading\"]", "\"leading\"", "--sampler spacing="},
    {"timestep_spacing", kDdim, "[\"leading\", \"trailing\"]", "\"leading\"", "--sampler spacing="},
    {"prediction_type", kPndm, "[\"epsilon\", \"v_prediction\"]", "\"epsilon\"", "--sampler prediction="},
    {"clip_sample", kDdim, "[false]", "true", "--sampler clamp="},  // its noise does not follow what is clipped
    {"thresholding", kDdpm | kDdim | kDpm, "[false]", "false"},
    {"variance_type", kDdpm, "[\"fixed_small\"]", "\"fixed_small\"", "--sampler"},
    {"variance_type", kDpm, "[null]", "null", "--sampler"},
    {"interpolation_type", kEuler, "[\"linear\"]", "\"linear\""},
    {"final_sigmas_type", kEuler | kDpm, "[\"zero\"]", "\"zero\"", "--sampler final="},
    {"algorithm_type", kDpm, "[\"dpmsolver++\"]", "\"dpmsolver++\"", "--sampler"},
    {"solver_order", kDpm, "[2]", "2", "--sampler"},
    {"solver_type", kDpm, "[\"midpoint\", \"logrho\", \"bh1\", \"bh2\"]", "\"midpoint\"", "--sampler"},
    {"lambda_min_clipped", kDpm, "[\"-Infinity\", null]", "null"},
    {"use_exponential_sigmas", kEvery, "[false]", "false", "--sampler schedule="},
    {"use_beta_sigmas", kEvery, "[false]", "false", "--sampler schedule="},
    {"use_lu_lambdas", kEvery, "[false]", "false", "--sampler schedule="},
    {"use_flow_sigmas", kEvery, "[false]", "false", "--sampler schedule="},
    {"use_dynamic_shifting", kEvery, "[false]", "false", "--sampler schedule="},
};
// Of networks under EDM's preconditioning, which know the level itself.
constexpr Key kOfLevels[] = {{"timestep_type", kEvery, "[\"continuous\"]", "\"discrete\""},
                             {"use_karras_sigmas", kEvery, "[true]", "false"},
                             {"prediction_type", kEvery, "[\"v_prediction\"]", "\"epsilon\"", "--sampler prediction="}};
constexpr Key kOfTimesteps[] = {{"timestep_type", kEuler, "[\"discrete\"]", "\"discrete\""}};
// Without an effect where all that holds, or of no class of ours.
constexpr const char* kWithoutEffect[] = {"dynamic_thresholding_ratio",
                                          "sample_max_value",
                                          "lower_order_final",
                                          "euler_at_final",
                                          "flow_shift",
                                          "time_shift_type",
                                          "predict_x0",
                                          "timestep_scaling",
                                          "original_inference_steps"};

class Reader {
 public:
  Reader(const ConfigFile& config, const std::string& class_name, const GivenOptions& given,
         CheckpointSettings& settings)
      : config_(config), given_(given), settings_(settings), class_name_(shown_name(class_name)) {
    for (const SchedulerClass& one : kClasses)
      if (class_name == one.name) class_ = one;
  }

  void run() {
    take_class();
    for (const std::span<const Key> keys : {std::span<const Key>(kKeys), of_its_kind()})
      for (const Key& key : keys) hold(key);
    take_prediction();
    if (!levels_) take_timesteps();
    take_karras();
    sort_keys();
    if (class_.bit & (kDdpm | kHeun) && !given("--sampler clamp=") && config_.flag("clip_sample", class_.clip_sample)) {
      settings_.clamp = config_.number("clip_sample_range", 1, 0, 1e6);
      from("clamp", "clip_sample");
    }
  }

 private:
  bool given(const char* option) const { return given_.contains(option); }
  std::span<const Key> of_its_kind() const {
    return levels_ ? std::span<const Key>(kOfLevels) : std::span<const Key>(kOfTimesteps);
  }
  void from(const char* setting, const char* key) {
    settings_.from[setting] = config_.said(key) != nullptr
                                  ? fmt::format("{} {}", config_.name(), key)
                                  : fmt::format("{} without {}: as {} has it", config_.name(), key, class_name_);
  }

  void take_class() {
    if (given("--sampler")) return;
    if (!class_.solver) {
      std::vector<std::string> names;
      for (const SchedulerClass& one : kClasses) names.emplace_back(one.name);
      config_.refuse("_class_name",
                     fmt::format("{} for a sampler of ours (it is '{}' here; --sampler NAME takes another)",
                                 listed(names, "or"), class_name_));
    }
    settings_.row.solver = *class_.solver;
    settings_.from["sampler"] = fmt::format("{} {}", config_.name(), class_name_);
  }

  // Of a solver alone where an option names another.
  void hold(const Key& demand) const {
    const bool of_solver = demand.classes != kEvery;
    if (*demand.must == '\0' || !(demand.classes & class_.bit)) return;
    if ((of_solver && given("--sampler")) || given(demand.option)) return;
    const Json must = Json::parse(demand.must);
    const Json* said = config_.said(demand.key);
    const Json found = said != nullptr ? *said : Json::parse(demand.absent);
    if (std::ranges::any_of(must, [&](const Json& one) { return same_setting(one, found); })) return;
    std::vector<std::string> texts;
    for (const Json& one : must) texts.push_back(one.dump());
    config_.refuse(demand.key,
                   fmt::format("{} for {}{}", listed(texts, "or"), class_name_,
                               *demand.option == '\0' ? "" : fmt::format(" ({} overrides it)", demand.option)));
  }

  // What a key says, one of some words in the order of the enum.
  template <class Enum>
  Enum one_of(const char* key, const char* otherwise, std::span<const char* const> words, const char* option) const {
    const auto found = std::ranges::find(words, config_.word(key, otherwise));
    if (found == words.end()) {
      std::vector<std::string> quoted;
      for (const char* word : words) quoted.push_back(fmt::format("\"{}\"", word));
      config_.refuse(key, fmt::format("{} ({} overrides it)", listed(quoted, "or"), option));
    }
    return static_cast<Enum>(found - words.begin());
  }

  void take_prediction() {
    static constexpr const char* kWords[] = {"epsilon", "sample", "v_prediction"};
    if (given("--sampler prediction=")) return;
    settings_.row.prediction = one_of<Prediction>("prediction_type", "epsilon", kWords, "--sampler prediction=");
    from("prediction", "prediction_type");
  }

  void take_timesteps() {
    networks::NetworkInfo& row = settings_.row;
    // A class that is not known here has defaults that are not: what it does not say is the network's own.
    const auto takes = [&](const char* option, std::initializer_list<const char*> keys) {
      return !given(option) && (class_.bit != kOther || std::ranges::any_of(keys, [&](const char* key) {
                                  return config_.find(key) != nullptr;
                                }));
    };
    if (takes("betas", {"beta_schedule", "beta_start", "beta_end", "trained_betas"})) take_betas();
    if (takes("--sampler spacing=", {"timestep_spacing"})) {
      row.spacing = one_of<Spacing>("timestep_spacing", sampler_step::kSpacingNames[static_cast<int>(class_.spacing)],
                                    sampler_step::kSpacingNames, "--sampler spacing=");
      from("spacing", "timestep_spacing");
    }
    if (takes("--sampler offset=", {"steps_offset"})) {
      row.offset = config_.whole("steps_offset", 0, 0, sampler_step::kTrainingSteps - 1);
      from("offset", "steps_offset");
    }
    if (takes("--sampler final=", {})) {
      row.ends_noisy = class_.bit & (kDdim | kPndm) && !config_.flag("set_alpha_to_one", class_.set_alpha_to_one);
      if (class_.bit & (kDdim | kPndm)) from("final", "set_alpha_to_one");
    }
  }

  void take_betas() {
    networks::NetworkInfo& row = settings_.row;
    std::vector<double> betas = trained_betas();
    const bool trained = !betas.empty();
    if (!trained) {
      static constexpr const char* kWords[] = {"linear", "scaled_linear", "squaredcos_cap_v2"};
      const double first = config_.number("beta_start", class_.beta_start, 0, 1);
      const double last = config_.number("beta_end", class_.beta_end, 0, 1);
      row.schedule = one_of<Schedule>("beta_schedule", "linear", kWords, "--sampler schedule=");
      const bool scaled = row.schedule == Schedule::scaled_linear;
      for (int t = 0; t < sampler_step::kTrainingSteps; ++t) {
        const double part = t / (sampler_step::kTrainingSteps - 1.0);
        const auto between = [&](double a, double b) { return a + (b - a) * part; };
        betas.push_back(scaled ? std::pow(between(std::sqrt(first), std::sqrt(last)), 2) : between(first, last));
      }
    }
    row.alphas.clear();
    for (double product = 1; const double beta : betas) row.alphas.push_back(product *= 1 - beta);
    if (!trained && row.schedule == Schedule::cosine) {
      row.alphas = sampler_step::cumulative_alphas(Schedule::cosine);
      betas = {1 - row.alphas[0], 0.999};
    }
    from("schedule", trained ? "trained_betas" : "beta_schedule");
    for (const auto& [key, value] : {std::pair{"beta_start", betas.front()}, std::pair{"beta_end", betas.back()}}) {
      settings_.betas[key] = fmt::format("{:.6g}", value);
      from(key, trained ? "trained_betas" : row.schedule == Schedule::cosine ? "beta_schedule" : key);
    }
    if (class_.bit & kRescaled && config_.flag("rescale_betas_zero_snr", false)) end_in_noise();
  }

  std::vector<double> trained_betas() const {
    const Json* said = config_.find("trained_betas");
    if (said == nullptr) return {};
    const auto beta = [](const Json& one) { return one.is_number() && one.get<double>() > 0 && one.get<double>() < 1; };
    if (!said->is_array() || said->size() != sampler_step::kTrainingSteps || !std::ranges::all_of(*said, beta))
      config_.refuse("trained_betas", fmt::format("{} numbers above 0 and below 1 (--sampler schedule= overrides it)",
                                                  sampler_step::kTrainingSteps));
    return said->get<std::vector<double>>();
  }

  // Lin et al., "Common Diffusion Noise Schedules and Sample Steps are Flawed" (2023), algorithm 1: sqrt(alpha_bar) is
  // shifted and scaled so that its last is 0.
  void end_in_noise() {
    std::vector<double>& alphas = settings_.row.alphas;
    const double first = std::sqrt(alphas.front()), last = std::sqrt(alphas.back());
    for (double& alpha : alphas) alpha = std::pow((std::sqrt(alpha) - last) * first / (first - last), 2);
    alphas.back() = 0;
    settings_.betas["rescale_betas_zero_snr"] = "true";
    from("rescale_betas_zero_snr", "rescale_betas_zero_snr");
  }

  void take_karras() {
    if (!(class_.bit & kWithKarras) || given("--sampler schedule=")) return;
    settings_.karras = config_.flag("use_karras_sigmas", false);
    if (!settings_.karras) return;
    from("schedule", "use_karras_sigmas");
    settings_.karras_of_visited =
        !levels_ && class_.bit & (kEuler | kHeun) && settings_.row.spacing != Spacing::linspace;
    if (class_.bit != kEuler) return;
    const double any = std::numeric_limits<double>::infinity();
    for (const auto& [key, option, value] : {std::tuple{"sigma_min", "--sampler sigma_min=", &settings_.sigma_min},
                                             std::tuple{"sigma_max", "--sampler sigma_max=", &settings_.sigma_max}})
      if (config_.find(key) != nullptr && !given(option)) {
        *value = config_.number(key, 0, 0, any);
        from(key, key);
      }
  }

  void sort_keys() {
    std::set<std::string, std::less<>> known, others;
    others.insert(std::begin(kWithoutEffect), std::end(kWithoutEffect));
    for (const std::span<const Key> keys : {std::span<const Key>(kKeys), of_its_kind()})
      for (const Key& key : keys) ((key.classes & class_.bit) != 0 ? known : others).insert(key.key);
    sort_unknown(config_, known, others, settings_);
  }

  const ConfigFile& config_;
  const GivenOptions& given_;
  CheckpointSettings& settings_;
  std::string class_name_;
  SchedulerClass class_ = kOtherClass;
  bool levels_ = settings_.row.schedule == Schedule::karras;
};

}  // namespace

double least_signal(const sampler_step::SolverRow& solver) {
  return solver.latents == sampler_step::SolverRow::Latents::preserving ? 0x1p-80 : 0x1p-24;
}

void take_scheduler_config(const ConfigFile& config, const std::string& class_of, const GivenOptions& given,
                           CheckpointSettings& settings) {
  const std::string own = config.word("_class_name", "");
  const std::string name = !class_of.empty() ? class_of : !own.empty() ? own : "no class";
  Reader(config, name, given, settings).run();
}

}  // namespace noisefloor::pipeline
