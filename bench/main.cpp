// The command line of noisefloor.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <new>
#include <string_view>

#include "bench/commands/commands.h"
#include "bench/platform/build_info.h"
#include "bench/platform/console.h"
#include "bench/platform/process_limits.h"
#include "kernels/core/fields.h"

namespace noisefloor {

// Each in its file of bench/commands, in the order of the help.
using AddCommand = void(CLI::App& app, CommandResult result);
AddCommand add_devices_command, add_list_command, add_sweep_command, add_run_command, add_ceilings_command,
    add_merge_command, add_roofline_command, add_explain_command, add_which_command, add_history_command,
    add_gate_command, add_resources_command, add_compare_command, add_problems_command, add_forward_command,
    add_sample_command, add_train_command, add_stream_command, add_tune_command, add_pair_command, add_ab_command,
    add_capture_command, add_new_kernel_command, add_worker_command;
constexpr AddCommand* kCommands[] = {
    add_devices_command, add_list_command,      add_sweep_command,      add_run_command,      add_ceilings_command,
    add_merge_command,   add_roofline_command,  add_explain_command,    add_which_command,    add_history_command,
    add_gate_command,    add_resources_command, add_compare_command,    add_problems_command, add_forward_command,
    add_sample_command,  add_train_command,     add_stream_command,     add_tune_command,     add_pair_command,
    add_ab_command,      add_capture_command,   add_new_kernel_command, add_worker_command};

}  // namespace noisefloor

namespace {

using namespace noisefloor;

// What is no option, or no command (no name), any more, and what to do instead: an old script's user reads that. Each
// row's commands and names stand between spaces; {} is the name as a key.
struct RemovedOption {
  std::string_view commands, names;
  const char* instead;
};
constexpr RemovedOption kRemovedOptions[] = {
    {"forward sample stream", "--fused-norm", "plans own and fastest put norms into convolutions where that pays"},
    {"forward sample stream", "--programmatic", "--without pdl, for off"},
    {"forward sample stream", "--folded-skips", "--without fusions, for off"},
    {"sample stream", "--embed-ahead", "--without hoisting, for off"},
    {"sample stream",
     "--prediction --schedule --spacing --offset --final --sigma-min --sigma-max --rho --eta --churn --clamp",
     "--sampler {}=VALUE, with others behind a comma"},
    {"sample stream", "--cache-every --cache-blocks", "--cache every=K,blocks=N"},
    {"forward problems sample stream", "--height --width --frames --tokens", "--size {}=N, with others behind a comma"},
    {"forward sample stream", "--verbose", "--settings list"},
    {"sample", "--first-guidance", "--guidance FIRST,LAST"},
    {"ab sweep", "--without", "--networks all,-NAME"},
    {"sweep", "--max-autotune", "--pytorch max_autotune=N"},
    {"compare", "--variant-a --variant-b", "--variants A,B"},
    {"forward sample", "--breakdown-csv --breakdown-rows", "--breakdown takes a file to write, or a run folder"},
    {"problems", "--unconditional", "without labels a network lacks the problems of its label embedding alone"},
    {"list pair run sweep", "--plugin-seconds", "set NOISEFLOOR_PLUGIN_SECONDS"},
    {"crosscheck", "", "scripts/ncu captures cases, and tools/crosscheck ncu puts them beside a run's rows"},
    {"sweep", "--take-turns", "sweep one after the other, or each on a GPU of its own (--device N)"},
    {"sweep", "--do-bench", "tools/crosscheck loop puts such a loop beside PyTorch's rows"},
    {"sweep", "--processes", "sweep once; hold a suspect against a second run, or compare two builds by noisefloor ab"},
    {"merge", "--pool", "keep the runs apart; noisefloor gate calibrate takes several of one build"},
    {"devices", "--format", "env.json of a run says what a machine is"},
    {"gate", "--accept", "noisefloor gate accept --baseline DIR --candidate DIR"},
    {"gate", "--force", "noisefloor gate accept --force"},
    {"gate", "--spread", "noisefloor gate calibrate --baseline DIR RUN RUN RUN"},
    {"gate", "--resources", "noisefloor resources --baseline FILE"},
    {"gate", "--strict", "exit code 2 says that an ambiguous row is slower by more than 10 %, without it"},
};

bool has_word(std::string_view words, std::string_view word) {
  return fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

// What is called otherwise since this version: the old word works until the next. Without commands it is one itself;
// with `list` it is an item of that option's value.
struct RenamedWord {
  std::string_view commands, list, old, name;
};
constexpr RenamedWord kRenamedWords[] = {
    {"", "", "duel", "pair"},
    {"sweep", "", "--no-duels", "--no-pairs"},
    {"sample stream", "--without", "embed-ahead", "hoisting"},
    {"ab list pair sweep tune", "--networks", "sd15-whole-b2", "sd15-b2"},
    {"ab list pair sweep tune", "--networks", "sdxl-whole-b2", "sdxl-b2"},
    {"ab list pair sweep tune", "--networks", "svd-14f-whole-b2", "svd-14f-b2"},
};

void take_old_names(std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i)
    for (const auto& [commands, list, old, name] : kRenamedWords) {
      if (commands.empty() ? i > 1 : !has_word(commands, words[1])) continue;
      const bool begins = !list.empty() && words[i].starts_with(fmt::format("{}=", list));
      if (!list.empty() && !begins && words[i - 1] != list) continue;
      const std::size_t begin = begins ? list.size() + 1 : 0;
      std::vector<std::string> items{words[i]};
      if (!list.empty()) items = split_list(words[i].substr(begin));
      const auto found = std::ranges::find(items, old);
      if (found == items.end()) continue;
      *found = name;
      words[i] = fmt::format("{}{}", words[i].substr(0, begin), fmt::join(items, ","));
      fmt::print(stderr, "noisefloor: {} is called {} now; the next version does not know the old name\n", old, name);
    }
}

// Of an option, or of a whole command; "" for what never was one.
std::string why_removed(const std::string& command, const std::string& name) {
  for (const auto& [commands, names, instead] : kRemovedOptions) {
    if (!has_word(commands, command) || (name.empty() ? !names.empty() : !has_word(names, name))) continue;
    std::string key = name.substr(std::min<std::size_t>(name.size(), 2));
    std::ranges::replace(key, '-', '_');
    return fmt::format("{} was removed: {}", name.empty() ? command : name, fmt::format(fmt::runtime(instead), key));
  }
  return "";
}

// What CLI11 did not expect, with the nearest name that it knows.
std::string with_suggestion(const CLI::App& app, const std::vector<std::string>& words, const std::string& message) {
  const CLI::App* command = &app;
  std::size_t next = 1;  // behind the command's names
  for (; next < words.size(); ++next) {
    const auto named = [&](const CLI::App* one) { return one->check_name(words[next]); };
    const auto found = command->get_subcommands(named);
    if (found.empty()) break;
    command = found.front();
  }
  std::vector<std::string> known;
  const auto unknown = [&](const char* what, const std::string& name) {
    const std::string near = did_you_mean(name, known);
    return fmt::format("unknown {} '{}'{}", what, name, near.empty() ? "; --help lists what there is" : near);
  };
  const std::string more = message.ends_with(" is required") ? "; --help says what that is" : "";
  if (command == &app) {
    if (words.size() < 2) return message + more;
    if (const std::string why = why_removed(words[1], ""); !why.empty()) return why;
    for (const CLI::App* subcommand : app.get_subcommands({})) known.push_back(subcommand->get_name());
    return words[1][0] == '-' ? message + more : unknown("command", words[1]);
  }
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  for (std::size_t i = next; i < words.size() && words[i] != "--"; ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (!name.starts_with("--") || name.starts_with("--benchmark_")) continue;
    if (std::ranges::count(known, name) > 0) continue;  // its value is wrong, not its name
    if (const std::string why = why_removed(command->get_name(), name); !why.empty()) return why;
    // A misspelt option is missed under its right name too ("--problem is required").
    const bool missed = message.find(name) == std::string::npos;
    return (missed ? message + "; " : "") + unknown("option", name);
  }
  return message + more;
}

// An empty value is one that somebody's variable did not have: neither "not given" nor 0.
std::string why_empty(const std::string& value) {
  return value.find_first_not_of(" \t\n,") == std::string::npos ? "its value is empty; give one, or leave it out" : "";
}

void refuse_empty_values(CLI::App& app) {
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    refuse_empty_values(*command);
    for (CLI::Option* const option : command->get_options())
      if (option->get_items_expected_max() > 0)
        option->transform([](const std::string& value) {  // before its other checks
          if (const std::string why = why_empty(value); !why.empty()) throw CLI::ValidationError(why);
          return value;
        });
  }
}

