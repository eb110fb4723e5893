// A plugin's rows (noisefloor/plugin.h) as implementations of the suite's ops. They are for a process that may die of
// them: what a sweep knows of a plugin it asks such a process (bench/sweep/workers.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "bench/measure/suite.h"
#include "bench/plugin/include/noisefloor/plugin.h"

namespace noisefloor {

// Adds the rows of a shared library to those of its ops. Throws InvalidInput that begins with the file's name and says
// what is expected: of a file that is no shared library, that lacks the function, has another ABI version, a row
// without a launch, an op that is not known, or a name that is taken.
void load_plugin(const std::string& file, Suite& suite);
void add_plugin_rows(const std::string& file, decltype(noisefloor_plugin_at)* rows, Suite& suite);

// Throws InvalidInput where a row may not be called so: what it says begins with `file`.
void require_plugin_name(const std::string& file, const SuiteEntry& entry, const std::string& name);

// As plugin.h has them, or to_string().
std::optional<Kind> kind_named(const std::string& text);
std::optional<Arch> arch_named(const std::string& text);

// A row as an implementation: its functions are called with the problem as they want it, what they return or throw
// becomes an exception that names the function. `workload` must outlive it; of the texts of `plugin` only the name is
// read.
ImplementationPtr plugin_implementation(const Workload& workload, const noisefloor_plugin& plugin,
                                        const std::string& file, Kind kind, Arch arch);

// A Python file as a plugin: this process becomes the Python of the user's choice, with its packages, by the shared
// library that it is in. There python_plugin.py reads the file, and gives its rows as plugin.h has them.
// Calls `serve` with the file's rows, once, and returns the exit code that it gave; Python's where the file could not
// be read, which says why on standard error. `script`: python_plugin.py. `device`: CUDA's number, below 0 the host.
// NOISEFLOOR_PYTHON, or python3. Throws InvalidInput that begins with the file's name where there is none that can be
// loaded.
int serve_python(const std::string& file, const std::string& script, int device,
                 std::function<int(decltype(noisefloor_plugin_at)*)> serve);

}  // namespace noisefloor
