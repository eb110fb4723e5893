// What Python's signatures, docstrings and stubs are made of: an op's tensors as data.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <set>

#include "python/call.h"
#include "python/call_key.h"
#include "python/tensor.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

using Names = std::vector<std::string>;

bool holds(const Symbols& symbols, const TensorRule& rule) {
  return symbols.evaluate(rule.condition).value_or(0) != 0;
}

// Those of a problem of these values.
Names tensors_of(const Op& op, const Symbols& symbols) {
  Names names;
  for (const TensorRule& rule : op.table.rules)
    if (holds(symbols, rule)) names.push_back(rule.name);
  return names;
}

// Whether a problem has a tensor whatever the values of these fields, which its conditions ask for.
bool is_always(const Op& op, const std::string& tensor, Symbols symbols, std::vector<std::size_t> fields) {
  if (fields.empty()) return std::ranges::count(tensors_of(op, symbols), tensor) > 0;
  Symbols::Symbol& field = symbols[fields.back()];
  fields.pop_back();
  for (std::int64_t value = 0; value <= (field.choices.empty() ? 1 : field.high); ++value) {
    field.value = value;
    if (!is_always(op, tensor, symbols, fields)) return false;
  }
  return true;
}

// Whether tensors of the usual problem do not say a field that has no default: a choice where two have the same ones.
bool is_open(const Op& op, std::size_t field, Symbols usual) {
  if (op.fields[field].fallback) return false;
  if (!op.fields[field].chosen())
    return std::ranges::none_of(op.table.rules, [&](const TensorRule& rule) {
      return rule.role != Role::out && holds(usual, rule) && std::ranges::any_of(rule.shape, [&](const char* extent) {
               return std::ranges::count(usual.fields_in(formula_of(extent)), field) > 0;
             });
    });
  std::set<Names> seen;
  for (std::int64_t value = 0; value <= usual[field].high; ++value) {
    usual[field].value = value;
    if (!seen.insert(tensors_of(op, usual)).second) return true;
  }
  return false;
}

nb::dict signature_data(const std::string& name) {
  const Op& op = required(name);
  Symbols usual = op.table.symbols;  // defaults, and the first of choices without one
  for (std::size_t i = 0; i < op.fields.size(); ++i)
    usual[i].value = usual[i].fallback || !op.fields[i].chosen() ? usual[i].fallback : Symbols::Value(0);
  nb::list forms, open;
  std::set<std::string> moving;
  nb::dict formulas;
  for (const TensorRule& rule : op.table.rules) {
    std::set<std::size_t> asked;
    nb::list shape;
    const auto note = [&](std::string_view formula) {
      for (const std::size_t field : usual.fields_in(formula))
        if (rule.role != Role::out) moving.insert(op.fields[field].name);
    };
    for (const TensorRule& form : op.table.rules)
      if (std::string_view(form.name) == rule.name)
        for (const std::size_t field : usual.fields_in(form.condition)) asked.insert(field);
    note(rule.condition);
    for (const char* const extent : rule.shape) {
      shape.append(extent);
      note(formula_of(extent));
    }
    forms.append(nb::make_tuple(rule.name, rule.meaning, rule.role == Role::out,
                                rule.dtype ? to_string(*rule.dtype) : "T",
                                is_always(op, rule.name, usual, {asked.begin(), asked.end()}), shape, rule.condition));
  }
  for (std::size_t i = 0; i < op.fields.size(); ++i)
    if (is_open(op, i, usual)) open.append(op.fields[i].name);
  for (const Symbols::Symbol& symbol : usual.all())
    if (symbol.formula != nullptr) formulas[std::string(symbol.name).c_str()] = symbol.formula;
  nb::dict data;
  data["forms"] = forms;                                           // of tensors: one for each shape
  data["usual"] = nb::cast(tensors_of(op, usual));                 // the tensors of a problem with defaults
  data["open"] = open;                                             // fields that these leave open
  data["moving"] = nb::cast(Names(moving.begin(), moving.end()));  // fields that inputs follow
  data["formulas"] = formulas;
  return data;
}

// Of a problem of these fields: (the values of all, [(name, shape, dtype or "T" for the row's, role)]).
nb::tuple tensors_data(const std::string& name, const nb::dict& given) {
  const Op& op = required(name);
  const AnyProblem problem = op.parse_pairs(pairs_of(given));
  nb::dict values;
  for (const KeyValue& pair : op.values(problem)) values[pair.key.c_str()] = pair.value;
  nb::list tensors;
  const std::vector<TensorSpec> specs = op.tensors(problem, DType::fp32), others = op.tensors(problem, DType::fp16);
  for (std::size_t i = 0; i < specs.size(); ++i)
    tensors.append(nb::make_tuple(specs[i].name, tuple_of(specs[i].shape),
                                  specs[i].dtype == others[i].dtype ? to_string(specs[i].dtype) : "T",
                                  specs[i].role == Role::out ? "out" : "in"));
  return nb::make_tuple(values, tensors);
}

}  // namespace

void define_signature(nb::module_& m) {
  m.def("signature", signature_data);
  m.def("tensors", tensors_data);
}

}  // namespace noisefloor::python
