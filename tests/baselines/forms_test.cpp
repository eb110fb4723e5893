// The choice among several forms of one library's run, with runs and times of the test's own.
#include "baselines/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

struct Script {
  double cold_us = 1, warm_us = 1;
  Status tuned = {};
  std::size_t workspace = 0;
  bool refused = false;
};

// Of each form; a launch names itself, and the ranker asks what it takes.
struct Library {
  std::map<std::string, Script> scripts;
  std::string launched = {};
  std::vector<std::string> earlier_words = {};

  Form form(const std::string& name) {
    return {name, [this, name](const Algorithms& earlier) -> std::unique_ptr<BaselineRun> {
              for (const std::string& word : earlier) earlier_words.push_back(name + ":" + word);
              if (scripts.at(name).refused) throw LibraryRefused("refused: " + name);
              return std::make_unique<Run>(*this, name);
            }};
  }
  std::vector<Form> all() {
    std::vector<Form> forms;
    for (const auto& [name, script] : scripts) forms.push_back(form(name));
    return forms;
  }

  struct Run final : BaselineRun {
    Run(Library& its_library, std::string its_name) : library(its_library), name(std::move(its_name)) {}
    std::size_t workspace_bytes() const override { return library.scripts.at(name).workspace; }
    Status tune(std::span<void* const>, const Scratch&, const LaunchContext&, Ranker&) override {
      return library.scripts.at(name).tuned;
    }
    Status launch(std::span<void* const>, const Scratch&, const LaunchContext&, Caches) override {
      library.launched = name;
      return success();
    }
    std::string description() const override { return "plan of " + name; }
    Algorithms algorithms() const override { return {"cold/" + name, "warm/" + name}; }
    Library& library;
    std::string name;
  };
};

struct Times final : Ranker {
  explicit Times(Library& its_library) : library(its_library) {}
  Ranking rank(Caches caches, int count, const std::function<Status(int)>& launch) override {
    Ranking ranking;
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(launch(i).ok());
      const Script& script = library.scripts.at(library.launched);
      ranking.fastest.push_back({caches == Caches::cold ? script.cold_us : script.warm_us, i});
    }
    std::ranges::sort(ranking.fastest, {}, &Timed::microseconds);
    ranking.tried = ranking.ran = count;
    return ranking;
  }
  bool accurate(const std::function<Status()>&) override { return true; }
  Library& library;
};

std::string launched(Library& library, FormsRun& run, Caches caches) {
  library.launched.clear();
  EXPECT_TRUE(run.launch({}, {}, {}, caches).ok());
  return library.launched;
}

Status tune(Library& library, FormsRun& run) {
  Times times(library);
  return run.tune({}, {}, {}, times);
}

const Status kInaccurate = failure(StatusCode::unsupported_problem, "none is accurate");

TEST(Forms, TheFasterRunsInEachStateOfTheCaches) {
  Library library{{{"a", {.cold_us = 1, .warm_us = 3, .workspace = 8}}, {"b", {.cold_us = 2, .warm_us = 2}}}};
  FormsRun run(library.all(), {});
  EXPECT_EQ(run.workspace_bytes(), 8u);
  EXPECT_FALSE(run.launch({}, {}, {}, Caches::cold).ok()) << "before tune";
  ASSERT_TRUE(tune(library, run).ok());
  EXPECT_EQ(launched(library, run, Caches::cold), "a");
  EXPECT_EQ(launched(library, run, Caches::warm), "b");
  EXPECT_EQ(run.description(), "cold a: plan of a; warm b: plan of b; best of 2 of 2 forms");

  FormsRun again(library.all(), run.algorithms());
  EXPECT_EQ(launched(library, again, Caches::cold), "a");
  EXPECT_EQ(launched(library, again, Caches::warm), "b");
  EXPECT_EQ(library.earlier_words, (std::vector<std::string>{"a:cold/a", "a:warm/a", "b:cold/b", "b:warm/b"}));
  EXPECT_EQ(again.algorithms(), run.algorithms());
}

TEST(Forms, OneThatIsNotUsedIsLeftAndNotMadeAgain) {
  Library library{{{"a", {.cold_us = 3, .warm_us = 3, .workspace = 8}},
                   {"b", {.workspace = 16}},
                   {"c", {.cold_us = 2, .warm_us = 2, .workspace = 32}}}};
  FormsRun run(library.all(), {});
  EXPECT_EQ(run.workspace_bytes(), 32u);
  ASSERT_TRUE(tune(library, run).ok());
  EXPECT_EQ(run.workspace_bytes(), 16u);
  EXPECT_EQ(run.prepared_bytes(), 0u);
  EXPECT_EQ(run.description(), "plan of b; best of 3 of 3 forms");
  library.scripts.at("a").refused = library.scripts.at("c").refused = true;
  FormsRun again(library.all(), run.algorithms());
  EXPECT_EQ(launched(library, again, Caches::warm), "b");
}

TEST(Forms, WhatIsRefusedOrInaccurateIsPassedOver) {
  Library library{{{"a", {.refused = true}}, {"b", {.cold_us = 0, .warm_us = 0, .tuned = kInaccurate}}, {"c", {}}}};
  FormsRun run(library.all(), {});
  ASSERT_TRUE(tune(library, run).ok());
  EXPECT_EQ(launched(library, run, Caches::cold), "c");
  EXPECT_EQ(run.description(), "plan of c; best of 1 of 3 forms");
}

TEST(Forms, WhereNoneIsLeftTheLibraryRefused) {
  Library library{{{"a", {.tuned = kInaccurate}}, {"b", {.tuned = kInaccurate}}}};
  FormsRun run(library.all(), {});
  EXPECT_EQ(tune(library, run).code, StatusCode::unsupported_problem);
  library.scripts = {{"a", {.refused = true}}, {"b", {.refused = true}}};
  EXPECT_EQ(refusal_of<LibraryRefused>([&] { return FormsRun(library.all(), {}).prepared_bytes(); }), "refused: a");
}

TEST(Forms, AFailureOfTheDeviceIsOneOfTheSearch) {
  Library library{{{"a", {.tuned = failure(StatusCode::cuda_error, "gone")}}, {"b", {}}}};
  FormsRun run(library.all(), {});
  EXPECT_EQ(tune(library, run).code, StatusCode::cuda_error);
}

TEST(Forms, OneAloneIsChosenWithoutATimer) {
  Library library{{{"a", {}}}};
  FormsRun run(library.all(), {});
  ASSERT_TRUE(tune(library, run).ok());
  EXPECT_EQ(library.launched, "") << "nothing to compare it with";
  EXPECT_EQ(launched(library, run, Caches::warm), "a");
  EXPECT_EQ(run.algorithms(), (Algorithms{"a", "a", "a/cold/a", "a/warm/a"}));
}

TEST(Forms, AnotherChoiceIsRefused) {
  Library library{{{"a", {}}, {"b", {}}}};
  for (const Algorithms& earlier : std::vector<Algorithms>{
           {"eng1", "eng2"}, {"a"}, {"a", "b"}, {"a", "a", "eng1"}, {"a", "b", "a/eng1"}, {"b", "c", "b/x", "c/x"}})
    EXPECT_THROW(FormsRun(library.all(), earlier), LibraryRefused) << earlier.back();
}

}  // namespace
}  // namespace noisefloor
