// noisefloor new-kernel: files to start a kernel of one's own from, by the texts in bench/plugin/new_kernel. An op that
// has no example of its own there has a skeleton, of its fields and tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

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

// A tensor of the op: as the first problem has it, and whether its element type is the row's, or the same in every row.
struct Described {
  TensorSpec spec;
  bool row_type = true, one_type = true;

  bool input() const { return spec.role == Role::in; }
  const char* cpp_type() const { return row_type ? "T" : one_type && spec.dtype == DType::fp32 ? "float" : "void"; }
  std::string description() const {
    constexpr const char* kRoles[] = {"in", "out", "in and out"};
    return fmt::format("{}, {} [{}]{}{}", kRoles[static_cast<int>(spec.role)],
                       row_type   ? "of the row's type"
                       : one_type ? to_string(spec.dtype)
                                  : "of several types",
                       fmt::join(spec.shape, ", "), *spec.meaning != '\0' ? ": " : "", spec.meaning);
  }
};

// Adds those of a problem in every row's dtype.
void add_tensors(std::vector<Described>& found, const Workload& op, const AnyProblem& problem) {
  for (const DType dtype : op.dtypes)
    for (const TensorSpec& spec : op.tensors(problem, dtype)) {
      const auto same = [&](const Described& other) { return std::string_view(other.spec.name) == spec.name; };
      auto known = std::ranges::find_if(found, same);
      if (known == found.end()) known = found.insert(found.end(), {spec});
      known->row_type &= spec.dtype == dtype;
      known->one_type &= spec.dtype == known->spec.dtype;
    }
}

// Those of the networks' problems, and of what is another choice or flag away from one; outputs last.
std::vector<Described> tensors_of(const SuiteEntry& entry) {
  std::vector<Described> found;
  const Workload& op = *entry.workload;
  for (const ProblemEntry& one : load_problems(default_problem_folder())) {
    if (one.entry != &entry) continue;
    add_tensors(found, op, one.problem);
    for (std::size_t i = 0; i < op.fields.size(); ++i)
      for (const std::string& choice : op.fields[i].choices) {
        std::vector<KeyValue> values = op.values(one.problem);
        values.at(i).value = choice;
        try {
          add_tensors(found, op, op.parse_pairs(std::move(values)));
        } catch (const InvalidInput&) {  // not every combination is a problem
        }
      }
  }
  if (found.empty())
    throw InvalidInput(
        fmt::format("there are no problems of {} in {}", entry.name(), default_problem_folder().string()));
  std::ranges::stable_partition(found, &Described::input);
  return found;
}

// Fields and tensors, each behind `line`: a line end, and a comment's sign.
std::string table_of(const std::vector<FieldInfo>& fields, const std::vector<Described>& tensors,
                     const std::string& line) {
  std::string text = "Fields of a problem:";
  for (const FieldInfo& field : fields) text += fmt::format("{}  {}: {}", line, field.name, field.description());
  text += line + "Tensors, each with its shape in some problem:";
  for (const Described& one : tensors) text += fmt::format("{}  {}: {}", line, one.spec.name, one.description());
  return text;
}

// Members of the skeleton's structs, each behind its comment, whose first "// " is the skeleton's.
std::string members_of(const std::vector<FieldInfo>& fields) {
  std::vector<std::string> members;
  for (const FieldInfo& field : fields)
    members.push_back(fmt::format("{}\n  {} {} = {}(problem, \"{}\");", field.description(),
                                  field.type == FieldInfo::Type::real ? "double" : "int64_t", field.name,
                                  field.type == FieldInfo::Type::real ? "real_of" : "integer_of", field.name));
  return fmt::format("{}", fmt::join(members, "\n  // "));
}

std::string members_of(const std::vector<Described>& tensors) {
  std::vector<std::string> members;
  for (const Described& one : tensors)
    members.push_back(fmt::format("{0}\n  {1}{2}* {3} = tensor_of<{1}{2}>(problem, \"{3}\");", one.description(),
                                  one.input() ? "const " : "", one.cpp_type(), one.spec.name));
  return fmt::format("{}", fmt::join(members, "\n  // "));
}

struct NewKernelArguments {
  std::string op, out = ".";
};

int new_kernel(const NewKernelArguments& arguments) {
  const auto& [op, out] = arguments;
  const SuiteEntry& entry = require_op(op);
  if (entry.whole_networks) throw InvalidInput(fmt::format("'{}' is no op: its rows are plans of whole networks", op));
  const fs::path folder(out), plugins = default_problem_folder().parent_path() / "plugin",
                              texts = plugins / "new_kernel";
  std::error_code error;
  fs::create_directories(follow_links(folder), error);
  if (!fs::is_directory(folder, error)) throw InvalidInput(fmt::format("--out: '{}' is not a folder", out));
  const std::vector<Described> tensors = tensors_of(entry);
  std::vector<std::string> outputs;
  for (const Described& one : tensors)
    if (!one.input()) outputs.emplace_back(one.spec.name);
  std::map<fs::path, std::string> files;
  for (const std::string ending : {".cu", "_python.py", "_triton.py"}) {
    const fs::path example = texts / (op + ending), skeleton = texts / ("skeleton" + ending);
    if (!fs::exists(example) && !fs::exists(skeleton)) continue;  // Triton's skeleton is Python's
    const std::string include = (plugins / "include").string();
    files[folder / (op + ending)] = replaced(
        read_whole_file(fs::exists(example) ? example : skeleton),
        {{"OP", op},
         {"TABLE", table_of(entry.workload->fields, tensors, ending == ".cu" ? "\n// " : "\n")},
         {"FIELDS", members_of(entry.workload->fields)},
         {"TENSORS", members_of(tensors)},
         {"OUTPUTS", fmt::format("{}", fmt::join(outputs, ", "))},
         {"HOST_BUILD", fmt::format("g++ -std=c++17 -O2 -x c++ -shared -fPIC -I {} {}.cu -o {}.so", include, op, op)},
         {"BUILD",
          fmt::format("nvcc -O3 -arch=native -shared -Xcompiler -fPIC -I {} {}.cu -o {}.so", include, op, op)}});
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
      "Writes a CUDA file (which g++ builds too, as a row of the host) and a Python file that load as they stand, "
      "with\n"
      "the op's fields and tensors and an empty body: their rows are not ok until you write it. For groupnorm the "
      "CUDA\n"
      "file and one more, in Triton, are whole kernels.");
}

}  // namespace noisefloor
