#include "baselines/search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

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

Found search(Ranker& ranker, int count, const std::function<Status(int)>& timed,
             const std::function<Status(int)>& judged) {
  std::map<int, bool> judgements;
  const auto accurate = [&](int algorithm) {
    if (!judged) return true;
    const auto [known, first] = judgements.try_emplace(algorithm, false);
    if (first) known->second = ranker.accurate([&] { return judged(algorithm); });
    return known->second;
  };
  // The fastest accurate one of a ranking; where none of those is, of all.
  const auto choose = [&](Caches caches, const Ranking& ranking, int& chosen) {
    if (!ranking.status.ok()) return ranking.status;
    for (const Timed& one : ranking.fastest)
      if (accurate(one.index)) return chosen = one.index, success();
    std::vector<int> right;
    for (int i = 0; i < count; ++i)
      if (accurate(i)) right.push_back(i);
    if (right.empty())
      return failure(StatusCode::unsupported_problem, "none of the library's algorithms meets the op's tolerance");
    const Ranking of_right = ranker.rank(caches, static_cast<int>(right.size()),
                                         [&](int i) { return timed(right[static_cast<std::size_t>(i)]); });
    if (of_right.status.ok()) chosen = right[static_cast<std::size_t>(of_right.fastest.front().index)];
    return of_right.status;
  };

  Found found;
  int ran = 0, tried = count;
  for (const Caches caches : {Caches::cold, Caches::warm}) {
    const Ranking ranking = ranker.rank(caches, count, timed);
    found.status = choose(caches, ranking, found.algorithm.of(caches));
    if (!found.status.ok()) return found;
    ran = std::max(ran, ranking.ran);
    tried = std::min(tried, ranking.tried);
  }
  found.tally = "best of " + std::to_string(ran);
  if (tried < count)
    found.tally +=
        "; " + std::to_string(count - tried) + " of " + std::to_string(count) + " not timed for want of time";
  return found;
}

std::string names_of(const ColdWarm<std::string>& names) {
  return names.cold == names.warm ? names.cold : names.cold + " cold, " + names.warm + " warm";
}

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
  std::ptrdiff_t right = 0;
  for (Run& one : runs_) {
    const Status status = one.run->tune(pointers, scratch, context, ranker);
    if (!status.ok() && status.code != StatusCode::unsupported_problem) return status;
    if (status.ok())
      std::swap(runs_[static_cast<std::size_t>(right++)], one);
    else
      wrong = status;
  }
  if (right == 0) return wrong;
  runs_.erase(runs_.begin() + right, runs_.end());
  for (const Caches caches : {Caches::cold, Caches::warm}) {
    chosen_.of(caches) = 0;
    if (runs_.size() == 1) continue;
    const Ranking ranking = ranker.rank(caches, static_cast<int>(runs_.size()), [&](int i) {
      return runs_[static_cast<std::size_t>(i)].run->launch(pointers, scratch, context, caches);
    });
    if (!ranking.status.ok()) return ranking.status;
    chosen_.of(caches) = ranking.fastest.front().index;
  }
  for (int i = 0; i < std::ssize(runs_); ++i)  // the others' plans take memory
    if (i != chosen_.cold && i != chosen_.warm) runs_[static_cast<std::size_t>(i)].run.reset();
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
  const std::string tally = "; best of " + std::to_string(runs_.size()) + " of " + std::to_string(forms_) + " forms";
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
