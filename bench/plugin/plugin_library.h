// A plugin's rows (noisefloor/plugin.h) as implementations of the suite's ops. They are for a process that may die of
// them: what a sweep knows of a plugin it asks such a process (bench/sweep/plugins.h).
#pragma once

#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/plugin/include/noisefloor/plugin.h"

namespace noisefloor {

struct PluginRow {
  std::string op;
  ImplementationPtr implementation;
};

// Each throws InvalidInput that begins with the file's name and says what is expected: of a file that is no shared
// library, that lacks the function, has another ABI version, a row without a launch, an op that is not known, or a name
// that is taken. `suite` must outlive the rows.
std::vector<PluginRow> load_plugin(const std::string& file, const Suite& suite);
std::vector<PluginRow> rows_of_plugin(const std::string& file, decltype(noisefloor_plugin_at)* rows,
                                      const Suite& suite);

// Throws InvalidInput where a row may not be called so: what it says begins with `file`.
void require_plugin_name(const std::string& file, const SuiteEntry& entry, const std::string& name);

// A suite of the same workloads with these rows behind their own.
Suite with_rows(const Suite& suite, const std::vector<PluginRow>& rows);

}  // namespace noisefloor
