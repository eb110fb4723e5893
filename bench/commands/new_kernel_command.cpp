// noisefloor new-kernel: files to start a kernel of one's own from, by the texts in bench/plugin/new_kernel. An op that
// has no example of its own there has a skeleton, of its fields and tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "bench/commands/commands.h"
#include "bench/sweep/problem_files.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

std::string replaced(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values)
    for (std::size_t at = 0; (at = text.find("@" + name + "@", at)) != std::string::npos; at += value.size())
      text.replace(at, name.size() + 2, value);
  return text;
}

// Each tensor of the op once; outputs last.
std::vector<TensorRule> tensors_of(const Workload& op) {
  std::vector<TensorRule> tensors;
  for (const TensorRule& one : op.table.rules)
    if (std::ranges::none_of(tensors, [&](const auto& other) { return std::string_view(other.name) == one.name; }))
      tensors.push_back(one);
  std::ranges::stable_partition(tensors, [](const TensorRule& one) { return one.role == Role::in; });
  return tensors;
}

// Fields and tensors, each behind `line`: a line end, and a comment's sign.
std::string table_of(const Workload& op, const std::string& line) {
  std::string text = "Fields of a problem:";
  for (const FieldInfo& field : op.fields) text += fmt::format("{}  {}: {}", line, field.name, field.description());
  for (const auto& [name, formula] : symbols_of(op)) text += fmt::format("{}  {} = {}", line, name, formula);
  text += line + "Tensors, each with its shape in fields:";
  for (const TensorRule& one : op.table.rules) text += fmt::format("{}  {}", line, description_of(one));
  return text;
}

// Members of the skeleton's structs, each behind its comment, whose first "// " is the skeleton's.
std::string members_of(const std::vector<FieldInfo>& fields) {
  std::vector<std::string> members;
  for (const FieldInfo& field : fields)
    members.push_back(fmt::format("{0}\n  {1} {2} = noisefloor_find_field(problem, \"{2}\")->{3};", field.description(),
                                  field.type == FieldInfo::Type::real ? "double" : "int64_t", field.name,
                                  field.type == FieldInfo::Type::real ? "real" : "integer"));
  return fmt::format("{}", fmt::join(members, "\n  // "));
}

std::string members_of(const Workload& op, const std::vector<TensorRule>& tensors) {
  std::vector<std::string> members;
  for (const auto& [name, formula] : symbols_of(op)) members.push_back(fmt::format("{} = {}", name, formula));
  for (const TensorRule& one : tensors) {
    const bool by_field =
        std::string_view(one.meaning).find("dtype `") != std::string_view::npos;  // not always the row's
    const char* const type = by_field ? "void" : !one.dtype ? "T" : *one.dtype == DType::fp32 ? "float" : "void";
    members.push_back(fmt::format("{0}\n  {1}{2}* {3} = static_cast<{1}{2}*>(noisefloor_find_data(problem, \"{3}\"));",
                                  description_of(one), one.role == Role::in ? "const " : "", type, one.name));
  }
  return fmt::format("{}", fmt::join(members, "\n  // "));
}

struct NewKernelArguments {
  std::string op, out = ".";
};

int new_kernel(const NewKernelArguments& arguments) {
  const auto& [op, out] = arguments;
  const SuiteEntry& entry = require_op(op);
  if (entry.whole_networks) throw refusal("'{}' is no op: its rows are plans of whole networks", op);
  const fs::path folder(out), plugins = default_problem_folder().parent_path() / "plugin",
                              texts = plugins / "new_kernel";
  std::error_code error;
  fs::create_directories(follow_links(folder), error);
  if (!fs::is_directory(folder, error)) throw refusal("--out: '{}' is not a folder", out);
  const std::vector<TensorRule> tensors = tensors_of(*entry.workload);
  std::vector<std::string> outputs;
  for (const TensorRule& one : tensors)
    if (one.role != Role::in) outputs.emplace_back(one.name);
  std::map<fs::path, std::string> files;
  for (const std::string ending : {".cu", "_python.py", "_triton.py"}) {
    const fs::path example = texts / (op + ending), skeleton = texts / ("skeleton" + ending);
    if (!fs::exists(example) && !fs::exists(skeleton)) continue;  // Triton's skeleton is Python's
    const std::string include = (plugins / "include").string();
    files[folder / (op + ending)] = replaced(
        read_whole_file(fs::exists(example) ? example : skeleton),
        {{"OP", op},
         {"TABLE", table_of(*entry.workload, ending == ".cu" ? "\n// " : "\n")},
         {"FIELDS", members_of(entry.workload->fields)},
         {"TENSORS", members_of(*entry.workload, tensors)},
         {"OUTPUTS", fmt::format("{}", fmt::join(outputs, ", "))},
         {"HOST_BUILD", fmt::format("g++ -std=c++17 -O2 -x c++ -shared -fPIC -I {} {}.cu -o {}.so", include, op, op)},
         {"BUILD",
          fmt::format("nvcc -O3 -arch=native -shared -Xcompiler -fPIC -I {} {}.cu -o {}.so", include, op, op)}});
  }
  for (const auto& [file, text] : files)
    if (fs::exists(fs::symlink_status(file))) throw refusal("{}: is there already; give another --out", file.string());
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
      "Writes a CUDA file (which g++ builds too, as a row of the host) and a Python file that load as they stand, "
      "with\n"
      "the op's fields and tensors and an empty body: their rows are not ok until you write it. For groupnorm the "
      "CUDA\n"
      "file and one more, in Triton, are whole kernels.");
}

}  // namespace noisefloor
