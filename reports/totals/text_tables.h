// Tables, and reports of several, for a terminal and in GitHub-flavoured Markdown.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace noisefloor {

using Cells = std::vector<std::string>;  // of a line; the first line is the header, and all are as long

// Columns of numbers stand to the right.
std::string aligned(const std::vector<Cells>& lines);
std::string clipped(const std::string& text, std::size_t most);             // with "..." at its end
std::string cell_of(const std::optional<double>& value, const char* form);  // a "-" of none

// What a reader gets: a headline, and parts of a table and lines each. A part with neither is not shown.
struct TextPart {
  std::string title;
  std::vector<Cells> table;
  std::vector<std::string> lines = {};
};
struct TextReport {
  std::string headline;
  std::vector<TextPart> parts;
};
// The first `most` lines of a table, and how many more there are.
TextPart shortened_part(std::string title, std::vector<Cells> table, std::size_t most);

std::string terminal_text(const TextReport& report);  // the headline last
std::string markdown_text(const TextReport& report);  // what ends a cell or begins markup is escaped

}  // namespace noisefloor
