// A checkpoint means what its folder says: the settings in JSON beside the weights of a diffusers pipeline. Each that
// changes numbers is used, or refused by name; the rest is listed.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/pipeline/sampling_steps.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

// Settings in JSON: a stranger's, so that each is looked at before it is used.
class ConfigFile {
 public:
  using Json = nlohmann::ordered_json;

  // Nothing where there is no such file. `name`: for messages and lists, as "scheduler/scheduler_config.json". Throws
  // InvalidInput where it is no JSON object of bounded size and depth. Python's Infinity, which JSON has not, is read
  // as text.
  static std::optional<ConfigFile> read(const std::filesystem::path& file, std::string name);

  const std::string& name() const { return name_; }
  const Json& settings() const { return json_; }
  const Json* said(std::string_view key) const;  // null where it is not there
  const Json* find(std::string_view key) const;  // null also where it says null
  // "FILE: KEY must be MUST, is VALUE", and the way around.
  [[noreturn]] void refuse(std::string_view key, const std::string& must) const;

  // What a setting says, or where it is not there `otherwise`; throws InvalidInput where it says no such thing. A flag
  // that says null is off, as in Python.
  bool flag(std::string_view key, bool otherwise) const;
  std::string word(std::string_view key, const std::string& otherwise) const;
  // Above `above` and below `below`; infinity: any.
  double number(std::string_view key, double otherwise, double above, double below) const;
  int whole(std::string_view key, int otherwise, int least, int most) const;

 private:
  template <class Value, class Valid>
  Value get(std::string_view key, Value otherwise, const std::string& must, const Valid& valid) const;

  ConfigFile(std::string path, std::string name, Json json)
      : path_(std::move(path)), name_(std::move(name)), json_(std::move(json)) {}

  std::string path_, name_;
  Json json_;
};

// Whether a setting says what is expected: numbers by value; one for all of a list; null, false and 0 are one; an
// element null of an expected list stands for any.
bool same_setting(const ConfigFile::Json& expected, const ConfigFile::Json& found);

// Of a stranger, for a message: cut where it is long, and without control characters.
std::string shown(const ConfigFile::Json& value);
std::string shown_name(const std::string& name);

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
