#include "bench/sweep/problem_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <map>
#include <set>

#include "bench/platform/refusal.h"
#include "kernels/catalogue.h"
#include "reports/run/csv.h"
#include "reports/run/files.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

long parse_count(const std::string& text) {
  const long count = parse_number<long>(text).value_or(0);
  if (count < 1 || count > kMaxNetworkCount)
    throw refusal("column 'count' is '{}', not a whole number from 1 to {}", text, kMaxNetworkCount);
  return count;
}

DType parse_dtype(const Workload& op, const std::string& text) {
  std::vector<std::string> names;
  for (const DType dtype : op.dtypes) {
    if (text == to_string(dtype)) return dtype;
    names.emplace_back(to_string(dtype));
  }
  throw refusal("column 'dtype' is '{}', none of {}'s dtypes {}", text, op.name, fmt::join(names, ", "));
}

constexpr const char *kSets = "sets", *kNotWritten = "not_written";  // files of no op

CsvFile read_input(const fs::path& file) try { return read_csv(file); } catch (const std::runtime_error& error) {
  throw InvalidInput(error.what());
}

// By what they are of. The ending may be of large letters: Windows knows no difference.
std::map<std::string, fs::path> files_in(const fs::path& given, const Suite& known) {
  const fs::path folder = given.empty() ? default_problem_folder() : given;
  if (!fs::is_directory(folder)) throw refusal("{}: no such folder", folder.string());
  std::vector<std::string> op_names;
  for (const SuiteEntry& entry : known.entries()) op_names.push_back(entry.name());
  const std::set<fs::path> sorted(fs::directory_iterator(folder), {});
  std::map<std::string, fs::path> files;
  for (const auto& file : sorted) {
    const std::string name = file.stem().string(), what = file.string();
    std::string low = file.filename().string();
    std::ranges::transform(low, low.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (!low.ends_with(".csv") || is_leftover(low)) continue;  // README.md, gemm.csv~, ._gemm.csv
    if (name != kSets && name != kNotWritten && known.find(name) == nullptr)
      throw refusal(
          "{}: there is no op '{}'{}; a file of problems is called <op>.csv: rename it, or move it to another folder",
          what, name, did_you_mean(name, op_names));
    if (const auto [other, is_new] = files.try_emplace(name, file); !is_new)
      throw refusal("{} and {}: both would be the problems of '{}'; keep one of them there", other->second.string(),
                    what, name);
  }
  return files;
}

// Where the columns of these names are. Throws InvalidInput where one is not there once.
std::vector<std::size_t> places_of(const fs::path& file, const CsvFile& csv, std::initializer_list<const char*> names) {
  std::vector<std::size_t> places;
  for (const char* name : names) {
    if (std::count(csv.header.begin(), csv.header.end(), name) != 1)
      throw refusal("{}:1: needs one column '{}'", file.string(), name);
    places.push_back(static_cast<std::size_t>(std::ranges::find(csv.header, name) - csv.header.begin()));
  }
  return places;
}

// Sets by their names, and whether they must be asked for by them.
using Sets = std::map<std::string, bool>;

Sets sets_of(const fs::path& file) {
  Sets sets;
  const CsvFile csv = read_input(file);
  const std::size_t name = places_of(file, csv, {"network"}).front();
  const auto by_name = static_cast<std::size_t>(std::ranges::find(csv.header, "by_name") - csv.header.begin());
  for (const CsvLine& line : csv.lines)
    sets[line.fields[name]] = by_name < csv.header.size() && !line.fields[by_name].empty();
  return sets;
}

void load_file(const fs::path& file, const SuiteEntry& entry, const Sets& sets, std::vector<ProblemEntry>& problems) {
  const Workload& op = *entry.workload;
  const CsvFile csv = read_input(file);
  (void)places_of(file, csv, {"network", "count"});
  std::map<std::string, std::size_t> known;
  for (const CsvLine& line : csv.lines) {
    try {
      std::vector<KeyValue> pairs;
      ProblemEntry::Use use{"", 0, {}, false};
      for (std::size_t i = 0; i < csv.header.size(); ++i) {
        if (csv.header[i] == "network")
          use.network = line.fields[i];
        else if (csv.header[i] == "count")
          use.count = parse_count(line.fields[i]);
        else if (line.fields[i].empty())  // the field's default; the network's dtype
          continue;
        else if (csv.header[i] == "dtype")
          use.dtype = parse_dtype(op, line.fields[i]);
        else
          pairs.push_back({csv.header[i], line.fields[i]});
      }
      if (use.network.empty() || use.network.find_first_of(";:,") != std::string::npos)
        throw refusal("column 'network' is '{}', not a name without ; : ,", use.network);
      if (const auto set = sets.find(use.network); set != sets.end()) use.set = true, use.by_name = set->second;
      AnyProblem problem = op.parse_pairs(std::move(pairs));
      const std::string text = op.print(problem);
      const auto [place, is_new] = known.try_emplace(text, problems.size());
      if (is_new) problems.push_back({&entry, &op, std::move(problem), text, {}});
      auto& uses = problems[place->second].uses;
      const auto same = std::find_if(uses.begin(), uses.end(),
                                     [&](const auto& u) { return u.network == use.network && u.dtype == use.dtype; });
      if (same == uses.end()) {
        uses.push_back(use);
        continue;
      }
      same->count += use.count;
      if (same->count > kMaxNetworkCount)
        throw refusal("column 'count': with the lines above '{}' has this problem more than {} times", use.network,
                      kMaxNetworkCount);
    } catch (const InvalidInput& error) {
      throw refusal("{}:{}: {}", file.string(), line.number, error.what());
    }
  }
}

}  // namespace

