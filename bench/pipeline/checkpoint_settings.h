// A checkpoint means what its folder says: the settings in JSON beside the weights of a diffusers pipeline. Each that
// changes numbers is used, or refused by name; the rest is listed.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/pipeline/config_file.h"
#include "bench/pipeline/sampling_steps.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

struct CheckpointSettings {
  networks::NetworkInfo row;  // the network's, as the folder has it
  // Of the sampling, beside what is the row's. The last of its alphas may be 0, which is for the solver to name
  // (least_signal).
  bool karras = false;  // levels of karras, though it was trained on others
  std::optional<double> sigma_min = {}, sigma_max = {};
  double clamp = 0;
  // Euler's and Heun's karras levels lie between those of the first and the last timestep that they would visit.
  bool karras_of_visited = false;
  bool upcast = false;  // a decoder computes in fp32 where fp16 was asked for

  std::map<std::string, std::string> betas = {};  // "beta_start", its value
  std::map<std::string, std::string> from = {};  // what the folder says, by the names in lists: "prediction", and where
  std::vector<std::string> ignored = {};         // "FILE: KEY VALUE", of what changes no number
  std::vector<std::string> warnings = {};        // of what might

  // Of a list: a setting, its value, and where it comes from: `given`, the folder, or the network.
  std::string line(const std::string& name, const std::string& value, const std::string& given = "") const;
};

// What alpha_bar 0 (zero terminal SNR) stands for, where sigma would be infinite. Solvers of latents of unit variance
// take a level that no fp32 number tells from it; the others, as diffusers has it, 2^-24.
double least_signal(const sampler_step::SolverRow& solver);

// Options that were given, as "--steps" and "--sampler prediction=": what the folder says instead is not looked at.
// "betas": a schedule of timesteps.
using GivenOptions = std::set<std::string, std::less<>>;

// The folder of the pipeline that a checkpoint belongs to, where it (or what it is a link to) is a part of one: with
// model_index.json, or scheduler/.
std::optional<std::filesystem::path> pipeline_folder(const std::filesystem::path& file);

// What is said beside `file`, the checkpoint (or index) of a network: config.json, and where it is to be `sampled` the
// pipeline's scheduler. Networks that are not diffusers' have no settings there. Throws InvalidInput that names file,
// key, value, what it must be, and the option that overrides it.
CheckpointSettings checkpoint_settings(const networks::NetworkInfo& info, const std::filesystem::path& file,
                                       bool sampled, const GivenOptions& given = {});

// Of the scheduler alone. `class_of`: a class that model_index.json names instead of the scheduler's own; "".
void take_scheduler_config(const ConfigFile& config, const std::string& class_of, const GivenOptions& given,
                           CheckpointSettings& settings);

// Keys that nothing above has looked at: ignored where they say nothing, else warned of.
void sort_unknown(const ConfigFile& config, const std::set<std::string, std::less<>>& known,
                  const std::set<std::string, std::less<>>& harmless, CheckpointSettings& settings);

}  // namespace noisefloor::pipeline
