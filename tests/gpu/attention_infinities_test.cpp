// Attention over keys whose logits are -inf or NaN, by every variant and choice on a device: a key of -inf weighs
// nothing, also where a whole tile of keys is so; NaN, and rows without any finite logit, come out as NaN.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/catalogue_cases.h"

namespace noisefloor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Platform& device() {
  static const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  return *platform;
}

// Numbers of about [-1, 1), but for channel 0 of each row, which is `first(row)` where that is not 0. bf16.
std::vector<std::uint16_t> rows_of(std::int64_t rows, std::int64_t dim,
                                   const std::function<float(std::int64_t)>& first) {
  std::vector<std::uint16_t> values;
  std::uint32_t state = 1;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t channel = 0; channel < dim; ++channel) {
      state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
      const float given = channel == 0 ? first(row) : 0;
      values.push_back(float_to_bf16(given != 0 ? given : static_cast<float>(state >> 8) / (1 << 23) - 1));
    }
  return values;
}

struct Keys {
  std::int64_t heads, seq_q, seq_kv, dim;

  std::string text() const {
    return "batch=1,heads=" + std::to_string(heads) + ",seq_q=" + std::to_string(seq_q) +
           ",seq_kv=" + std::to_string(seq_kv) + ",dim=" + std::to_string(dim) + ",scale=1,lse=1";
  }
  std::int64_t key_of(std::int64_t row) const { return row / heads; }  // k is [seq_kv, heads, dim]
};

// Several tiles of keys, the last of them ragged, so that choices differ; and one tile. Narrow heads and wide ones.
constexpr Keys kShapes[] = {{2, 200, 300, 64}, {3, 70, 333, 40},  {2, 100, 77, 64},
                            {1, 64, 80, 80},   {1, 70, 500, 320}, {2, 130, 60, 512}};

// Calls `judge` with every way to run attention on a problem whose keys' first channels are `first`; queries' are 1, so
// that it is the largest part of every logit.
void for_each_way(const Keys& keys, const std::function<float(std::int64_t key)>& first,
                  const std::function<void(Fixture&, const Implementation&)>& judge) {
  const SuiteEntry& entry = *suite().find("attention");
  const AnyProblem problem = entry.workload->parse(keys.text());
  const auto q = rows_of(keys.seq_q * keys.heads, keys.dim, [](std::int64_t) { return 1.0f; });
  const auto k = rows_of(keys.seq_kv * keys.heads, keys.dim, [&](std::int64_t row) { return first(keys.key_of(row)); });
  Fixture fixture(device(), entry, problem, DType::bf16, /*seed=*/1,
                  {{"q", std::as_bytes(std::span(q))}, {"k", std::as_bytes(std::span(k))}});
  int ways = 0;
  for (const ImplementationPtr& implementation : entry.implementations) {
    if (!implementation->own() || !implementation->runs_on_platform(/*host=*/false) ||
        !implementation->can_run(problem, DType::bf16) || !cannot_run_on(device(), *implementation).empty())
      continue;
    SCOPED_TRACE(keys.text() + " " + implementation->name);
    judge(fixture, *implementation);
    ++ways;
    const AnyVariant& right = *implementation->variant();
    if (!right.choices) continue;
    const auto choices = right.choices->list(problem, DType::bf16, device().description().info);
    EXPECT_FALSE(choices.empty());
    for (const Choice& choice : choices) {
      SCOPED_TRACE(choice.text);
      AnyVariant variant = right;
      variant.launch = [text = choice.text, launch = right.choices->launch](
                           const AnyProblem& p, DType dtype, std::span<void* const> pointers, const Scratch& scratch,
                           const LaunchContext& context) { return launch(p, dtype, pointers, scratch, context, text); };
      judge(fixture, *implementation_of(variant));
    }
  }
  EXPECT_GT(ways, 0);
}

TEST(AttentionOfInfinities, KeysOfMinusInfinityWeighNothing) {
  for (const Keys& keys : kShapes) {
    // All but a third in the middle: the first and the last tile of the longer ones have no finite logit.
    const auto masked = [&](std::int64_t key) { return std::abs(2 * key - keys.seq_kv) * 3 > keys.seq_kv; };
    for_each_way(
        keys, [&](std::int64_t key) { return masked(key) ? -kInfinity : 0.0f; },
        [](Fixture& fixture, const Implementation& implementation) {
          Verifier verifier(fixture, {.oracle_flops = 1e9});
          BoundCase bound(fixture, implementation, &verifier);
          const Verdict verdict = verifier.verify(bound);
          EXPECT_TRUE(verdict.correct) << verdict.reason;
        });
  }
}

TEST(AttentionOfInfinities, NotANumberStaysOne) {
  for (const Keys& keys : kShapes)
    for (const bool all : {false, true}) {  // all keys -inf; or one of them NaN
      SCOPED_TRACE(all ? "all -inf" : "one NaN");
      for_each_way(
          keys,
          [&](std::int64_t key) {
            return all ? -kInfinity : key == keys.seq_kv - 1 ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
          },
          [&](Fixture& fixture, const Implementation& implementation) {
            BoundCase bound(fixture, implementation);
            const auto elements = static_cast<std::size_t>(keys.seq_q * keys.heads * keys.dim);
            void* const out = fixture.pointers()[3];
            device().fill_bytes(out, 0, elements * sizeof(std::uint16_t));
            throw_if_failed(bound.launch()());
            device().synchronize();
            std::vector<std::uint16_t> values(elements);
            device().download(values.data(), out, elements * sizeof(std::uint16_t));
            EXPECT_EQ(std::count_if(values.begin(), values.end(), [](auto v) { return std::isnan(bf16_to_float(v)); }),
                      static_cast<std::ptrdiff_t>(elements));
          });
    }
}

}  // namespace
}  // namespace noisefloor
