// A Python function of named arguments, made of a C++ one, that costs a call as little as one written in C.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace noisefloor::python {

inline constexpr std::size_t kMostArguments = 64;

// `name` is for messages. Takes its arguments by position, in the order of the names, and by name; those that are not
// given are None. `call` gets them in that order. Throws as the functions that nanobind binds.
nanobind::object make_function(const std::string& name, std::vector<std::string> names,
                               std::function<nanobind::object(PyObject* const*)> call);

}  // namespace noisefloor::python
