// Options of several parts: --sampler ddim,eta=1.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "bench/commands/commands.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor {
namespace {

// The key of a part, "name=value" or, where there are no values, "name".
const OptionKey& key_of(const std::string& option, const std::string& part, const std::vector<OptionKey>& keys,
                        bool values) {
  const std::size_t equals = part.find('=');
  const std::string name = part.substr(0, equals);
  const auto found = std::ranges::find_if(keys, [&](const OptionKey& key) { return name == key.name; });
  if (found != keys.end() && *found->name != '\0' && values == (equals != std::string::npos)) return *found;
  std::vector<std::string> known;
  for (const OptionKey& key : keys)
    if (*key.name != '\0') known.emplace_back(key.name);
  throw refusal("{}: '{}' is none of {}{}{}", option, part, fmt::join(known, ", "),
                values ? ", each as name=value" : "", did_you_mean(name, known));
}

void take_parts(const std::string& option, const std::string& text, const std::vector<OptionKey>& keys, bool values) {
  std::vector<const OptionKey*> taken;
  for (const std::string& part : split_list(text)) {
    const bool word = *keys.front().name == '\0' && part.find('=') == std::string::npos;
    const OptionKey& key = word ? keys.front() : key_of(option, part, keys, values);
    if (std::ranges::count(taken, &key) > 0) throw refusal("{}: {} is given twice", option, word ? "NAME" : key.name);
    taken.push_back(&key);
    try {
      key.take(part.substr(word ? 0 : part.find('=') + 1));
    } catch (const InvalidInput& error) {
      throw refusal("{} {}: {}", option, part, error.what());
    }
  }
}

}  // namespace

void add_keyed_option(CLI::App& command, const std::string& option, const std::string& about,
                      std::vector<OptionKey> keys, bool values) {
  std::string help = about;
  for (const OptionKey& key : keys)
    help += fmt::format("\n  {:<11} {}", *key.name == '\0' ? "NAME" : key.name, key.about);
  const bool word = *keys.front().name == '\0';
  command
      .add_option_function<std::string>(
          option,
          [=, keys = std::move(keys)](std::string text) {
            std::ranges::replace(text, '\n', ',');  // between what was given at each time
            take_parts(option, text, keys, values);
          },
          help)
      ->multi_option_policy(CLI::MultiOptionPolicy::Join)
      ->type_name(word     ? "[NAME,]KEY=VALUE,..."
                  : values ? "KEY=VALUE,..."
                           : "NAME,...");
}

}  // namespace noisefloor
