// noisefloor new-kernel: files to start a kernel of one's own from, by the texts in bench/plugin/new_kernel.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "bench/commands/add_command.h"
#include "bench/sweep/problem_files.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values)
    for (std::size_t at = 0; (at = text.find("@" + name + "@", at)) != std::string::npos; at += value.size())
      text.replace(at, name.size() + 2, value);
  return text;
}

const ProblemEntry& first_problem(const SuiteEntry& entry) {
  static const std::vector<ProblemEntry> all = load_problems(default_problem_folder());
  for (const ProblemEntry& one : all)
    if (one.entry == &entry) return one;
  throw InvalidInput(fmt::format("there are no problems of {} in {}", entry.name(), default_problem_folder().string()));
}

// The op's fields, and the tensors of one of its problems, each behind `line`: a line end, and a comment's sign.
std::string table_of(const SuiteEntry& entry, const std::string& line) {
  constexpr const char* kRoles[] = {"in", "out", "in and out"};
  const ProblemEntry& example = first_problem(entry);
  std::string text = line + "Fields of a problem:";
  for (const FieldInfo& field : entry.workload->fields)
    text += fmt::format("{}  {}: {}", line, field.name, field.description());
  text += fmt::format("{}Tensors of {}:", line, example.text);
  for (const TensorSpec& spec : entry.workload->tensors(example.problem, entry.workload->dtypes.front()))
    text += fmt::format("{}  {} [{}], {}: {}{}{}", line, spec.name, fmt::join(spec.shape, ", "), to_string(spec.dtype),
                        kRoles[static_cast<int>(spec.role)], *spec.meaning != '\0' ? ", " : "", spec.meaning);
  return text.substr(line.size());
}

// What a block of the formulas defines; "" of one that is a heading.
std::string defined_by(const std::string& block) {
  for (std::size_t begin = 0; begin < block.size(); begin = std::min(block.find('\n', begin), block.size()) + 1) {
    const std::string line = block.substr(begin, block.find('\n', begin) - begin);
    if (line.starts_with("struct ")) return line.substr(7, line.find_first_of(" {", 7) - 7);
    if (line.starts_with("//") || line.starts_with("enum ")) continue;
    const std::size_t end = line.find('('), name = line.substr(0, end).rfind(' ') + 1;
    return end == std::string::npos ? "" : line.substr(name, end - name);
  }
  return "";
}

// `name` is a whole name, not the end of another; of a struct it may be the base.
bool calls(const std::string& text, const std::string& name) {
  const auto of_a_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  if (text.find(" : " + name + " {") != std::string::npos) return true;
  for (std::size_t at = text.find(name + "("); at != std::string::npos; at = text.find(name + "(", at + 1))
    if (at == 0 || !of_a_name(text[at - 1])) return true;
  return false;
}

// The text of a file, or of a folder's files by their names; "" where there is neither.
std::string text_of(const fs::path& path) {
  if (!fs::exists(path)) return "";
  if (!fs::is_directory(path)) return read_whole_file(path);
  const std::set<fs::path> files(fs::directory_iterator(path), fs::directory_iterator{});
  std::string text;
  for (const fs::path& file : files)
    if (!is_leftover(file.filename().string())) text += (text.empty() ? "" : "\n") + read_whole_file(file);
  return text;
}

// Of formulas the block of the op, and those that it calls, in their order; "" where it has none. In Python two empty
// lines end a block, in C++ a comment begins one.
std::string blocks_of(const std::string& file, bool cuda, const std::string& op) {
  const std::string between = cuda ? "\n\n//" : "\n\n\n", head = between.substr(between.find_last_of('\n') + 1);
  std::vector<std::pair<std::string, std::string>> blocks;  // name, text
  for (std::size_t begin = 0, end; begin < file.size(); begin = end) {
    end = std::min(file.find(between, begin), file.size());
    std::string text = (begin == 0 ? "" : head) + file.substr(begin, end - begin);
    end += std::min(between.size(), file.size() - end);
    while (text.ends_with('\n')) text.pop_back();
    if (const std::string name = defined_by(text); !name.empty()) blocks.emplace_back(name, text);
  }
  std::set<std::string> wanted{op};
  for (bool growing = true; growing;) {
    growing = false;
    for (const auto& [name, text] : blocks)
      if (wanted.contains(name))
        for (const auto& [other, unused] : blocks)
          if (calls(text, other)) growing = wanted.insert(other).second || growing;
  }
  std::string all;
  for (const auto& [name, text] : blocks)
    if (wanted.contains(name)) all += (all.empty() ? "" : between.substr(0, between.size() - head.size())) + text;
  return all;
}

