#include "reports/run/csv.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace noisefloor {

std::vector<std::string> split_csv_line(std::string_view line, std::size_t most_columns) {
  std::vector<std::string> fields;
  // At once: an array that doubles as it grows would take many times the size of a line of commas.
  fields.reserve(std::min(most_columns, static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1));
  fields.emplace_back();
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      if (c != '"') {
        fields.back() += c;
      } else if (i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += '"';
        ++i;
      } else {
        quoted = false;
        if (i + 1 < line.size() && line[i + 1] != ',') throw std::runtime_error("text after a closing quote");
      }
    } else if (c == ',') {
      if (fields.size() == most_columns) throw std::runtime_error(fmt::format("over {} columns", most_columns));
      fields.emplace_back();
    } else if (c == '"' && fields.back().empty()) {
      quoted = true;
    } else {
      fields.back() += c;
    }
  }
  if (quoted) throw std::runtime_error("a quote is not closed");
  return fields;
}

std::string quote_csv(const std::string& field) {
  std::string one_line = field;  // one row is one line: an interrupted sweep is repaired by lines
  for (char& c : one_line)
    if (c == '\n' || c == '\r') c = ' ';
  if (one_line.find_first_of(",\"") == std::string::npos) return one_line;
  std::string quoted = "\"";
  for (const char c : one_line) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

void write_atomically(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path partial = file.string() + fmt::format(".{}.partial", getpid());
  std::ofstream stream(partial, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  std::error_code error;
  if (stream) std::filesystem::rename(partial, file, error);
  if (stream && !error) return;
  const std::string why = stream ? error.message() : "folder missing or not writable, or disk full";
  std::filesystem::remove(partial, error);
  throw std::runtime_error(fmt::format("{}: cannot be written: {}", file.string(), why));
}

CsvFile read_csv(const std::filesystem::path& file, bool drop_incomplete) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream || std::filesystem::is_directory(file))
    throw std::runtime_error(fmt::format("{}: cannot be read{}", file.string(),
                                         std::filesystem::is_directory(file) ? ": it is a folder" : ""));
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (drop_incomplete && !text.empty() && text.back() != '\n') text.resize(text.rfind('\n') + 1);

  CsvFile csv;
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // UTF-8's, as spreadsheets write it
  std::size_t number = 0;
  for (std::string_view rest = std::string_view(text).substr(text.starts_with(kMark) ? kMark.size() : 0);
       !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (line.empty()) continue;
    std::vector<std::string> fields;
    try {
      if (line.find('\0') != std::string_view::npos) throw std::runtime_error("a zero byte");
      fields = split_csv_line(line);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", file.string(), number, error.what()));
    }
    if (csv.header.empty()) {
      csv.header = std::move(fields);
      continue;
    }
    if (fields.size() != csv.header.size())
      throw std::runtime_error(
          fmt::format("{}:{}: {} columns, the header has {}", file.string(), number, fields.size(), csv.header.size()));
    csv.lines.push_back({number, std::move(fields)});
  }
  if (csv.header.empty()) throw std::runtime_error(fmt::format("{}: empty, no header line", file.string()));
  return csv;
}

}  // namespace noisefloor
