// report.html: a run as one interactive page. What it shows is decided here; how, in reports/page.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"

namespace noisefloor {

// Columns as the pages' data hold them: texts once in a dictionary, numbers as they are.
// {"values": [...], "index": [...]}: each text once.
nlohmann::json text_column(const std::vector<std::string>& texts);

// {"count": 2, "names": [...], "columns": {name: column}, "about": {name: what the page knows of the column}}. Columns
// that this program does not know come last; one is a number where all of its texts read so.
nlohmann::json rows_json(const std::vector<SweepRow>& rows);

// Everything of the run that the page shows: the rows by column (texts as indices into a dictionary, which keeps 5,000
// rows near 1 MB), ceilings with the datasheet's, the networks' problems, the environment, and what the run lacks.
// `rows` are those of the folder's sweep.csv, completed (complete_rows), with their samples. Throws std::runtime_error
// naming a file that is not what it should be.
nlohmann::json run_report(const fs::path& folder, const std::vector<SweepRow>& rows,
                          const std::map<CaseId, RowSamples>& samples = {});

// Writes `folder`/report.html. Without the plotting library the page has no plots and says why; so does the message
// that is returned (else empty).
std::string write_run_report(const fs::path& folder, const std::vector<SweepRow>& rows,
                             const std::map<CaseId, RowSamples>& samples);

}  // namespace noisefloor
