// Settings that stand beside a checkpoint, in JSON: a stranger's, so that each is looked at before it is used.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace noisefloor::pipeline {

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

}  // namespace noisefloor::pipeline
