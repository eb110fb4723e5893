#include "python/function.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>

#include "kernels/core/op.h"

namespace nb = nanobind;

namespace noisefloor::python {
namespace {

constexpr char kCapsule[] = "noisefloor.function";

struct Function {
  std::string name;
  std::vector<std::string> names;
  std::function<nb::object(PyObject* const*)> call;
};

nb::object with_arguments(const Function& function, PyObject* const* given, std::size_t count, PyObject* keywords) {
  std::array<PyObject*, kMostArguments> arguments;
  arguments.fill(Py_None);
  if (count > function.names.size())
    throw nb::type_error(
        fmt::format("{} takes {} arguments, not {}", function.name, function.names.size(), count).c_str());
  std::copy_n(given, count, arguments.begin());
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
  for (Py_ssize_t i = 0; i < named; ++i) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(keywords, i), &size);
    if (text == nullptr) nb::raise_python_error();
    const std::string_view name(text, static_cast<std::size_t>(size));
    const auto found = std::ranges::find(function.names, name);
    if (found == function.names.end())
      throw nb::type_error(fmt::format("{} has no argument '{}'", function.name, name).c_str());
    const auto place = static_cast<std::size_t>(found - function.names.begin());
    if (place < count) throw nb::type_error(fmt::format("{}: '{}' is given twice", function.name, name).c_str());
    arguments[place] = given[count + static_cast<std::size_t>(i)];
  }
  return function.call(arguments.data());
}

// Nothing but what a C++ function throws is caught: glibc unwinds a thread that Python ends by an exception of its own.
PyObject* enter(PyObject* capsule, PyObject* const* given, Py_ssize_t count, PyObject* keywords) {
  const auto& function = *static_cast<const Function*>(PyCapsule_GetPointer(capsule, kCapsule));
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

nb::object make_function(const std::string& name, std::vector<std::string> names,
                         std::function<nb::object(PyObject* const*)> call) {
  static PyMethodDef definition{"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(enter)),
                                METH_FASTCALL | METH_KEYWORDS, nullptr};
  if (names.size() > kMostArguments) throw std::length_error("a function of too many arguments");
  auto function = std::make_unique<Function>(Function{name, std::move(names), std::move(call)});
  const nb::object capsule = nb::steal(PyCapsule_New(function.get(), kCapsule, [](PyObject* dead) {
    delete static_cast<Function*>(PyCapsule_GetPointer(dead, kCapsule));
  }));
  if (!capsule) nb::raise_python_error();
  (void)function.release();
  nb::object made = nb::steal(PyCFunction_NewEx(&definition, capsule.ptr(), nullptr));
  if (!made) nb::raise_python_error();
  return made;
}

}  // namespace noisefloor::python
