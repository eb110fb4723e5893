#include "reports/run/csv.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

namespace noisefloor {
namespace {

bool is_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return parse_number<double>(text).has_value();
}

// A spreadsheet would compute it, with whatever somebody's plugin, kernel or folder is called.
bool reads_as_formula(std::string_view field) {
  const std::size_t at = field.find_first_not_of('\'');
  if (at == std::string_view::npos || std::string_view("=+-@\t").find(field[at]) == std::string_view::npos)
    return false;
  return at > 0 || (field.size() > 1 && !is_number(field));
}

void take_off_apostrophe(std::string& field) {
  if (field.starts_with('\'') && reads_as_formula(field)) field.erase(0, 1);
}

}  // namespace

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
      if (fields.size() == most_columns) throw failure("over {} columns", most_columns);
      take_off_apostrophe(fields.back());
      fields.emplace_back();
    } else if (c == '"' && fields.back().empty()) {
      quoted = true;
    } else {
      fields.back() += c;
    }
  }
  if (quoted) throw std::runtime_error("a quote is not closed");
  take_off_apostrophe(fields.back());
  return fields;
}

std::string quote_csv(const std::string& field) {
  std::string one_line =
      (reads_as_formula(field) ? "'" : "") + field;  // one row is one line: an interrupted sweep is repaired by lines
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

std::size_t CsvFile::column(std::string_view name) const {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) throw wrong(1, "no column '{}'", name);
  return static_cast<std::size_t>(found - header.begin());
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (&field == &fields.front() ? "" : ",") + quote_csv(field);
  return line + "\n";
}

std::string CsvFile::text() const {
  std::string all = csv_line(header);
  for (const CsvLine& line : lines) all += csv_line(line.fields);
  return all;
}

void merge_csv_file(const fs::path& path, const CsvFile& added, std::initializer_list<std::string_view> key) {
  CsvFile table = fs::exists(path) ? read_csv(path) : CsvFile{path, added.header, {}};
  for (const std::string& name : added.header)
    if (std::find(table.header.begin(), table.header.end(), name) == table.header.end()) table.header.push_back(name);
  for (CsvLine& line : table.lines) line.fields.resize(table.header.size());
  std::vector<std::size_t> into_place;
  for (const std::string& name : added.header) into_place.push_back(table.column(name));
  const auto key_of = [&](const CsvFile& file, const CsvLine& line) {
    std::vector<std::string> fields;
    for (const std::string_view name : key) fields.push_back(line.fields[file.column(name)]);
    return fields;
  };
  std::map<std::vector<std::string>, CsvLine*> known;
  for (CsvLine& line : table.lines) known.emplace(key_of(table, line), &line);
  for (const CsvLine& line : added.lines) {
    CsvLine*& into = known[key_of(added, line)];
    if (into == nullptr)
      into = &table.lines.emplace_back(
          CsvLine{table.lines.size() + 2, std::vector<std::string>(table.header.size())});  // deques do not move
    for (std::size_t i = 0; i < added.header.size(); ++i) into->fields[into_place[i]] = line.fields[i];
  }
  write_atomically(path, table.text());
}

CsvFile read_csv(const fs::path& file, bool drop_incomplete) {
  std::string text = read_whole_file(file);
  if (drop_incomplete && !text.empty() && text.back() != '\n') text.resize(text.rfind('\n') + 1);

  CsvFile csv{file, {}, {}};
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
      throw csv.wrong(number, "{}", error.what());
    }
    if (csv.header.empty()) {
      csv.header = std::move(fields);
      std::set<std::string_view> names;
      for (const std::string& name : csv.header)
        if (!names.insert(name).second) throw csv.wrong(number, "the column '{}' is there twice", name);
      continue;
    }
    if (fields.size() != csv.header.size())
      throw csv.wrong(number, "{} columns, the header has {}", fields.size(), csv.header.size());
    csv.lines.push_back({number, std::move(fields)});
  }
  if (csv.header.empty()) throw failure("{}: empty, no header line", file.string());
  return csv;
}

}  // namespace noisefloor
