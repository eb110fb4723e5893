#include "bench/plugin/plugin_library.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "bench/platform/refusal.h"
#include "kernels/core/fields.h"

namespace noisefloor {
namespace {

constexpr const char* kSymbol = "noisefloor_plugin_at";
constexpr std::size_t kMostRows = 64, kLongestName = 48;

std::string text_or_empty(const char* text) {
  return text == nullptr ? "" : text;
}

template <class Enum>
std::optional<Enum> named(const std::string& text, std::initializer_list<Enum> all) {
  for (const Enum one : all) {
    const std::string_view name = to_string(one);
    if (text == name || (name.ends_with('+') && text == name.substr(0, name.size() - 1))) return one;
  }
  return std::nullopt;
}

constexpr const char* kKinds = "host, naive, tiled, tensor_core, ptx or baseline";
constexpr const char* kArchitectures = "host, any, sm_75, sm_80 or sm_90a";

// Of the struct's first words alone: what stands behind them is another version's.
void require_abi(const std::string& file, const noisefloor_plugin& plugin) {
  if (plugin.abi != NOISEFLOOR_PLUGIN_ABI)
    throw refusal(
        "{}: its ABI version is {}, this program's is {}: compile it against the "
        "noisefloor/plugin.h of this version",
        file, plugin.abi, NOISEFLOOR_PLUGIN_ABI);
  if (plugin.size < sizeof(noisefloor_plugin))
    throw refusal(
        "{}: its noisefloor_plugin has {} bytes, at least {} are expected: set `size` to "
        "sizeof(noisefloor_plugin)",
        file, plugin.size, sizeof(noisefloor_plugin));
}

void add_row(const std::string& file, const noisefloor_plugin& plugin, Suite& suite) {
  require_abi(file, plugin);
  const std::string op = text_or_empty(plugin.op), name = text_or_empty(plugin.name), kind = text_or_empty(plugin.kind),
                    arch = text_or_empty(plugin.arch);
  std::vector<std::string> ops;
  for (const SuiteEntry& entry : suite.entries())
    if (!entry.whole_networks) ops.push_back(entry.name());
  const SuiteEntry* const entry = suite.find(op);
  if (entry == nullptr || entry->whole_networks)
    throw refusal("{}: unknown op '{}'{}; known: {}", file, op, did_you_mean(op, ops), fmt::join(ops, ", "));
  require_plugin_name(file, *entry, name);
  const auto found_kind = kind_named(kind);
  if (!found_kind) throw refusal("{}: {} has kind '{}', which is not {}", file, name, kind, kKinds);
  const auto found_arch = arch_named(arch);
  if (!found_arch) throw refusal("{}: {} has architecture '{}', which is not {}", file, name, arch, kArchitectures);
  if (*found_kind != Kind::baseline && (*found_kind == Kind::host) != (*found_arch == Arch::host))
    throw refusal("{}: {} has kind '{}' and architecture '{}': kind and architecture 'host' go together", file, name,
                  kind, arch);
  if (plugin.launch == nullptr) throw refusal("{}: {} has no launch", file, name);
  suite.add(op, plugin_implementation(*entry->workload, plugin, std::filesystem::path(file).filename().string(),
                                      *found_kind, *found_arch));
}

}  // namespace

std::optional<Kind> kind_named(const std::string& text) {
  return named(text, {Kind::host, Kind::naive, Kind::tiled, Kind::tensor_core, Kind::ptx, Kind::baseline});
}

std::optional<Arch> arch_named(const std::string& text) {
  return named(text, {Arch::host, Arch::any_gpu, Arch::sm75, Arch::sm80, Arch::sm90a});
}

void require_plugin_name(const std::string& file, const SuiteEntry& entry, const std::string& name) {
  const bool plain =
      !name.empty() && name.size() <= kLongestName &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  if (!plain)
    throw refusal("{}: a row's name is 1 to {} letters, digits and underscores, not '{}'", file, kLongestName, name);
  if (entry.find(name))
    throw refusal(
        "{}: {} already has a variant '{}'; give the row another name (noisefloor list "
        "variants --ops {})",
        file, entry.name(), name, entry.name());
  constexpr std::string_view kTaken[] = {"all", "own", "baseline", "library", "pytorch", "fastest", "networks"};
  if (name.starts_with("torch_") || name.starts_with("peer_") || name.starts_with("plan_") ||
      std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken))
    throw refusal("{}: '{}' is taken (torch_*, peer_*, plan_* and {}); give the row another name", file, name,
                  fmt::join(kTaken, ", "));
}

void add_plugin_rows(const std::string& file, decltype(noisefloor_plugin_at)* rows, Suite& suite) {
  std::uint32_t found = 0;
  for (; const noisefloor_plugin* plugin = rows(found); ++found) {
    if (found == kMostRows)
      throw refusal("{}: {} gives over {} rows; behind the last it returns null", file, kSymbol, kMostRows);
    add_row(file, *plugin, suite);
  }
  if (found == 0) throw refusal("{}: {} has no rows: {}(0) is null", file, file, kSymbol);
}

void load_plugin(const std::string& file, Suite& suite) {
  // A bare name would be looked for in the system's folders.
  const std::string path = std::filesystem::absolute(file).string();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw refusal("{}: cannot be loaded as a shared library (g++ or nvcc make one with -shared): {}", file, dlerror());
  void* const rows = dlsym(library, kSymbol);
  if (rows == nullptr)
    throw refusal("{}: has no function {}, which noisefloor/plugin.h declares (extern \"C\")", file, kSymbol);
  add_plugin_rows(file, reinterpret_cast<decltype(noisefloor_plugin_at)*>(rows), suite);
}

}  // namespace noisefloor