std::string ProblemEntry::networks() const {
  std::string list;
  for (const Use& use : uses) list += fmt::format("{}{}:{}", list.empty() ? "" : ";", use.network, use.count);
  return list;
}

ProblemEntry ProblemEntry::in(DType dtype, bool swept) const {
  ProblemEntry cut = *this;
  std::erase_if(cut.uses, [&](const Use& use) { return use.dtype ? *use.dtype != dtype : !swept; });
  return cut;
}

fs::path default_problem_folder() {
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  for (auto folder = program.parent_path(); !error; folder = folder.parent_path()) {
    if (fs::is_directory(folder / "bench" / "problems")) return folder / "bench" / "problems";
    if (folder == folder.root_path()) break;
  }
  throw InvalidInput("no folder bench/problems beside or above the program; name one with --problems DIR");
}

std::vector<ProblemEntry> load_problems(const fs::path& folder, const Suite& known) {
  const auto files = files_in(folder, known);
  const auto sets_file = files.find(kSets);
  const Sets sets = sets_file == files.end() ? Sets{} : sets_of(sets_file->second);
  std::vector<ProblemEntry> problems;
  for (const SuiteEntry& entry : known.entries())
    if (const auto file = files.find(entry.name()); file != files.end()) load_file(file->second, entry, sets, problems);
  return problems;
}

std::vector<UnwrittenProblem> load_not_written(const fs::path& folder) {
  const auto files = files_in(folder, suite());
  const auto file = files.find(kNotWritten);
  std::vector<UnwrittenProblem> all;
  if (file == files.end()) return all;
  const CsvFile csv = read_input(file->second);
  const auto at = places_of(file->second, csv, {"network", "op", "problem", "why", "count"});
  for (const CsvLine& line : csv.lines) {
    try {
      const auto& text = line.fields;
      all.push_back({text[at[0]], text[at[1]], text[at[2]], text[at[3]], parse_count(text[at[4]])});
    } catch (const InvalidInput& error) {
      throw refusal("{}:{}: {}", file->second.string(), line.number, error.what());
    }
  }
  return all;
}

std::vector<std::string> network_names(const std::vector<ProblemEntry>& problems) {
  std::vector<std::string> names;
  for (const ProblemEntry& entry : problems)
    for (const auto& use : entry.uses)
      if (std::find(names.begin(), names.end(), use.network) == names.end()) names.push_back(use.network);
  return names;
}

std::vector<ProblemEntry> in_networks(const std::vector<ProblemEntry>& problems,
                                      const std::vector<std::string>& networks) {
  const auto known = network_names(problems);
  for (const std::string& name : networks)
    if (name != "all" && std::find(known.begin(), known.end(), name) == known.end())
      throw refusal("unknown network '{}'{} (noisefloor list networks)", name, did_you_mean(name, known));
  const auto named = [&](const std::string& name) { return std::ranges::find(networks, name) != networks.end(); };
  std::vector<ProblemEntry> selected;
  for (const ProblemEntry& entry : problems) {
    ProblemEntry cut = entry;
    std::erase_if(cut.uses, [&](const auto& use) { return !named(use.network) && (use.by_name || !named("all")); });
    if (!cut.uses.empty()) selected.push_back(std::move(cut));
  }
  return selected;
}

std::optional<std::string> handed_to(const SuiteEntry& entry, const ProblemEntry& other, DType dtype) {
  auto handed = handed_on(other.op->name, other.problem, dtype);
  if (!handed || handed->op != entry.name()) return std::nullopt;
  return std::move(handed->text);
}

}  // namespace noisefloor
