#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>

#include "kernels/core/op.h"
#include "python/with_python.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

struct Bound {
  Function function;
  PyMethodDef definition;
};

Bound*& bound_of(PyObject* holder) {
  return *static_cast<Bound**>(PyModule_GetState(holder));
}

// A function's holder, which deletes what it holds. It is a module, as pickle finds functions of modules by their name.
PyModuleDef holder_definition = {PyModuleDef_HEAD_INIT,
                                 "noisefloor._function",
                                 nullptr,
                                 sizeof(Bound*),
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 [](void* dead) { delete bound_of(static_cast<PyObject*>(dead)); }};

nb::object with_arguments(const Function& function, PyObject* const* given, std::size_t count, PyObject* keywords) {
  const auto refuse = [&](const std::string& what) { throw nb::type_error((function.name + "() " + what).c_str()); };
  std::array<PyObject*, kMostArguments> arguments;
  arguments.fill(Py_None);
  std::fill_n(arguments.begin(), function.required, nullptr);
  if (count > function.positional)
    refuse(fmt::format("takes {} positional arguments but {} were given", function.positional, count));
  std::copy_n(given, count, arguments.begin());
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
  for (Py_ssize_t i = 0; i < named; ++i) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(keywords, i), &size);
    if (text == nullptr) nb::raise_python_error();
    const std::string_view name(text, static_cast<std::size_t>(size));
    const auto found = std::ranges::find(function.arguments, name);
    if (found == function.arguments.end()) refuse(fmt::format("got an unexpected keyword argument '{}'", name));
    const auto place = static_cast<std::size_t>(found - function.arguments.begin());
    if (place < count) refuse(fmt::format("got multiple values for argument '{}'", name));
    arguments[place] = given[count + static_cast<std::size_t>(i)];
  }
  for (std::size_t i = count; i < function.required; ++i)
    if (arguments[i] == nullptr)
      refuse(fmt::format("missing required positional argument: '{}'", function.arguments[i]));
  return function.call(arguments.data());
}

// Nothing but what a C++ function throws is caught: glibc unwinds a thread that Python ends by an exception of its own.
PyObject* enter(PyObject* holder, PyObject* const* given, Py_ssize_t count, PyObject* keywords) {
  const Function& function = bound_of(holder)->function;
  try {
    return with_arguments(function, given, static_cast<std::size_t>(count), keywords).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const InvalidInput& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace

nb::object make_function(Function function) {
  if (function.arguments.size() > kMostArguments) throw std::length_error("a function of too many arguments");
  auto bound = std::make_unique<Bound>(Bound{std::move(function), {}});
  const Function& its = bound->function;
  bound->definition = {its.name.c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(enter)),
                       METH_FASTCALL | METH_KEYWORDS, its.doc.c_str()};
  const nb::object holder = nb::steal(PyModule_Create(&holder_definition));
  if (!holder) nb::raise_python_error();
  Bound& kept = *(bound_of(holder.ptr()) = bound.release());
  const nb::str module(kept.function.module.c_str());
  nb::object made = nb::steal(PyCFunction_NewEx(&kept.definition, holder.ptr(), module.ptr()));
  if (!made) nb::raise_python_error();
  return made;
}

}  // namespace noisefloor::python
