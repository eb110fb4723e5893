// noisefloor._core: the catalogue as data, and a call of each op. Signatures and docstrings are made of that data in
// Python (noisefloor/_signatures.py).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <numeric>

#include "kernels/catalogue.h"
#include "python/call.h"
#include "python/call_key.h"
#include "python/tensor.h"

namespace nb = nanobind;

namespace noisefloor::python {

void define_op(nb::module_& m);         // bound_op.cpp
void define_plan(nb::module_& m);       // plan.cpp
void define_signature(nb::module_& m);  // signature.cpp

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

// The text of a problem and its fields that are not at their default. ValueError: what is wrong with them.
nb::tuple problem_data(const std::string& name, const nb::dict& given) {
  const Op& op = required(name);
  const std::string text = op.print(op.parse_pairs(pairs_of(given)));
  nb::dict fields;
  for (const KeyValue& pair : split_problem_text(text)) fields[pair.key.c_str()] = pair.value;
  return nb::make_tuple(text, fields);
}

// [(output, shape, its values in fp64)] by the op's oracle, of every field's value as text and of the inputs by name:
// what the tests hold calls to.
nb::list reference_data(const std::string& name, const nb::dict& values, const std::string& dtype, nb::dict inputs) {
  const Op& op = required(name);
  const AnyProblem problem = op.parse_pairs(pairs_of(values));
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
  define_signature(m);
  m.def("catalogue", catalogue_data);
  m.def("problem", problem_data);
  m.def("reference", reference_data);
  m.def("short_dtype", short_dtype);
  m.def("after_fork", after_fork);
  m.def("set_programmatic_launch", set_programmatic_launch, nb::arg("on"));
  m.attr("version") = NOISEFLOOR_VERSION;
  nb::set_leak_warnings(false);  // PyTorch keeps its operators to the end of the process, and they their op
}
