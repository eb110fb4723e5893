#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/platform/child_process.h"
#include "bench/platform/refusal.h"
#include "bench/plugin/plugin_library.h"

namespace noisefloor {
namespace {

std::function<int(decltype(noisefloor_plugin_at)*)> serve_rows;  // Python is begun once in a process

int serve_from_python(decltype(noisefloor_plugin_at)* rows) {
  return serve_rows(rows);
}

// Its path, and below it where its library may be.
constexpr const char* kWhere = R"(import os, sys, sysconfig
of = sysconfig.get_config_var
print(sys.executable)
for folder in (of("LIBDIR"), os.path.join(sys.base_prefix, "lib"), of("LIBPL"), ""):
    print(os.path.join(folder or "", of("INSTSONAME") or ""))
print(f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so.1.0")
)";

std::vector<std::string> lines_of_python(const std::string& file, const std::string& python) {
  ChildProcess child({{python, "-c", kWhere}}, ChildRole::worker);
  while (child.output.descriptor >= 0) child.output.read_some();
  if (const int status = child.wait(); status != 0)
    throw refusal("{}: {} cannot be run: {}; NOISEFLOOR_PYTHON names another Python", file, python,
                  ending_words(status));
  std::vector<std::string> lines;
  std::string& text = child.output.text;
  for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
    lines.push_back(text.substr(0, end));
  return lines;
}

}  // namespace

int serve_python(const std::string& file, const std::string& script, int device,
                 std::function<int(decltype(noisefloor_plugin_at)*)> serve) {
  const char* const named = std::getenv("NOISEFLOOR_PYTHON");
  const std::string python = named != nullptr && *named != '\0' ? named : "python3";
  const std::vector<std::string> lines = lines_of_python(file, python);
  void* library = nullptr;
  for (std::size_t i = 1; i < lines.size() && library == nullptr; ++i)
    if (lines[i].find(".so") != std::string::npos) library = dlopen(lines[i].c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw refusal(
        "{}: {} has no shared library {} (on Debian: apt install the package of that name without .so); "
        "NOISEFLOOR_PYTHON names another Python",
        file, python, lines.empty() ? "libpython" : lines.back());
  auto* const main = reinterpret_cast<int (*)(int, char**)>(dlsym(library, "Py_BytesMain"));
  if (main == nullptr) throw refusal("{}: {} is older than Python 3.8", file, python);
  serve_rows = std::move(serve);
  // Python takes the descriptors of these, which streams of platform/console.h have not.
  if (std::FILE* const plain = fdopen(STDOUT_FILENO, "w")) stdout = plain;
  if (std::FILE* const plain = fdopen(STDERR_FILENO, "w")) stderr = plain;
  const std::string address = fmt::format("{}", reinterpret_cast<std::uintptr_t>(&serve_from_python));
  std::vector<std::string> arguments = {lines.front(), script, file, address, std::to_string(device)};
  return main(static_cast<int>(arguments.size()), pointers_to(arguments).data());
}

}  // namespace noisefloor
