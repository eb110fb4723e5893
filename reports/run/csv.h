// Lines of comma-separated text (RFC 4180 quoting), for files whose columns are known only at run time.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/run/files.h"

namespace noisefloor {

inline constexpr std::size_t kMaxCsvColumns = 256;  // far above any file of ours

// The fields of one line. Throws std::runtime_error on an unclosed quote, text after a closing one or too many fields.
std::vector<std::string> split_csv_line(std::string_view line, std::size_t most_columns = kMaxCsvColumns);
// Text that a spreadsheet would take for a formula (=1+1) gets an apostrophe in front, which split_csv_line takes off.
std::string quote_csv(const std::string& field);

std::string csv_line(const std::vector<std::string>& fields);  // quoted, with a line end
template <class... Fields>
std::string csv_row(const Fields&... fields) {
  return csv_line({fmt::format("{}", fields)...});
}

// The number that a text is, all of it; nothing for any other.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

struct CsvLine {
  std::size_t number;  // in the file, from 1
  std::vector<std::string> fields;
};
struct CsvFile {
  fs::path file;
  std::vector<std::string> header;  // no name twice
  std::deque<CsvLine> lines;        // in pieces: one array would take many times the size of a file of short lines

  // The place of a column. Throws std::runtime_error naming file and column where it is not there.
  std::size_t column(std::string_view name) const;
  std::string text() const;
  // What is wrong with a line, in words, behind its place.
  template <class... Words>
  std::runtime_error wrong(std::size_t number, fmt::format_string<Words...> form, Words&&... words) const {
    return failure("{}:{}: {}", file.string(), number, fmt::format(form, std::forward<Words>(words)...));
  }
};
// Puts the lines of `added` into a file, which may not be there yet. A line whose fields of the `key` columns are those
// of a line that is there changes that one, others go to the end. Columns are found by name; what only one of the
// tables has is kept, and blank for the other's lines.
void merge_csv_file(const fs::path& path, const CsvFile& added, std::initializer_list<std::string_view> key);

// Reads a file, checks that every line has as many fields as the header, and skips empty lines. An incomplete last line
// (no line end) is dropped when `drop_incomplete`. Lines end with LF or CR LF. Throws std::runtime_error naming file
// and line.
CsvFile read_csv(const fs::path& file, bool drop_incomplete = false);

}  // namespace noisefloor
