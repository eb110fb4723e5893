#include "reports/resources/kernel_usage.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

constexpr std::pair<const char*, std::string KernelUsage::*> kNames[] = {
    {"arch", &KernelUsage::arch}, {"file", &KernelUsage::file}, {"kernel", &KernelUsage::kernel}};
constexpr std::pair<const char*, long KernelUsage::*> kNumbers[] = {{"registers", &KernelUsage::registers},
                                                                    {"shared_bytes", &KernelUsage::shared_bytes},
                                                                    {"stack_bytes", &KernelUsage::stack_bytes}};

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

long whole_number(std::string_view text) {
  const auto value = parse_number<long>(text);
  if (value.value_or(-1) < 0) throw failure("'{}' is not a whole number from 0", text);
  return *value;
}

// The number behind "REG:" in "REG:12 STACK:0 SHARED:0 ...".
long usage(std::string_view line, std::string_view name) {
  const std::size_t begin = line.find(name);
  if (begin == std::string_view::npos) throw failure("no '{}'", name);
  const std::size_t from = begin + name.size();
  return whole_number(line.substr(from, line.find(' ', from) - from));
}

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  return line;
}

// Templates of one name in one file can demangle alike (a lambda's type): those are compared in the order of what they
// take.
std::multimap<std::string, const KernelUsage*> by_key(const KernelRecord& record, const std::set<std::string>& archs) {
  std::vector<const KernelUsage*> kernels;
  for (const KernelUsage& kernel : record.kernels)
    if (archs.contains(kernel.arch)) kernels.push_back(&kernel);
  std::ranges::stable_sort(kernels, {}, [](const KernelUsage* one) {
    return std::tie(one->registers, one->shared_bytes, one->stack_bytes);
  });
  std::multimap<std::string, const KernelUsage*> all;
  for (const KernelUsage* kernel : kernels) all.emplace(kernel->key(), kernel);
  return all;
}

}  // namespace

std::set<std::string> architectures(const KernelRecord& record) {
  std::set<std::string> all;
  for (const KernelUsage& kernel : record.kernels) all.insert(kernel.arch);
  return all;
}

std::vector<KernelUsage> parse_resource_usage(std::string_view text) {
  std::vector<KernelUsage> kernels;
  KernelUsage next;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    try {
      if (line.starts_with("arch = ")) {
        next.arch = line.substr(7);
      } else if (line.starts_with("identifier = ")) {
        const std::size_t place = line.rfind("kernels/");
        next.file = place == std::string_view::npos ? "" : line.substr(place);
      } else if (line.starts_with("Function ")) {
        next.kernel = demangled(std::string(line.substr(9, line.rfind(':') - 9)));
      } else if (line.starts_with("REG:")) {
        next.registers = usage(line, "REG:");
        next.shared_bytes = usage(line, "SHARED:");
        next.stack_bytes = usage(line, "STACK:") + usage(line, "LOCAL:");
        if (next.kernel.empty() || next.arch.empty()) throw std::runtime_error("belongs to no kernel");
        if (!next.file.empty()) kernels.push_back(next);
        next.kernel.clear();
      }
    } catch (const std::runtime_error& error) {
      throw failure("cuobjdump's line {}: {}", number, error.what());
    }
  }
  std::ranges::sort(kernels, {}, &KernelUsage::key);
  return kernels;
}

std::string to_csv(const KernelRecord& record) {
  std::string text = "toolkit,arch,file,kernel,registers,shared_bytes,stack_bytes\n";
  for (const KernelUsage& kernel : record.kernels) {
    std::vector<std::string> fields{record.toolkit};
    for (const auto& [column, name] : kNames) fields.push_back(kernel.*name);
    for (const auto& [column, number] : kNumbers) fields.push_back(std::to_string(kernel.*number));
    text += csv_line(fields);
  }
  return text;
}

