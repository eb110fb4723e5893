// A Python file as a plugin: this process becomes the Python of the user's choice, with its packages, by the shared
// library that it is in. There python_plugin.py reads the file, and gives its rows as plugin.h has them.
#pragma once

#include <functional>
#include <string>

#include "bench/plugin/include/noisefloor/plugin.h"

namespace noisefloor {

// Calls `serve` with the file's rows, once, and returns the exit code that it gave; Python's where the file could not
// be read, which says why on standard error. `script`: python_plugin.py. `device`: CUDA's number, below 0 the host.
// NOISEFLOOR_PYTHON, or python3. Throws InvalidInput that begins with the file's name where there is none that can be
// loaded.
int serve_python(const std::string& file, const std::string& script, int device,
                 std::function<int(decltype(noisefloor_plugin_at)*)> serve);

}  // namespace noisefloor
