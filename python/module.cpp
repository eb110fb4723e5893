// noisefloor._core: the catalogue as data, and a call of each op. Signatures and docstrings are made of that data in
// Python (noisefloor/_signatures.py).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/catalogue.h"
#include "python/arguments.h"
#include "python/call.h"
#include "python/tensor.h"

namespace nb = nanobind;

namespace noisefloor::python {

void define_op(nb::module_& m);    // bound_op.cpp
void define_plan(nb::module_& m);  // plan.cpp

namespace {

nb::dict field_data(const FieldInfo& field) {
  nb::dict data;
  data["name"] = field.name;
  data["meaning"] = field.meaning;
  data["type"] = to_string(field.type);
  data["range"] = field.range();  // to be printed
  data["choices"] = nb::cast(field.choices);
  data["default"] = field.fallback ? nb::cast(*field.fallback) : nb::none();
  return data;
}

nb::dict variant_data(const AnyVariant& variant) {
  nb::dict data;
  data["name"] = variant.name;
  data["kind"] = to_string(variant.kind);
  data["arch"] = to_string(variant.arch);
  data["built"] = variant.built;
  data["not_written"] = variant.not_written ? nb::cast(*variant.not_written) : nb::none();
  return data;
}

nb::list catalogue_data() {
  nb::list all;
  for (const Op& op : catalogue()) {
    nb::dict data;
    nb::list dtypes, fields, variants;
    for (const DType dtype : op.dtypes) dtypes.append(to_string(dtype));
    for (const FieldInfo& field : op.fields) fields.append(field_data(field));
    for (const AnyVariant& variant : op.variants) variants.append(variant_data(variant));
    data["name"] = op.name;
    data["computes"] = op.computes;
    data["dtypes"] = dtypes;
    data["fields"] = fields;
    data["variants"] = variants;
    all.append(data);
  }
  return all;
}

// ---- Tensors, of which signatures, docstrings and stubs are made

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
    forms.append(nb::make_tuple(rule.name, rule.meaning, rule.role == Role::out, rule.role == Role::inout,
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
nb::tuple tensors_data(const std::string& name, const std::string& given) {
  const Op& op = required(name);
  const AnyProblem problem = op.parse(given);
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

// The text of a problem and its fields that are not at their default. ValueError: what is wrong with them.
nb::tuple problem_data(const std::string& name, const std::string& given) {
  const Op& op = required(name);
  const std::string text = op.print(op.parse(given));
  nb::dict fields;
  for (const KeyValue& pair : split_problem_text(text)) fields[pair.key.c_str()] = pair.value;
  return nb::make_tuple(text, fields);
}

// [(output, shape, its values in fp64)] by the op's oracle, of a problem's text and of the inputs by name:
// what the tests hold calls to.
nb::list reference_data(const std::string& name, const std::string& values, const std::string& dtype, nb::dict inputs) {
  const Op& op = required(name);
  const AnyProblem problem = op.parse(values);
  const DType row = parse_dtype(dtype).value();
  const std::vector<TensorSpec> specs = op.tensors(problem, row);
  std::vector<HostTensor> tensors;
  for (const TensorSpec& spec : specs) {
    tensors.push_back({spec.dtype, nullptr});
    if (spec.role == Role::out) continue;
    const Tensor tensor = read_tensor(inputs[spec.name], {name, spec.name}, false);
    if (tensor.dtype != spec.dtype || !std::ranges::equal(tensor.shape, spec.shape))
      throw InvalidInput(name + ": '" + spec.name + "' is of another type or shape");
    tensors.back().data = tensor.data;
  }
  nb::list found;
  for (std::size_t output = 0; output < specs.size(); ++output) {
    if (specs[output].role == Role::in) continue;
    std::vector<std::int64_t> elements(static_cast<std::size_t>(specs[output].elements()));
    std::iota(elements.begin(), elements.end(), std::int64_t{0});
    std::vector<double> result(elements.size());
    op.reference(problem, row, tensors, output, elements, result);
    found.append(nb::make_tuple(specs[output].name, tuple_of(specs[output].shape), result));
  }
  return found;
}

}  // namespace
}  // namespace noisefloor::python

NB_MODULE(_core, m) {
  using namespace noisefloor::python;
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const noisefloor::InvalidInput& invalid) {
      PyErr_SetString(PyExc_ValueError, invalid.what());
    }
  });
  define_op(m);
  define_plan(m);
  m.def("catalogue", catalogue_data);
  m.def("signature", signature_data);
  m.def("tensors", tensors_data);
  m.def("problem", problem_data);
  m.def("reference", reference_data);
  m.def("short_dtype", short_dtype);
  m.def("after_fork", after_fork);
  m.def("set_programmatic_launch", set_programmatic_launch, nb::arg("on"));
  m.attr("version") = NOISEFLOOR_VERSION;
  nb::set_leak_warnings(false);  // PyTorch keeps its operators to the end of the process, and they their op
}
