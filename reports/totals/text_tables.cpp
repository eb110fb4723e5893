#include "reports/totals/text_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace noisefloor {
namespace {

bool is_of_numbers(const std::vector<Cells>& lines, std::size_t column) {
  return lines.size() > 1 && std::all_of(lines.begin() + 1, lines.end(), [&](const Cells& cells) {
           const std::string& cell = cells[column];
           return !cell.empty() && std::string_view("0123456789+-<*").find(cell.front()) != std::string_view::npos;
         });
}

std::string markdown_cell(const std::string& text) {
  constexpr std::size_t kMost = 200;  // names of a library's templates and reasons fill pages
  std::string escaped;
  for (const char c : clipped(text, kMost)) {
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

bool is_empty(const TextPart& part) {
  return part.table.size() <= 1 && part.lines.empty();
}

}  // namespace

std::string clipped(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

std::string cell_of(const std::optional<double>& value, const char* form) {
  return value ? fmt::format(fmt::runtime(form), *value) : "-";
}

std::string aligned(const std::vector<Cells>& lines) {
  std::vector<std::string> texts(lines.size());
  for (std::size_t column = 0; column < lines.front().size(); ++column) {
    std::size_t width = 0;
    for (const Cells& cells : lines) width = std::max(width, cells[column].size());
    const bool right = is_of_numbers(lines, column);
    for (std::size_t i = 0; i < lines.size(); ++i)
      texts[i] += fmt::format(fmt::runtime(right ? "{:>{}}  " : "{:<{}}  "), lines[i][column], width);
  }
  for (std::string& text : texts) text.erase(text.find_last_not_of(' ') + 1);
  return fmt::format("{}\n", fmt::join(texts, "\n"));
}

TextPart shortened_part(std::string title, std::vector<Cells> table, std::size_t most) {
  TextPart part{std::move(title), std::move(table)};
  if (part.table.size() <= most + 1) return part;
  part.lines.push_back(fmt::format("not shown: {} more", part.table.size() - most - 1));
  part.table.resize(most + 1);
  return part;
}

std::string terminal_text(const TextReport& report) {
  std::string text;
  for (const TextPart& part : report.parts) {
    if (is_empty(part)) continue;
    if (!part.title.empty()) text += "\n" + part.title + "\n";
    if (part.table.size() > 1) text += aligned(part.table);
    for (const std::string& line : part.lines) text += line + "\n";
  }
  return text + (text.empty() ? "" : "\n") + report.headline + "\n";
}

std::string markdown_text(const TextReport& report) {
  std::string text = "## noisefloor: " + markdown_cell(report.headline) + "\n\n";
  for (const TextPart& part : report.parts) {
    if (is_empty(part)) continue;
    if (!part.title.empty()) text += "### " + markdown_cell(part.title) + "\n\n";
    if (part.table.size() > 1) text += markdown_table(part.table) + "\n";
    for (const std::string& line : part.lines) text += markdown_cell(line) + "\n\n";
  }
  return text;
}

}  // namespace noisefloor
