// Rows of plugins in the suite: kernels of a user's, each file loaded by a process of its own that measures its cases
// from beginning to end (bench/measure/worker.h, "measure"). This program only asks and writes the rows, so that a
// plugin that crashes, hangs or leaves is a row with the reason.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "reports/run/run_folder.h"

namespace noisefloor {

struct PluginOptions {
  std::vector<std::string> files;
  std::string device;  // as open_platform() takes it
};

// A file's name, and what tells its bytes from those of another one of this name.
using PluginFiles = std::map<std::string, std::string>;

// Starts the processes and adds the rows that they have to the suite, behind those of their ops. Throws InvalidInput
// that names the file and says what is expected.
PluginFiles add_plugins(const PluginOptions& options);

// A line for each file that none of the cases is of, with the reason; blank where there is none.
std::string plugins_without_rows(const PluginFiles& files, const std::vector<Case>& cases, bool host);

// Throws InvalidInput where the folder has rows of one of these files as it was before it was changed.
void require_same_plugins(const RunFolder& folder, const PluginFiles& files);
std::string fact_of_plugin(const std::string& file);  // its name in env.json

}  // namespace noisefloor
