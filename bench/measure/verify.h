// Verification, which every timing needs first: poisoned outputs, guard bands, and comparison with the op's oracle.
//
// Where the oracle is too slow to compute every element, it computes a sampled set of them, and on a GPU every element
// is compared with the oracle's stand-in (an op's naive variant; of a choice, a quicker one), itself held to the same
// samples.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/fixture.h"

namespace noisefloor {

class BoundCase;

struct Verdict {
  std::string reason = "was not judged";  // what is wrong: tensor, element, values; empty: nothing is
  std::string note = {};                  // where correct, but not every element was compared: how many were
  double max_rel_error = 0;               // the largest of the outputs, as Tolerance defines it
  double tolerance = 0;
  double l2_error = 0;  // relative, the largest of the outputs; over the elements that the oracle computed
  double l2_tolerance = 0;

  bool correct() const { return reason.empty(); }
};

struct VerifierOptions {
  // Bounds the work of the host oracle per problem and set of inputs; of the second set it does a quarter of that. This
  // is about two seconds of one core's scalar double arithmetic with dtype conversion.
  double oracle_flops = 4e8;
  // Work above which nothing stands in: a naive variant would take many seconds, and the sample decides alone.
  double stand_in_flops = 4e12;
  // A quick stand-in for the oracle (Oracle::stand_ins), and never the variant that is judged.
  bool quick_stand_in = false;
};

// For what is chosen and not reported.
inline constexpr VerifierOptions kQuickVerification{.oracle_flops = 4e7, .quick_stand_in = true};

class Verifier {
 public:
  explicit Verifier(Fixture& fixture, const VerifierOptions& options = {});

  // Launches once on poisoned outputs and judges. Device failures throw.
  Verdict verify(BoundCase& bound);
  // The same of a launch that was recorded and is replayed, which runs what it puts on other streams before: right
  // where all of its work is on the stream that it was given. On a host it is one more launch, behind which a launch
  // whose outputs are written when it has returned is wrong; what it leaves to threads is waited for.
  Verdict verify_replay(BoundCase& bound);
  // Before launches of `judged` that will be judged: outputs are poisoned, and what they must be is known.
  void expect(std::string_view judged = {});
  // Judges what earlier launches left in the outputs, guard bands and inputs, without launching; with `bound`, also the
  // band behind its workspace.
  Verdict judge(BoundCase& bound);
  Verdict judge_outputs();
  Fixture& fixture() const { return *fixture_; }

 private:
  void consult_oracle();
  template <class Number>
  Buffer uploaded(const std::vector<Number>& numbers) const;
  // These two overwrite the outputs.
  void find_stand_in(std::string_view judged);
  bool make_stand_in_outputs(const Implementation& stand_in);
  std::optional<std::string> compare_with_oracle(Verdict& verdict);
  std::optional<std::string> find_not_finite();
  std::optional<std::string> compare_with_stand_in();

  Fixture* fixture_;
  VerifierOptions options_;
  Tolerance tolerance_;
  // Of a set of inputs.
  struct Known {
    std::vector<Expectation> expectations;
    // What those are compared with, one each: their elements where they are a sample, and their values.
    struct OnPlatform {
      Buffer elements, values;
    };
    std::vector<OnPlatform> on_platform;
    const Implementation* stand_in = nullptr;        // whose outputs there are
    std::map<std::size_t, Buffer> stand_in_outputs;  // by tensor, of those that the oracle samples
    std::set<const Implementation*> unfit;           // to stand in
  };
  Known& known() { return known_[fixture_->inputs()]; }
  std::array<Known, Fixture::kSets> known_;
};

}  // namespace noisefloor
