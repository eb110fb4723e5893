#include "bench/counters/kernel_resources.h"

namespace noisefloor {

std::string short_kernel_name(std::string_view demangled) {
  std::string name(demangled);
  for (const std::string_view left_out : {"(anonymous namespace)::", "noisefloor::"})
    for (std::size_t at = name.find(left_out); at != std::string::npos; at = name.find(left_out, at))
      name.erase(at, left_out.size());
  // The parameters are the parenthesis that closes the name, and what is before a space outside of all brackets is the
  // return type.
  std::size_t end = name.size(), begin = 0;
  if (name.ends_with(')')) {
    int depth = 0;
    do {
      --end;
      depth += name[end] == ')' ? 1 : name[end] == '(' ? -1 : 0;
    } while (end > 0 && depth > 0);
    if (depth != 0) end = name.size();
  }
  int depth = 0;
  for (std::size_t i = 0; i < end; ++i) {
    if (name[i] == '<' || name[i] == '(' || name[i] == '{') ++depth;
    if (name[i] == '>' || name[i] == ')' || name[i] == '}') --depth;
    if (name[i] == ' ' && depth == 0) begin = i + 1;
  }
  return begin < end ? name.substr(begin, end - begin) : name;
}

const KernelResources* dominant_kernel(std::span<const KernelResources> kernels) {
  const KernelResources* dominant = nullptr;
  for (const KernelResources& kernel : kernels)
    if (dominant == nullptr || kernel.resident_bytes > dominant->resident_bytes) dominant = &kernel;
  return dominant;
}

}  // namespace noisefloor
