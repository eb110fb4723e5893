#include "reports/page/run_report.h"

#include <cmath>
#include <unordered_map>

#include "reports/run/columns.h"
#include "reports/run/csv.h"

namespace noisefloor {
namespace {

using Json = nlohmann::json;

// [1.5, null, ...]; nothing where a value is neither a number nor blank.
std::optional<Json> number_column(const std::vector<std::string>& texts) {
  Json numbers = Json::array();
  for (const std::string& text : texts) {
    const auto value = parse_number<double>(text);
    if (value ? !std::isfinite(*value) : !text.empty()) return std::nullopt;
    numbers.push_back(value ? Json(*value) : Json());
  }
  return numbers;
}

Json about(const SweepColumn& column) {
  return {{"unit", column.unit},
          {"text", column.text()},
          {"head", column.is(ColumnInfo::kHead)},
          {"wide", column.is(ColumnInfo::kWide)},
          {"description", column.description},
          {"place", column.shown.place},
          {"label", column.shown.label}};
}

}  // namespace

nlohmann::json text_column(const std::vector<std::string>& texts) {
  Json values = Json::array(), index = Json::array();
  std::unordered_map<std::string, std::size_t> place;
  for (const std::string& text : texts) {
    const auto [found, is_new] = place.try_emplace(text, place.size());
    if (is_new) values.push_back(text);
    index.push_back(found->second);
  }
  return {{"values", std::move(values)}, {"index", std::move(index)}};
}

nlohmann::json rows_json(const std::vector<SweepRow>& rows) {
  Json names = Json::array(), columns = Json::object(), abouts = Json::object();
  std::vector<std::string> texts(rows.size());
  for (const SweepColumn& column : sweep_columns()) {
    Json numbers = Json::array();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (column.text())
        texts[i] = column.write(rows[i]);
      else
        numbers.push_back(column.number(rows[i]) ? Json(*column.number(rows[i])) : Json());
    }
    names.push_back(column.name);
    columns[column.name] = column.text() ? text_column(texts) : numbers;
    abouts[column.name] = about(column);
  }
  for (const std::string& name : other_columns(rows)) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto found = rows[i].others.find(name);
      texts[i] = found == rows[i].others.end() ? "" : found->second;
    }
    const auto numbers = number_column(texts);
    names.push_back(name);
    columns[name] = numbers ? *numbers : text_column(texts);
    abouts[name] = {{"unit", ""},        {"text", !numbers}, {"head", false}, {"wide", false},
                    {"description", ""}, {"place", 0},       {"label", ""}};
  }
  return {{"count", rows.size()}, {"names", names}, {"columns", columns}, {"about", abouts}};
}

}  // namespace noisefloor
