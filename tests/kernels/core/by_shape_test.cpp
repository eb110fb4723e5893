// What a launch looks up by its shape.
#include "kernels/core/by_shape.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace noisefloor {
namespace {

using Key = std::array<std::int64_t, 3>;

std::int64_t of(const Key& key) {
  return key[0] * 7 + key[1] * 5 - key[2];
}

TEST(Remembered, IsWhatWouldBeFoundWhateverCameBefore) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {  // of 1,000 shapes, more than are kept
    const Key key{static_cast<std::int64_t>(random() % 10), static_cast<std::int64_t>(random() % 10) - 5,
                  static_cast<std::int64_t>(random() % 10) << 40};
    ASSERT_EQ(remembered(key, [&] { return of(key); }), of(key));
  }
}

TEST(Remembered, AsksOnceForAShapeThatComesAgain) {
  int asked = 0;
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(remembered(Key{1, 2, 3}, [&] { return std::optional<int>(++asked); }), std::optional<int>(1));
  EXPECT_EQ(asked, 1);
}

TEST(Remembered, SitesAndThreadsHaveTheirOwn) {
  const Key key{4, 5, 6};
  EXPECT_EQ(remembered(key, [] { return 1; }), 1);
  EXPECT_EQ(remembered(key, [] { return 2; }), 2);
  const auto in_a_thread = [&](int value) { return remembered(key, [=] { return value; }); };
  EXPECT_EQ(in_a_thread(3), 3);
  std::thread([&] { EXPECT_EQ(in_a_thread(4), 4); }).join();
  EXPECT_EQ(in_a_thread(5), 3);
}

TEST(Measured, RowsAreFoundByTheirShapeAndNoneByANearOne) {
  std::set<Key> rows;
  std::mt19937 random(2);
  const auto shape = [&] {
    return Key{static_cast<std::int64_t>(random() % 6), static_cast<std::int64_t>(random() % 6),
               static_cast<std::int64_t>(random() % 6)};
  };
  while (rows.size() < 50) rows.insert(shape());
  const std::vector<Key> table(rows.begin(), rows.end());
  for (int i = 0; i < 1000; ++i) {
    const Key wanted = shape();
    const Key* const found = find_measured(std::span(table), wanted, std::identity());
    ASSERT_EQ(found != nullptr, rows.contains(wanted));
    ASSERT_TRUE(found == nullptr || *found == wanted);
  }
}

}  // namespace
}  // namespace noisefloor