// "--out=" alone: CLI11 would take the next word as its value.
void require_values(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") return;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      throw InvalidInput(word.substr(0, word.size() - 1) + ": " + why_empty(""));
  }
}

int run(int argc, char** argv) {
  const auto invocation = std::make_shared<Invocation>();
  std::vector<std::string> own;
  invocation->arguments.assign(argv, argv + argc);
  take_old_names(invocation->arguments);
  for (int i = 1; i < argc; ++i) {
    const std::string& word = invocation->arguments[static_cast<std::size_t>(i)];
    (word.starts_with("--benchmark_") ? invocation->benchmark_arguments : own).push_back(word);
  }

  CLI::App app("noisefloor: benchmarks and profiles the GPU operations of diffusion models", "noisefloor");
  app.set_version_flag("--version", fmt::format("noisefloor {} ({})", build_info().version, build_info().commit));
  app.require_subcommand(1);
  for (AddCommand* const add : kCommands) add(app, invocation);
  refuse_empty_values(app);
  require_values(own);
  std::reverse(own.begin(), own.end());  // CLI11 takes arguments from the back
  try {
    app.parse(own);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "noisefloor: {}\n", with_suggestion(app, invocation->arguments, error.what()));
    return kCouldNot;
  }
  if (!invocation->benchmark_arguments.empty() && !app.got_subcommand("sweep"))
    throw InvalidInput(invocation->benchmark_arguments.front() +
                       ": Google Benchmark's flags belong to `noisefloor sweep`");
  return invocation->chosen();
}

}  // namespace

int main(int argc, char** argv) {
  guard_console();
  int code = kCouldNot;
  try {
    require_stack();
    code = run(argc, argv);
  } catch (const fs::filesystem_error& error) {
    const auto& where = error.path2().empty() ? error.path1() : error.path2();
    fmt::print(stderr, "noisefloor: {}: {}\n", where.string(), error.code().message());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "noisefloor: memory ran out{}\n", limit_behind(ENOMEM));
  } catch (const std::exception& error) {
    fmt::print(stderr, "noisefloor: {}\n", error.what());
  }
  return finish_console(code);
}
