// The files of reports/page, held by the program: a page needs nothing beside it.
#pragma once

#include <string_view>
#include <vector>

namespace noisefloor {

struct EmbeddedFile {
  std::string_view name;  // without its folder
  std::string_view text;
};

// Generated at build time (scripts/cmake/embed.cmake).
const std::vector<EmbeddedFile>& embedded_files();

}  // namespace noisefloor
