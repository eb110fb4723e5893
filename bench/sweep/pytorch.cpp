#include "bench/sweep/pytorch.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "bench/sweep/problem_files.h"
#include "kernels/core/dynamic_library.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

// Where the Python package lies: beside bench/, in a clone as in a bundle.
fs::path package_root() {
  const fs::path root = default_problem_folder().parent_path().parent_path();
  if (!fs::is_regular_file(root / "baselines" / "pytorch" / "worker.py"))
    throw LibraryMissing(fmt::format("no baselines/pytorch in {}", root.string()));
  return root;
}

std::vector<std::string> pythons(const fs::path& root) {
  if (const char* named = std::getenv("NOISEFLOOR_PYTHON"); named != nullptr && *named != '\0')
    return {std::string(named).find('/') == std::string::npos ? named : fs::absolute(named).string()};
  std::vector<std::string> found = {"python3"};
  if (const fs::path own = root / ".venv" / "bin" / "python3"; fs::exists(own)) found.push_back(own.string());
  return found;
}

}  // namespace

std::vector<ImplementationPtr> pytorch_implementations(std::string_view op) {
  const bool attends = op == "attention" || op == "temporal_attention";
  std::vector<ImplementationPtr> rows;
  for (const char* name :
       attends ? std::vector{"torch_flash", "torch_cudnn", "torch_efficient"} : std::vector{"torch_eager"})
    rows.push_back(implementation_in_worker(name));
  for (const char* name : {"torch_compile", kMaxAutotune}) rows.push_back(implementation_in_worker(name));
  return rows;
}

std::unique_ptr<Worker> start_pytorch(const PyTorchOptions& options) {
  const fs::path root = package_root();
  const char* const path = std::getenv("PYTHONPATH");
  const std::string python_path = root.string() + (path != nullptr && *path != '\0' ? std::string(":") + path : "");
  std::string why;
  for (const std::string& python : pythons(root)) {
    ChildCommand command{{python, "-m", "baselines.pytorch.worker", "--device", std::to_string(options.device)},
                         {{"PYTHONPATH", python_path}},
                         root.string()};  // python -m looks there first, whatever the user's folder has
    WorkerOptions limits;
    if (options.max_autotune) {
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

}  // namespace noisefloor
