// Command lines that are given on to another process, or remembered.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace noisefloor {

// `arguments` without these options and their values ("--out DIR", "--out=DIR"), and without these flags.
std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         std::initializer_list<std::string_view> options,
                                         std::initializer_list<std::string_view> flags = {});

}  // namespace noisefloor
