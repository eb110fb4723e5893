// A Python function of named arguments, made of a C++ one, that costs a call as little as one written in C.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace noisefloor::python {

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