KernelRecord read_kernel_record(const fs::path& file) {
  const CsvFile csv = read_csv(file);
  const std::size_t toolkit = csv.column("toolkit");
  KernelRecord record;
  for (const CsvLine& line : csv.lines) {
    if (!record.toolkit.empty() && record.toolkit != line.fields[toolkit])
      throw csv.wrong(line.number, "column 'toolkit' is '{}', above it is '{}'", line.fields[toolkit], record.toolkit);
    record.toolkit = line.fields[toolkit];
    KernelUsage& kernel = record.kernels.emplace_back();
    for (const auto& [column, name] : kNames) kernel.*name = line.fields[csv.column(column)];
    for (const auto& [column, number] : kNumbers) try {
        kernel.*number = whole_number(line.fields[csv.column(column)]);
      } catch (const std::runtime_error& error) {
        throw csv.wrong(line.number, "column '{}': {}", column, error.what());
      }
  }
  if (record.kernels.empty()) throw failure("{}: no kernels in it", file.string());
  return record;
}

KernelChanges kernel_changes(const KernelRecord& recorded, const KernelRecord& built) {
  if (recorded.toolkit != built.toolkit)
    throw failure(
        "recorded with CUDA {}, built with {}: another compiler gives out registers differently; record again with "
        "--accept",
        recorded.toolkit, built.toolkit);
  std::set<std::string> archs;
  const auto in_record = architectures(recorded), in_build = architectures(built);
  std::set_intersection(in_record.begin(), in_record.end(), in_build.begin(), in_build.end(),
                        std::inserter(archs, archs.end()));
  if (archs.empty())
    throw failure("recorded for {}, built for {}: no architecture in common", fmt::join(in_record, ", "),
                  fmt::join(in_build, ", "));
  auto before = by_key(recorded, archs);
  KernelChanges changes;
  for (const auto& [key, kernel] : by_key(built, archs)) {
    const auto found = before.lower_bound(key);
    if (found == before.end() || found->first != key) {
      changes.added.push_back(*kernel);
      continue;
    }
    const KernelUsage& old = *found->second;
    before.erase(found);
    const auto any = [](const KernelUsage& greater, const KernelUsage& than) {
      return std::ranges::any_of(kNumbers, [&](const auto& one) { return greater.*one.second > than.*one.second; });
    };
    if (any(*kernel, old))
      changes.worse.push_back({old, *kernel});
    else if (any(old, *kernel))
      changes.better.push_back({old, *kernel});
    else
      ++changes.same;
  }
  for (const auto& [key, kernel] : before) changes.gone.push_back(*kernel);
  // Spills first, then registers.
  std::stable_sort(changes.worse.begin(), changes.worse.end(), [](const auto& a, const auto& b) {
    const auto grown = [](const auto& change) {
      return std::pair(change.after.stack_bytes - change.before.stack_bytes,
                       change.after.registers - change.before.registers);
    };
    return grown(a) > grown(b);
  });
  return changes;
}

std::string kernel_changes_text(const KernelChanges& changes) {
  std::string text;
  // `before` is null of a new one.
  const auto add = [&](const char* what, const KernelUsage* before, const KernelUsage& after) {
    text += fmt::format("{:<8} {}", what, after.key());
    for (const auto& [column, number] : kNumbers) {
      std::string name = column;
      std::ranges::replace(name, '_', ' ');
      text += fmt::format("{} {} ", column == kNumbers[0].first ? ":" : ",", name);
      if (before != nullptr && before->*number != after.*number) text += fmt::format("{} -> ", before->*number);
      text += std::to_string(after.*number);
    }
    text += "\n";
  };
  for (const auto& [before, after] : changes.worse) add("worse", &before, after);
  for (const auto& kernel : changes.gone) text += fmt::format("{:<8} {}\n", "gone", kernel.key());
  for (const auto& kernel : changes.added) add("new", nullptr, kernel);
  for (const auto& [before, after] : changes.better) add("better", &before, after);
  return text + fmt::format("{} kernels: {} worse, {} better, {} as recorded; {} gone, {} new\n",
                            changes.worse.size() + changes.better.size() + changes.same, changes.worse.size(),
                            changes.better.size(), changes.same, changes.gone.size(), changes.added.size());
}

}  // namespace noisefloor
