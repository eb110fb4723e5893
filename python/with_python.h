// The GIL, and calls from C++ into Python, in threads that may outlive it.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

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

}  // namespace noisefloor::python
