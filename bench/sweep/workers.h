// Rows that other programs measure (bench/measure/worker.h).
//
// PyTorch's: which an op has, and the worker that measures them (baselines/pytorch). Plugins': kernels of a user's,
// each file loaded by a process of its own that measures its cases from beginning to end. This program only asks and
// writes the rows, so that a plugin that crashes, hangs or leaves is a row with the reason.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/worker.h"
#include "reports/run/run_folder.h"

namespace noisefloor {

// Of torch.compile(mode=max-autotune-no-cudagraphs), which takes 10 to 20 s a row: swept where it is asked for.
inline constexpr const char* kMaxAutotune = "torch_compile_max_autotune";

// How the names of peers' rows begin (baselines/peers).
inline const std::string kPeer = "peer_";

// Eager and compiled, and the peers that baselines/peers/<op> has; of attention in eager's place one row per backend of
// scaled_dot_product_attention, which would otherwise choose one of them by itself.
std::vector<ImplementationPtr> pytorch_implementations(std::string_view op);

// NOISEFLOOR_PLUGIN_SECONDS: how long a case of a user's file may take before its process counts as hung. Throws
// InvalidInput.
double seconds_of_a_case();

// A worker that runs: of NOISEFLOOR_PYTHON, python3, or .venv beside or above the program, the first that has a PyTorch
// which sees the device (CUDA's number). `max_autotune`: such rows will be asked for. Throws LibraryMissing with what
// each of them lacks.
std::unique_ptr<Worker> start_pytorch(int device, bool max_autotune);

// Leaves out the peers that the worker's Python does not have, which is said; not those that are `named`, whose rows
// say it. Throws InvalidInput where one of these has another version than it was written for.
void leave_out_peers(std::vector<Case>& cases, const std::vector<std::string>& named, Worker& worker);

// A file's name, and what tells its bytes from those of another one of this name.
using PluginFiles = std::map<std::string, std::string>;

// Starts the processes and adds the rows that they have to the suite, behind those of their ops. `device`: as
// open_platform() takes it. Throws InvalidInput that names the file and says what is expected.
PluginFiles add_plugins(const std::vector<std::string>& files, const std::string& device);

// A line for each file that none of the cases is of, with the reason; blank where there is none.
std::string plugins_without_rows(const PluginFiles& files, const std::vector<Case>& cases, bool host);

// Throws InvalidInput where the folder has rows of one of these files as it was before it was changed.
void require_same_plugins(const RunFolder& folder, const PluginFiles& files);
std::string fact_of_plugin(const std::string& file);  // its name in env.json

}  // namespace noisefloor
