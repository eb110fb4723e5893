// The GIL, calls from C++ into Python in threads that may outlive it, and Python's functions of C++.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace noisefloor::python {

// Where Python has ended meanwhile, it unwinds a daemon thread that wants the GIL back, which nanobind and destructors
// do not survive: the thread waits here for the process to end.
template <class Work>
decltype(auto) outlive_python(const Work& work) {
  try {
    return work();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// Other Python threads run as long as it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    outlive_python([&] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// An attribute that each call asks for; None where there is none. The name is made and hashed once.
template <auto& name>
nanobind::object asked_often(nanobind::handle object) {
  static PyObject* const interned = PyUnicode_InternFromString(name);
  PyObject* const value = PyObject_GetAttr(object.ptr(), interned);
  if (value != nullptr) return nanobind::steal(value);
  PyErr_Clear();
  return nanobind::none();
}

// A module that was imported; null where it was not, or is kept from being.
template <auto& name>
nanobind::object imported() {
  static PyObject* const interned = PyUnicode_InternFromString(name);
  nanobind::object found = nanobind::steal(PyImport_GetModule(interned));
  PyErr_Clear();
  return found && !found.is_none() ? found : nanobind::object();
}
inline constexpr char kTorch[] = "torch";

// What the caller's framework does for a call: a function of noisefloor._frameworks, looked up once. The GIL guards it;
// a static's own guard would wait for a thread that waits for the GIL.
template <auto& name, class... Arguments>
nanobind::object framework(const Arguments&... arguments) {
  static PyObject* found = nullptr;
  if (found == nullptr)
    found = outlive_python([] {
      return nanobind::object(nanobind::module_::import_("noisefloor._frameworks").attr(name)).release().ptr();
    });
  const nanobind::object objects[] = {nanobind::cast(arguments)...};
  PyObject* given[sizeof...(arguments)];
  for (std::size_t i = 0; i < sizeof...(arguments); ++i) given[i] = objects[i].ptr();
  PyObject* const result =
      outlive_python([&] { return PyObject_Vectorcall(found, given, sizeof...(arguments), nullptr); });
  if (result == nullptr) nanobind::raise_python_error();
  return nanobind::steal(result);
}

// A Python function of named arguments, made of a C++ one, that costs a call as little as one written in C.
inline constexpr std::size_t kMostArguments = 64;

struct Function {
  std::string name, module, doc;  // doc begins with the signature that inspect shows: "name(a, *, b=1)\n--\n\n"
  std::vector<std::string> arguments;
  std::size_t required = 0, positional = 0;                // the first so many must be given, may be given by position
  std::function<nanobind::object(PyObject* const*)> call;  // takes all in that order, None where one is not given
};

// Throws as the functions that nanobind binds, and TypeError as Python itself where arguments are wrong or missing.
nanobind::object make_function(Function function);

}  // namespace noisefloor::python
