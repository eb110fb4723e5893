#include "baselines/search.h"

#include <algorithm>
#include <map>
#include <vector>

namespace noisefloor {
namespace {

class Search {
 public:
  Search(Ranker& ranker, int count, const std::function<Status(int)>& timed, const std::function<Status(int)>& judged)
      : ranker_(&ranker), count_(count), timed_(&timed), judged_(&judged) {}

  Found run() {
    Found found;
    int ran = 0, tried = count_;
    for (const Caches caches : {Caches::cold, Caches::warm}) {
      const Ranking ranking = ranker_->rank(caches, count_, *timed_);
      found.status = choose(caches, ranking, found.algorithm.of(caches));
      if (!found.status.ok()) return found;
      ran = std::max(ran, ranking.ran);
      tried = std::min(tried, ranking.tried);
    }
    found.tally = "best of " + std::to_string(ran);
    if (tried < count_)
      found.tally +=
          "; " + std::to_string(count_ - tried) + " of " + std::to_string(count_) + " not timed for want of time";
    return found;
  }

 private:
  // The fastest accurate one of a ranking; where none of those is, of all.
  Status choose(Caches caches, const Ranking& ranking, int& chosen) {
    if (!ranking.status.ok()) return ranking.status;
    for (const Timed& one : ranking.fastest)
      if (accurate(one.index)) return chosen = one.index, success();
    std::vector<int> right;
    for (int i = 0; i < count_; ++i)
      if (accurate(i)) right.push_back(i);
    if (right.empty())
      return failure(StatusCode::unsupported_problem, "none of the library's algorithms meets the op's tolerance");
    const Ranking of_right = ranker_->rank(caches, static_cast<int>(right.size()),
                                           [&](int i) { return (*timed_)(right[static_cast<std::size_t>(i)]); });
    if (of_right.status.ok()) chosen = right[static_cast<std::size_t>(of_right.fastest.front().index)];
    return of_right.status;
  }

  bool accurate(int algorithm) {
    if (!*judged_) return true;
    const auto [known, first] = judgements_.try_emplace(algorithm, false);
    if (first) known->second = ranker_->accurate([&] { return (*judged_)(algorithm); });
    return known->second;
  }

  Ranker* ranker_;
  int count_;
  const std::function<Status(int)>*timed_, *judged_;
  std::map<int, bool> judgements_;
};

}  // namespace

Found search(Ranker& ranker, int count, const std::function<Status(int)>& timed,
             const std::function<Status(int)>& judged) {
  return Search(ranker, count, timed, judged).run();
}

std::string names_of(const ColdWarm<std::string>& names) {
  return names.cold == names.warm ? names.cold : names.cold + " cold, " + names.warm + " warm";
}

}  // namespace noisefloor
