// The columns of sweep.csv as data, for noisefloor.load(): of the one table of columns, and nothing else of the
// reports.
#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "reports/run/figure.h"
#include "reports/run/sweep_csv.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

struct ShownColumn {
  int place;
  const char* label;
};
constexpr ShownColumn card() {
  return {0, ""};
}
constexpr ShownColumn table(int place, const char* label) {
  return {place, label};
}
enum : unsigned { kNeeded = 1, kCounter = 2, kAboveZero = 4, kHead = 8, kWide = 16, kFromOne = 32, kShare = 64 };

template <class Type>
constexpr const char* kColumnType = "text";
template <>
constexpr const char* kColumnType<Figure> = "number";
template <>
constexpr const char* kColumnType<std::optional<long>> = "count";

nb::dict column_of(const char* name, const char* type, const char* unit, ShownColumn shown, unsigned flags,
                   const char* description) {
  nb::dict data;
  data["name"] = name;
  data["type"] = type;
  data["unit"] = unit;
  data["place"] = shown.place;
  data["label"] = shown.label;
  data["needed"] = (flags & kNeeded) != 0;
  data["above_zero"] = (flags & kAboveZero) != 0;
  data["from_one"] = (flags & kFromOne) != 0;
  data["share"] = (flags & kShare) != 0;
  data["description"] = description;
  return data;
}

}  // namespace

void define_result_columns(nb::module_& m) {
  m.def("result_columns", [] {
    nb::list all;
#define NOISEFLOOR_CASE_COLUMN(name, ...) all.append(column_of(#name, "text", __VA_ARGS__));
#define NOISEFLOOR_COLUMN(Type, name, ...) all.append(column_of(#name, kColumnType<Type>, __VA_ARGS__));
#include "reports/run/columns.def"
    return all;
  });
  m.def("old_columns", [] {
    nb::dict all;
#define NOISEFLOOR_CASE_COLUMN(...)
#define NOISEFLOOR_COLUMN(...)
#define NOISEFLOOR_OLD_NAME(old, name) all[#old] = #name;
#include "reports/run/columns.def"
    return all;
  });
}

}  // namespace noisefloor::python
