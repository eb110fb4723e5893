#include "bench/sweep/workers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/platform/fingerprint.h"
#include "bench/platform/refusal.h"
#include "bench/plugin/plugin_library.h"
#include "bench/sweep/problem_files.h"
#include "bench/sweep/suite.h"
#include "kernels/core/dynamic_library.h"
#include "kernels/core/fields.h"
#include "reports/run/csv.h"

namespace noisefloor {
namespace {

// Where the Python package lies: beside bench/, in a clone as in a bundle.
fs::path package_root() {
  const fs::path root = default_problem_folder().parent_path().parent_path();
  if (!fs::is_regular_file(root / "baselines" / "pytorch" / "worker.py"))
    throw LibraryMissing(fmt::format("no baselines/pytorch in {}", root.string()));
  return root;
}

// A peer is a file, baselines/peers/<op>/<name>.py.
std::set<std::string> peers_of(std::string_view op) {
  std::set<std::string> names;
  try {
    std::error_code none;  // of this op
    for (const auto& file : fs::directory_iterator(package_root() / "baselines" / "peers" / op, none))
      if (file.path().extension() == ".py") names.insert(kPeer + file.path().stem().string());
  } catch (const std::runtime_error&) {  // a program without its checkout has none
  }
  return names;
}

std::vector<std::string> pythons(const fs::path& root) {
  if (const char* named = std::getenv("NOISEFLOOR_PYTHON"); named != nullptr && *named != '\0')
    return {std::string(named).find('/') == std::string::npos ? named : fs::absolute(named).string()};
  std::vector<std::string> found = {"python3"};
  if (const fs::path own = root / ".venv" / "bin" / "python3"; fs::exists(own)) found.push_back(own.string());
  return found;
}

std::string fingerprint(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return Fingerprint().add(std::string(std::istreambuf_iterator<char>(stream), {})).text();
}

void require_file(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) throw refusal("--plugin: {}: no such file", file.string());
  if (!fs::is_regular_file(file, error))
    throw refusal("--plugin: {}: not a regular file; a shared library or a Python file (.py) is expected",
                  file.string());
}

ChildCommand command_of(const std::string& file, const std::string& device) {
  ChildCommand command{{"noisefloor", "worker", "--plugin", file}};
  command.program = "/proc/self/exe";
  if (!device.empty()) command.arguments.insert(command.arguments.end(), {"--device", device});
  return command;
}

void add_rows(const std::string& file, const std::shared_ptr<Worker>& worker) {
  const nlohmann::json answer = worker->ask({{"ask", "rows"}}, worker->options().start_seconds);
  for (const auto& row : answer.at("rows")) {
    const std::string op = row.at("op"), name = row.at("name");
    require_plugin_name(file, *suite().find(op), name);  // another plugin may have it
    add_to_suite(op, implementation_of_plugin(worker, fs::path(file).filename().string(), name,
                                              kind_named(row.at("kind")).value(), arch_named(row.at("arch")).value()));
  }
}

}  // namespace

std::vector<ImplementationPtr> pytorch_implementations(std::string_view op) {
  std::vector eager{"torch_eager"};
  if (op == "attention" || op == "temporal_attention") eager = {"torch_flash", "torch_cudnn", "torch_efficient"};
  if (op == "attention_backward") eager = {"torch_flash", "torch_cudnn"};
  std::vector<ImplementationPtr> rows;
  for (const char* name : eager) rows.push_back(implementation_in_worker(name));
  for (const char* name : {"torch_compile", kMaxAutotune}) rows.push_back(implementation_in_worker(name));
  for (const std::string& name : peers_of(op)) rows.push_back(implementation_in_worker(name));
  return rows;
}

void leave_out_peers(std::vector<Case>& cases, const std::vector<std::string>& named, Worker& worker) {
  const auto is_peer = [](const Case& one) { return one.implementation->name.starts_with(kPeer); };
  if (std::none_of(cases.begin(), cases.end(), is_peer)) return;
  std::vector<std::string> missing;
  const auto answer = worker.ask({{"ask", "peers"}}, worker.options().answer_seconds);
  for (const auto& [name, why] : answer.at("lacking").items()) {
    const bool wrong = why.at("wrong"), by_name = std::ranges::count(named, name) > 0;
    const std::string reason = why.at("reason");
    if (wrong && by_name) throw refusal("--variants {}: {}", name, reason);
    const auto is_its = [&key = name](const Case& one) { return one.implementation->name == key; };
    if (by_name || std::erase_if(cases, is_its) == 0) continue;  // its rows say what is missing
    if (wrong) fmt::print(stderr, "no rows of {}: {}\n", name, reason);
    if (!wrong) missing.push_back(name);
  }
  if (!missing.empty())
    fmt::print(stderr, "not installed (scripts/setup --peers), and without rows: {}\n", fmt::join(missing, ", "));
}

double seconds_of_a_case() {
  constexpr const char* kName = "NOISEFLOOR_PLUGIN_SECONDS";
  const char* const text = std::getenv(kName);
  if (text == nullptr) return 600;
  const double seconds = parse_number<double>(text).value_or(0);
  if (!(seconds > 0 && seconds <= 1e6)) throw refusal("{}={}: seconds above 0, to 1e6", kName, text);
  return seconds;
}

std::unique_ptr<Worker> start_pytorch(int device, bool max_autotune) {
  const fs::path root = package_root();
  const char* const path = std::getenv("PYTHONPATH");
  const std::string python_path = root.string() + (path != nullptr && *path != '\0' ? std::string(":") + path : "");
  std::string why;
  for (const std::string& python : pythons(root)) {
    ChildCommand command{{python, "-m", "baselines.pytorch.worker", "--device", std::to_string(device)},
                         {{"PYTHONPATH", python_path}},
                         root.string()};  // python -m looks there first, whatever the user's folder has
    WorkerOptions limits;
    if (max_autotune) {
      command.arguments.emplace_back("--max-autotune");
      limits.ready_seconds *= 4;  // a network has hundreds of kernels, each searched
    }
    auto worker = std::make_unique<Worker>("PyTorch's worker", std::move(command), limits);
    try {
      (void)worker->facts();
      return worker;
    } catch (const WorkerGone& error) {
      why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", python, error.what());
    }
  }
  throw LibraryMissing(why);
}

PluginFiles add_plugins(const std::vector<std::string>& files, const std::string& device) {
  PluginFiles found;
  for (const std::string& file : files) {
    require_file(file);
    const std::string name = fs::path(file).filename().string();
    const auto known = found.emplace(name, fingerprint(file));
    if (!known.second) throw refusal("--plugin: two files are called {}; a row says which it is of by this name", name);
    WorkerOptions limits;
    limits.whole_seconds = limits.ready_seconds = limits.answer_seconds = seconds_of_a_case();
    limits.before_start = [file, first = known.first->second] {
      if (fingerprint(file) != first) throw std::runtime_error("the file was changed since this command began");
    };
    const auto worker =
        std::make_shared<Worker>(fmt::format("the process of {}", name), command_of(file, device), limits);
    try {
      (void)worker->facts();
      add_rows(file, worker);
    } catch (const InvalidInput&) {
      throw;
    } catch (const std::exception& error) {
      throw refusal("--plugin: {}", error.what());
    }
  }
  return found;
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
        throw refusal(
            "{}: holds rows of another {}, which was changed since; give another --out, or "
            "--fresh",
            folder.path().string(), name);
}

}  // namespace noisefloor
