// The corpus of the fuzzers, through their targets: what crashed once does not again. Needs no clang.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "reports/run/run_files.h"
#include "tests/fuzz/targets.h"

namespace noisefloor::fuzz {
namespace {

const std::filesystem::path kCorpus = "tests/fuzz/corpus";  // of the repository, where tests run

std::vector<std::uint8_t> read(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  EXPECT_TRUE(stream) << file;
  return {(std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>()};
}

class Replay : public testing::TestWithParam<const char*> {};

// Whole, cut off, and with another byte.
TEST_P(Replay, EveryInputOfTheCorpus) {
  constexpr std::size_t kMostPlaces = 200;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus / GetParam())) {
    SCOPED_TRACE(entry.path().string());
    const auto input = read(entry.path());
    run_watched(target(GetParam()), input);
    for (std::size_t at = 0; at < input.size(); at += 1 + input.size() / kMostPlaces) {
      run_watched(target(GetParam()), std::vector(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(at)));
      for (const std::uint8_t other : {'\0', '"', '[', '9'}) {
        auto changed = input;
        changed[at] = other;
        run_watched(target(GetParam()), changed);
      }
    }
    ++count;
  }
  EXPECT_GE(count, 3u);
}

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const Target& each : targets()) all.push_back(each.name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, testing::ValuesIn(names()), [](const auto& each) { return each.param; });

TEST(FuzzCorpus, IsSmallAndHasNoFolderOfNothing) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kCorpus))
    if (entry.is_regular_file()) bytes += entry.file_size();
  EXPECT_LT(bytes, 300'000u);
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus))
    EXPECT_TRUE(std::ranges::any_of(targets(), [&](const Target& each) {
      return entry.path().filename() == each.name;
    })) << entry.path();
}

// The exception that Target::row_bytes makes for short lines is none for a real run: four times its size is enough.
TEST(FuzzAllocations, OfARecordedRunStayBelowFourTimesItsSize) {
  const std::filesystem::path run = "reports/recorded/nvidia-h200";
  const std::string samples = read_samples_text(samples_file(run));
  for (const auto& [name, bytes] : {std::pair("sweep_csv", read(run / "sweep.csv")),
                                    std::pair("samples", std::vector<std::uint8_t>(samples.begin(), samples.end())),
                                    std::pair("environment", read(run / "env.json"))}) {
    Target strict = target(name);
    strict.row_bytes = 0;
    run_watched(strict, bytes);
  }
}

using FuzzDeathTest = testing::Test;
TEST_F(FuzzDeathTest, AnAllocationOutOfProportionEndsTheProcess) {
  const Target greedy = {"greedy", [](Input) { ::operator delete(::operator new(1 << 20)); }};
  const std::vector<std::uint8_t> small(100), large(1 << 19);
  run_watched(greedy, large);
  EXPECT_DEATH(run_watched(greedy, small), "greedy: an allocation of 1048576 bytes for an input of 100");
}

}  // namespace
}  // namespace noisefloor::fuzz
