// Tables for a terminal and in GitHub-flavoured Markdown.
#pragma once

#include <string>
#include <vector>

namespace noisefloor {

using Cells = std::vector<std::string>;  // of a line; the first line is the header, and all are as long

std::string aligned(const std::vector<Cells>& lines);

// Columns of numbers stand to the right.
std::string markdown_table(const std::vector<Cells>& lines);
// What ends a cell or begins markup is escaped.
std::string markdown_cell(const std::string& text);

}  // namespace noisefloor
