// How ptx_sm90a_wide of attention cuts a problem: among how many blocks keys are shared, and what that takes.
#include "kernels/attention/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace noisefloor::attention {
namespace {

constexpr DeviceInfo kWideDevice{.compute_capability = 90, .sm_count = 132};

Problem head_of_512(std::int64_t batch, std::int64_t queries, std::int64_t keys) {
  return {.batch = batch, .heads = 1, .seq_q = queries, .seq_kv = keys, .dim = 512};
}

TEST(attention_wide_schedule, BlocksAreWholePairs) {
  EXPECT_EQ(wide_blocks(head_of_512(1, 1, 1)), 2);
  EXPECT_EQ(wide_blocks(head_of_512(1, 128, 1)), 2);
  EXPECT_EQ(wide_blocks(head_of_512(1, 129, 1)), 4);
  EXPECT_EQ(wide_blocks(head_of_512(1, 4096, 4096)), 64);
  EXPECT_EQ(wide_blocks(head_of_512(14, 9216, 9216)), 2016);
}

TEST(attention_wide_schedule, KeysAreSplitWhereSmsWouldBeIdle) {
  EXPECT_EQ(choose_wide_splits(head_of_512(1, 4096, 4096), 132), 2);    // 64 blocks become 128
  EXPECT_EQ(choose_wide_splits(head_of_512(1, 9216, 9216), 132), 2);    // 2 waves become 3 of half the keys
  EXPECT_EQ(choose_wide_splits(head_of_512(1, 16384, 16384), 132), 1);  // 256 blocks, 1.94 waves
  EXPECT_EQ(choose_wide_splits(head_of_512(14, 9216, 9216), 132), 1);
  EXPECT_EQ(choose_wide_splits(head_of_512(1, 4096, 128), 132), 1);
}

TEST(attention_wide_schedule, EverySplitHasATileOfKeys) {
  for (const std::int64_t keys : {1, 128, 129, 256, 257, 384, 385, 512, 4096})
    for (const std::int64_t queries : {1, 70, 1000, 4096, 20000}) {
      const Problem p = head_of_512(1, queries, keys);
      const std::vector<int> splits = wide_splits(p, 132);
      EXPECT_NE(std::find(splits.begin(), splits.end(), 1), splits.end());
      for (const int one : splits) EXPECT_LE(one, (keys + kWideKeys - 1) / kWideKeys);
    }
}

TEST(attention_wide_schedule, ChoicesAreDistinctAndEachIsFoundByItsText) {
  for (const std::int64_t keys : {1, 300, 4096}) {
    const Problem p = head_of_512(1, 300, keys);
    std::set<std::string> texts;
    const auto choices = wide_choices(p, DType::bf16, kWideDevice);
    for (const Choice& choice : choices) {
      EXPECT_TRUE(texts.insert(choice.text).second) << choice.text;
      EXPECT_EQ(choice.estimated, &choice == &choices.front());
      const auto splits = parse_wide_splits(p, choice.text, 132);
      ASSERT_TRUE(splits) << choice.text;
      EXPECT_LE(wide_partial_bytes(p, *splits), wide_workspace_bytes(p, DType::bf16, kWideDevice));
    }
    EXPECT_FALSE(parse_wide_splits(p, "splits=9", 132));
  }
}

TEST(attention_wide_schedule, TheWorkspaceHoldsSumsAndStatesOfEverySplit) {
  const Problem p{.batch = 2, .heads = 3, .seq_q = 100, .seq_kv = 300, .dim = 264};
  EXPECT_EQ(wide_partial_bytes(p, 1), 0u);
  EXPECT_EQ(wide_partial_bytes(p, 3), 3u * 600 * (264 + 2) * 4);
  EXPECT_EQ(wide_workspace_bytes(p, DType::fp16, kWideDevice), wide_partial_bytes(p, 3));
  EXPECT_EQ(wide_workspace_bytes(head_of_512(1, 300, 128), DType::fp16, kWideDevice), 0u);
}

}  // namespace
}  // namespace noisefloor::attention
