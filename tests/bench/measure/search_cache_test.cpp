// What searches found is kept: by GPU, library version and problem, and not trusted blindly.
#include "bench/measure/search_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "bench/measure/bound_case.h"
#include "bench/measure/verify.h"
#include "bench/sweep/suite.h"
#include "tests/support/scripted_library.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

class KeptSearches : public testing::Test {
 protected:
  const TemporaryFolder folder;
  std::vector<std::string> said;
  const SearchCache::Key key{"H200", "91900", {{"conv2d", "n=1,h=8", "bf16"}, "cudnn"}};

  std::shared_ptr<SearchCache> cache() {  // as another process opens it
    return std::make_shared<SearchCache>(folder / "searches", [&](const std::string& text) { said.push_back(text); });
  }
  std::filesystem::path only_file() const {
    std::filesystem::path file;
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "searches")) file = entry.path(), ++files;
    EXPECT_EQ(files, 1);
    return file;
  }
};

TEST_F(KeptSearches, AreFoundByAnotherProcess) {
  EXPECT_FALSE(cache()->find(key));
  cache()->keep(key, {{"eng3", "eng7"}, "best of 4"});
  const auto found = cache()->find(key);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->algorithms, (Algorithms{"eng3", "eng7"}));
  EXPECT_EQ(found->description, "best of 4");
  EXPECT_TRUE(said.empty());
}

TEST_F(KeptSearches, AreOfOneGpuLibraryAndProblem) {
  cache()->keep(key, {{"eng3"}, ""});
  for (const auto change : {0, 1, 2, 3, 4, 5}) {
    SearchCache::Key other = key;
    std::string* const parts[] = {&other.device,   &other.version,    &other.id.op,
                                  &other.id.dtype, &other.id.problem, &other.id.variant};
    *parts[change] += "x";
    EXPECT_FALSE(cache()->find(other)) << change;
  }
  EXPECT_TRUE(said.empty());
}

TEST_F(KeptSearches, ThatAreDamagedAreMadeAgainWithAWord) {
  cache()->keep(key, {{"eng3"}, "best of 4"});
  std::ifstream file(only_file());
  const std::string right(std::istreambuf_iterator<char>(file), {});
  const auto with = [&](const char* from, const char* to) {
    return std::string(right).replace(right.find(from), std::string_view(from).size(), to);
  };
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string(R"({"schema":1})"), std::string("\xff\xfe"),
        with("\"eng3\"", "3"), with("\"eng3\"", ""), with("n=1,h=8", "n=1,h=9")}) {
    SCOPED_TRACE(text);
    said.clear();
    std::ofstream(only_file()) << text;
    EXPECT_FALSE(cache()->find(key));
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said.front().find(only_file().string()), std::string::npos) << said.front();
  }
  std::ofstream(only_file()) << with("best", "");
  EXPECT_TRUE(cache()->find(key)) << "a word less is no damage";
}

TEST_F(KeptSearches, AreMadeAgainWhereAskedButOnceAProcess) {
  cache()->keep(key, {{"eng3"}, ""});
  const auto again = cache();
  again->search_again();
  EXPECT_FALSE(again->find(key));
  again->keep(key, {{"eng4"}, ""});
  EXPECT_EQ(again->find(key)->algorithms, Algorithms{"eng4"});
  EXPECT_EQ(cache()->find(key)->algorithms, Algorithms{"eng4"});
}

TEST_F(KeptSearches, AreKeptForTheProcessWhereNoFolderCanBe) {
  std::ofstream(folder / "searches") << "a file";
  const auto one = cache();
  one->keep(key, {{"eng3"}, ""});
  one->keep(key, {{"eng3"}, ""});
  EXPECT_TRUE(one->find(key));
  EXPECT_EQ(said.size(), 1u) << "said once";
  SearchCache nowhere("", [&](const std::string& text) { said.push_back(text); });
  nowhere.keep(key, {{"eng3"}, ""});
  EXPECT_TRUE(nowhere.find(key));
  EXPECT_NE(said.back().find("HOME"), std::string::npos);
}

TEST_F(KeptSearches, OfSeveralWritersAtOnceAreWhole) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([&, i] {
      SearchCache one(folder / "searches", [](const std::string&) {});
      for (int n = 0; n < 50; ++n) one.keep(key, {{std::string(static_cast<std::size_t>(100 * i + 1), 'e')}, ""});
    });
  for (int n = 0; n < 200; ++n) (void)cache()->find(key);
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(cache()->find(key));
  EXPECT_TRUE(said.empty()) << said.front();
}

// Of a library by scripted times.
class RepeatedSearches : public KeptSearches {
 protected:
  const SuiteEntry& gemm = *suite().find("gemm");
  ScriptedPlatform platform;
  Fixture fixture{platform, gemm, gemm.workload->parse("m=4,n=4,k=4"), DType::fp32, 1};
  Verifier verifier{fixture};
  ScriptedLibrary library{platform, {{.us = 10, .warm_us = 9}, {.us = 20, .warm_us = 5}, {.us = 30}}};

  std::string ready() { return BoundCase(fixture, *library.implementation(cache()), &verifier).description(); }
  static constexpr const char* kSearched = "algorithm 0 cold, 1 warm; best of 3";
};

TEST_F(RepeatedSearches, TakeWhatAnEarlierOneFound) {
  EXPECT_EQ(ready(), kSearched);
  library.algorithms[2].launches = 0;
  EXPECT_EQ(ready(), std::string(kSearched) + "; cached");
  EXPECT_EQ(library.searches, 1);
  EXPECT_EQ(library.algorithms[2].launches, 0) << "only what was chosen is launched, to be judged";
  ++library.version;
  EXPECT_EQ(ready(), kSearched);
  EXPECT_EQ(library.searches, 2);
}

TEST_F(RepeatedSearches, AreMadeAnewWhereTheLibraryOffersItNoMore) {
  ready();
  library.offers_no_more = true;
  EXPECT_EQ(ready(), kSearched);
  EXPECT_EQ(library.searches, 2);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said.front().find("not offered any more"), std::string::npos);
}

TEST_F(RepeatedSearches, AreMadeAnewWhereAResultIsWrong) {
  for (const std::size_t wrong : {0u, 1u}) {
    SCOPED_TRACE(wrong);
    library.algorithms[wrong].right = true;
    ++library.version;
    ready();
    library.algorithms[wrong].right = false;
    const int before = library.searches;
    EXPECT_NE(ready(), std::string(kSearched) + "; cached");
    EXPECT_EQ(library.searches, before + 1);
    EXPECT_NE(ready().find("; cached"), std::string::npos) << "and the new one is kept";
    library.algorithms[wrong].right = true;
  }
}

TEST_F(RepeatedSearches, ThatCostTheDeviceAreNotRepeated) {
  for (const bool found_before : {false, true}) {  // the search itself, or what it found
    library.algorithms[0].loses_device = false;
    ++library.version;
    if (found_before) ready();
    library.algorithms[0].loses_device = true;
    const auto one = cache();
    EXPECT_THROW(BoundCase(fixture, *library.implementation(one), &verifier), DeviceError);
    library.algorithms[0].loses_device = false;
    for (const auto& searches : {one, cache()})  // in other processes too
      EXPECT_THROW(BoundCase(fixture, *library.implementation(searches), &verifier), LibraryRefused);
    const auto again = cache();
    again->search_again();
    EXPECT_EQ(BoundCase(fixture, *library.implementation(again), &verifier).description(), kSearched);
  }
}

}  // namespace
}  // namespace noisefloor
