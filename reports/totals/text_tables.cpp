#include "reports/totals/text_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace noisefloor {
namespace {

bool is_of_numbers(const std::vector<Cells>& lines, std::size_t column) {
  return lines.size() > 1 && std::all_of(lines.begin() + 1, lines.end(), [&](const Cells& cells) {
           const std::string& cell = cells[column];
           return !cell.empty() && std::string_view("0123456789+-<").find(cell.front()) != std::string_view::npos;
         });
}

}  // namespace

std::string aligned(const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const Cells& cells : lines)
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  std::string text;
  for (const Cells& cells : lines) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) line += fmt::format("{:<{}}  ", cells[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string markdown_cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_' || c == '<' || c == '[') escaped += '\\';
    escaped += c == '\n' || c == '\r' ? ' ' : c;
  }
  return escaped;
}

std::string markdown_table(const std::vector<Cells>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += "|";
    for (const std::string& cell : lines[i]) text += " " + markdown_cell(cell) + " |";
    text += "\n";
    if (i > 0) continue;
    text += "|";
    for (std::size_t column = 0; column < lines[i].size(); ++column)
      text += is_of_numbers(lines, column) ? "---:|" : "---|";
    text += "\n";
  }
  return text;
}

}  // namespace noisefloor