struct NewKernelArguments {
  std::string op, out = ".";
};

int new_kernel(const NewKernelArguments& arguments) {
  const auto& [op, out] = arguments;
  const SuiteEntry& entry = require_op(op);
  if (entry.whole_networks) throw InvalidInput(fmt::format("'{}' is no op: its rows are plans of whole networks", op));
  const fs::path folder(out), bench = default_problem_folder().parent_path(), plugins = bench / "plugin";
  const fs::path texts = plugins / "new_kernel", numpy = bench.parent_path() / "kernels" / op / "formula.py";
  std::error_code error;
  fs::create_directories(follow_links(folder), error);
  if (!fs::is_directory(folder, error)) throw InvalidInput(fmt::format("--out: '{}' is not a folder", out));
  std::map<fs::path, std::string> files;
  constexpr std::pair<const char*, const char*> kKinds[] = {
      {".cu", "formulas"}, {"_numpy.py", "formulas.py"}, {"_torch.py", "formulas_torch.py"}, {"_triton.py", nullptr}};
  for (const auto& [ending, formulas] : kKinds) {
    const bool cuda = std::string_view(ending) == ".cu";
    fs::path text = texts / (op + ending);
    std::string formula;
    if (!fs::is_regular_file(text)) {  // most ops share one, around their formula
      const bool has_own = std::string_view(ending) == "_numpy.py";
      if (formulas != nullptr)
        formula = blocks_of(text_of(texts / formulas) + (has_own ? "\n\n" + text_of(numpy) : ""), cuda, op);
      if (formula.empty()) continue;
      if (cuda)
        formula = fmt::format("{}\n\nusing Kernel = {};", formula.substr(3), op);  // behind the text's own "// "
      text = texts / (std::string("any") + ending);
    }
    files[folder / (op + ending)] =
        replaced(read_whole_file(text),
                 {{"OP", op},
                  {"TABLE", table_of(entry, cuda ? "\n// " : "\n")},
                  {"FORMULA", formula},
                  {"HOST_BUILD", fmt::format("g++ -std=c++17 -O2 -x c++ -shared -fPIC -I {} {}.cu -o {}.so",
                                             (plugins / "include").string(), op, op)},
                  {"BUILD", fmt::format("nvcc -O3 -arch=native -shared -Xcompiler -fPIC -I {} {}.cu -o {}.so",
                                        (plugins / "include").string(), op, op)}});
  }
  for (const auto& [file, text] : files)
    if (fs::exists(fs::symlink_status(file)))
      throw InvalidInput(fmt::format("{}: is there already; give another --out", file.string()));
  for (const auto& [file, text] : files) {
    write_atomically(file, text);
    fmt::print("{}\n", file.string());
  }
  fmt::print("\nThe first lines of each say how it is built and measured; docs/plugins.md says what it may do.\n");
  return kDone;
}

}  // namespace

void add_new_kernel_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "new-kernel", "Write the first files of your own kernel, as a plugin", new_kernel);
  command.add_option("op", arguments.op, "An op (noisefloor list ops)")->required();
  command.add_option("--out", arguments.out, "Folder for the files; none of them may exist")->capture_default_str();
  command.footer(
      "Writes a CUDA kernel with its build line, and functions in NumPy and PyTorch; for groupnorm also in "
      "Triton.\nExcept for groupnorm, g++ builds the CUDA file too, as a row of the host.");
}

}  // namespace noisefloor
