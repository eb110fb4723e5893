#include "baselines/forms.h"

#include <algorithm>
#include <optional>

namespace noisefloor {
namespace {

// Of a choice: the names of the cold and of the warm form, then "form/word" for each word of theirs.
constexpr std::size_t kNames = 2;

Algorithms words_of(const Algorithms& choice, const std::string& form) {
  Algorithms words;
  for (std::size_t i = kNames; i < choice.size(); ++i)
    if (choice[i].starts_with(form + "/")) words.push_back(choice[i].substr(form.size() + 1));
  return words;
}

}  // namespace

FormsRun::FormsRun(const std::vector<Form>& forms, const Algorithms& earlier) : forms_(forms.size()) {
  std::optional<LibraryRefused> refusal;
  for (const Form& form : forms) {
    const Algorithms words = words_of(earlier, form.name);
    if (!earlier.empty() && words.empty()) continue;
    try {
      runs_.push_back({form.name, form.create(words)});
    } catch (const LibraryRefused& refused) {
      if (!refusal) refusal = refused;
    }
  }
  if (!earlier.empty())
    chosen_ = {index_of(earlier.front()), earlier.size() < kNames ? -1 : index_of(earlier[kNames - 1])};
  const bool repeated = earlier.empty() || std::min(chosen_.cold, chosen_.warm) >= 0;
  if (refusal && (runs_.empty() || !repeated)) throw LibraryRefused(*refusal);
  if (!repeated) throw LibraryRefused("an earlier choice names no form");
}

int FormsRun::index_of(const std::string& name) const {
  const auto found = std::ranges::find(runs_, name, &Run::name);
  return found == runs_.end() ? -1 : static_cast<int>(found - runs_.begin());
}

std::size_t FormsRun::workspace_bytes() const {
  std::size_t most = 0;
  for (const Run& one : runs_)
    if (one.run) most = std::max(most, one.run->workspace_bytes());
  return most;
}

Status FormsRun::tune(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                      Ranker& ranker) {
  Status wrong;
  std::vector<int> right;
  for (Run& one : runs_) {
    const Status status = one.run->tune(pointers, scratch, context, ranker);
    one.right = status.ok();
    if (one.right)
      right.push_back(index_of(one.name));
    else if (status.code == StatusCode::unsupported_problem)
      wrong = status;
    else
      return status;
  }
  if (right.empty()) return wrong;
  for (const Caches caches : {Caches::cold, Caches::warm}) {
    const auto run = [&](int i) { return right[static_cast<std::size_t>(i)]; };
    int fastest = 0;
    if (right.size() > 1) {
      const Ranking ranking = ranker.rank(caches, static_cast<int>(right.size()), [&](int i) {
        return runs_[static_cast<std::size_t>(run(i))].run->launch(pointers, scratch, context, caches);
      });
      if (!ranking.status.ok()) return ranking.status;
      fastest = ranking.fastest.front().index;
    }
    chosen_.of(caches) = run(fastest);
  }
  for (Run& one : runs_)  // the others' plans take memory
    if (const int index = index_of(one.name); index != chosen_.cold && index != chosen_.warm) one.run.reset();
  return success();
}

Status FormsRun::launch(std::span<void* const> pointers, const Scratch& scratch, const LaunchContext& context,
                        Caches caches) {
  if (chosen_.of(caches) < 0) return failure(StatusCode::invalid_argument, "launch before tune");
  return runs_[static_cast<std::size_t>(chosen_.of(caches))].run->launch(pointers, scratch, context, caches);
}

std::string FormsRun::description() const {
  const auto text = [&](Caches caches) {
    return runs_[static_cast<std::size_t>(chosen_.of(caches))].run->description();
  };
  const auto right = std::ranges::count(runs_, true, &Run::right);
  const std::string tally = "; best of " + std::to_string(right) + " of " + std::to_string(forms_) + " forms";
  if (chosen_.cold == chosen_.warm) return text(Caches::cold) + tally;
  const auto named = [&](Caches caches) { return runs_[static_cast<std::size_t>(chosen_.of(caches))].name + ": "; };
  return "cold " + named(Caches::cold) + text(Caches::cold) + "; warm " + named(Caches::warm) + text(Caches::warm) +
         tally;
}

Algorithms FormsRun::algorithms() const {
  Algorithms words{runs_[static_cast<std::size_t>(chosen_.cold)].name,
                   runs_[static_cast<std::size_t>(chosen_.warm)].name};
  for (const Run& one : runs_)
    if (one.name == words[0] || one.name == words[1])
      for (const std::string& word : one.run->algorithms()) words.push_back(one.name + "/" + word);
  return words;
}

}  // namespace noisefloor
