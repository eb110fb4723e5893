#include "bench/sweep/plugins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/measure/worker.h"
#include "bench/plugin/plugin_library.h"
#include "bench/sweep/suite.h"
#include "kernels/core/fields.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

// FNV-1a.
std::string fingerprint(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::istreambuf_iterator<char> byte(stream), end; byte != end; ++byte)
    hash = (hash ^ static_cast<unsigned char>(*byte)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

void require_file(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) throw InvalidInput(fmt::format("--plugin: {}: no such file", file.string()));
  if (!fs::is_regular_file(file, error))
    throw InvalidInput(fmt::format(
        "--plugin: {}: not a regular file; a shared library or a Python file (.py) is expected", file.string()));
}

ChildCommand command_of(const std::string& file, const std::string& device) {
  ChildCommand command{{"noisefloor", "worker", "--plugin", file}};
  command.program = "/proc/self/exe";
  if (!device.empty()) command.arguments.insert(command.arguments.end(), {"--device", device});
  return command;
}

template <class Enum>
Enum named(const std::string& text, std::initializer_list<Enum> all) {
  for (const Enum one : all)
    if (text == to_string(one)) return one;
  throw InvalidInput(fmt::format("'{}' is not known", text));
}

void add_rows(const std::string& file, const std::shared_ptr<Worker>& worker) {
  const nlohmann::json answer = worker->ask({{"ask", "rows"}}, worker->options().start_seconds);
  for (const auto& row : answer.at("rows")) {
    const std::string op = row.at("op"), name = row.at("name");
    require_plugin_name(file, *suite().find(op), name);  // another plugin may have it
    add_to_suite(op, implementation_of_plugin(
                         worker, fs::path(file).filename().string(), name,
                         named(row.at("kind"),
                               {Kind::host, Kind::naive, Kind::tiled, Kind::tensor_core, Kind::ptx, Kind::baseline}),
                         named(row.at("arch"), {Arch::host, Arch::any_gpu, Arch::sm75, Arch::sm80, Arch::sm90a})));
  }
}

// Before its process counts as hung.
double seconds_of_a_case() {
  constexpr const char* kName = "NOISEFLOOR_PLUGIN_SECONDS";
  const char* const text = std::getenv(kName);
  if (text == nullptr) return 600;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), seconds);
  if (error != std::errc() || *end != '\0' || !(seconds > 0 && seconds <= 1e6))
    throw InvalidInput(fmt::format("{}={}: seconds above 0, to 1e6", kName, text));
  return seconds;
}

}  // namespace

PluginFiles add_plugins(const PluginOptions& options) {
  PluginFiles files;
  for (const std::string& file : options.files) {
    require_file(file);
    const std::string name = fs::path(file).filename().string();
    const auto known = files.emplace(name, fingerprint(file));
    if (!known.second)
      throw InvalidInput(
          fmt::format("--plugin: two files are called {}; a row says which it is of by this name", name));
    WorkerOptions limits;
    limits.whole_seconds = limits.ready_seconds = limits.answer_seconds = seconds_of_a_case();
    limits.before_start = [file, first = known.first->second] {
      if (fingerprint(file) != first) throw std::runtime_error("the file was changed since this command began");
    };
    const auto worker =
        std::make_shared<Worker>(fmt::format("the process of {}", name), command_of(file, options.device), limits);
    try {
      (void)worker->facts();
      add_rows(file, worker);
    } catch (const InvalidInput&) {
      throw;
    } catch (const std::exception& error) {
      throw InvalidInput(fmt::format("--plugin: {}", error.what()));
    }
  }
  return files;
}

std::string plugins_without_rows(const PluginFiles& files, const std::vector<Case>& cases, bool host) {
  std::string lines;
  for (const auto& [file, fingerprint] : files) {
    const auto of_file = [&name = file](const ImplementationPtr& one) { return one->plugin == name; };
    if (std::any_of(cases.begin(), cases.end(), [&](const Case& one) { return of_file(one.implementation); })) continue;
    std::vector<std::string> variants;
    bool run_here = false;
    for (const SuiteEntry& entry : suite().entries())
      for (const ImplementationPtr& one : entry.implementations)
        if (of_file(one)) {
          variants.push_back(fmt::format("{} of {}", one->name, entry.name()));
          run_here |= one->runs_on_platform(host);
        }
    lines +=
        fmt::format("--plugin: there is no row of {}: {} {}\n", file,
                    run_here ? "this selection leaves out" : fmt::format("a {} does not run", host ? "host" : "GPU"),
                    fmt::join(variants, ", "));
  }
  return lines;
}

std::string fact_of_plugin(const std::string& file) {
  return "plugin " + file;
}

void require_same_plugins(const RunFolder& folder, const PluginFiles& files) {
  for (const auto& [name, now] : files)
    for (const auto& [id, row] : folder.rows())
      if (row.plugin == name && folder.fact(fact_of_plugin(name)) != now)
        throw InvalidInput(
            fmt::format("{}: holds rows of another {}, which was changed since; give another --out, or "
                        "--fresh",
                        folder.path().string(), name));
}

}  // namespace noisefloor
