#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "bench/commands/commands.h"
#include "bench/sweep/ops.h"

namespace noisefloor {

std::unique_ptr<Platform> open_platform(const std::string& device) {
  if (device == "host") return make_host_platform();
  if (device.empty()) {
    std::string why;
    if (cuda_device_count(why) > 0) return make_cuda_platform(0);
    fmt::print(stderr, "{}: running the host variants on all cores\n", why.substr(0, why.find(';')));
    return make_host_platform();
  }
  int index = 0;
  const auto parsed = std::from_chars(device.data(), device.data() + device.size(), index);
  if (parsed.ec != std::errc() || parsed.ptr != device.data() + device.size())
    throw InvalidInput(fmt::format("--device is '{}', not 'host' or a device number (noisefloor devices)", device));
  return make_cuda_platform(index);
}

const Op& require_op(const std::string& name) {
  if (const Op* op = find_swept_op(name)) return *op;
  std::vector<std::string> names;
  for (const Op* op : swept_ops()) names.push_back(op->name);
  throw InvalidInput(fmt::format("unknown op '{}'{} (noisefloor list ops)", name, did_you_mean(name, names)));
}

DType require_dtype(const Op& op, const std::string& name) {
  std::vector<std::string> names;
  for (const DType dtype : op.dtypes) names.push_back(to_string(dtype));
  const auto dtype = parse_dtype(name);
  if (!dtype || std::find(op.dtypes.begin(), op.dtypes.end(), *dtype) == op.dtypes.end())
    throw InvalidInput(fmt::format("op '{}' has no dtype '{}'; it has {}{}", op.name, name, fmt::join(names, ", "),
                                   did_you_mean(name, names)));
  return *dtype;
}

Candidate require_candidate(const Op& op, const std::string& name) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_of(op)) {
    if (candidate.name == name) return candidate;
    names.push_back(candidate.name);
  }
  throw InvalidInput(fmt::format("op '{}' has no variant '{}'; it has {}{}", op.name, name, fmt::join(names, ", "),
                                 did_you_mean(name, names)));
}

Case require_case(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() != 4)
    throw InvalidInput(
        fmt::format("'{}' is no case: it should be op/problem/dtype/variant, as "
                    "noisefloor sweep --benchmark_list_tests prints it",
                    name));
  const Op& op = require_op(parts[0]);
  const AnyProblem problem = op.parse(parts[1]);
  return {require_candidate(op, parts[3]), problem, require_dtype(op, parts[2]), op.print(problem), ""};
}

std::int64_t require_integer(const char* option, const std::string& text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    throw InvalidInput(fmt::format("{}: '{}' is no whole number", option, text));
  return value;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  while (begin <= text.size() && !text.empty()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace noisefloor
