#include "bench/measure/duellists.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bench/measure/failure.h"
#include "bench/measure/worker.h"

namespace noisefloor {
namespace {

class Duellists {
 public:
  explicit Duellists(const DuelGround& ground) : ground_(&ground) {}

  std::unique_ptr<Contender> make(const Case& one, const Case& other, const char* whose) {
    const Implementation& implementation = *one.implementation;
    if (implementation.worker || implementation.in_worker) {
      Worker* const worker = implementation.worker ? implementation.worker.get() : ground_->worker;
      if (worker == nullptr) throw LibraryMissing(ground_->why_no_worker);
      if (!in_worker_.empty() && implementation.worker == other.implementation->worker)
        throw LibraryRefused("both are of one process, which has one case at a time");
      const WorkerCase& made = *in_worker_.emplace_back(std::make_unique<WorkerCase>(*worker, one));
      if (const Verdict& verdict = made.verdict(); !verdict.correct && wrong.empty()) {
        wrong = fmt::format("{} before the first block: {}", whose, verdict.reason);
        who_is_wrong = &one;
      }
      return std::make_unique<WorkerContender>(*in_worker_.back());
    }
    if (BoundCase* kept = ground_->kept.find(implementation.name))
      return std::make_unique<BoundContender>(*kept, ground_->verifier);
    ground_->fixture.use_inputs(0);
    bound_.push_back(
        std::make_unique<BoundCase>(ground_->fixture, implementation, &ground_->verifier, &ground_->known));
    return std::make_unique<BoundContender>(*bound_.back(), ground_->verifier);
  }

  std::string wrong;  // what a worker's first launch left
  const Case* who_is_wrong = nullptr;

 private:
  const DuelGround* ground_;
  std::vector<std::unique_ptr<BoundCase>> bound_;
  std::vector<std::unique_ptr<WorkerCase>> in_worker_;
};

}  // namespace

void KeptCases::keep(const Implementation& implementation, const CaseResult& result, std::shared_ptr<BoundCase> bound) {
  if (result.row.status != Outcome::ok) return;
  Kept& kept = kept_[implementation.is(Kind::baseline)];
  if (!kept.bound || *result.row.time_warm_us < kept.warm_us)
    kept = {implementation.name, *result.row.time_warm_us, std::move(bound)};
}

BoundCase* KeptCases::find(const std::string& variant) const {
  for (const Kept& kept : kept_)
    if (kept.bound && kept.variant == variant) return kept.bound.get();
  return nullptr;
}

DuelResult meet(const DuelGround& ground, const Case& ours, const Case& theirs) {
  Duellists duellists(ground);
  const auto a = duellists.make(ours, theirs, "ours"), b = duellists.make(theirs, ours, "theirs");
  ground.before();
  if (duellists.who_is_wrong == nullptr) return fight(*a, *b);
  DuelResult wrong;
  wrong.wrong = duellists.wrong;
  wrong.ours_wrong = duellists.who_is_wrong == &ours;
  return wrong;
}

}  // namespace noisefloor
