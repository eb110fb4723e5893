// Columns as the pages' data hold them: texts once in a dictionary, numbers as they are.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reports/run/sweep_csv.h"

namespace noisefloor {

std::optional<double> finite_number(const std::string& text);  // nothing where it is anything else

// {"values": [...], "index": [...]}: each text once.
nlohmann::json text_column(const std::vector<std::string>& texts);

// {"count": 2, "names": [...], "columns": {name: column}, "about": {name: what the page knows of the column}}. Columns
// that this program does not know come last; one is a number where all of its texts read so.
nlohmann::json rows_json(const std::vector<SweepRow>& rows);

}  // namespace noisefloor
