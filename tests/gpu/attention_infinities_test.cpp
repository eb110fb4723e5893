// Attention over keys whose logits are -inf, NaN or large, by every variant and choice on a device: a key of -inf
// weighs nothing, also where a whole tile of keys is so; NaN, and rows without any finite logit, come out as NaN;
// logits far above those of networks weigh as they are.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/attention/strided.h"
#include "tests/support/catalogue_cases.h"
#include "tests/support/first_gpu.h"

namespace noisefloor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

using Judge = std::function<void(Fixture&, const Implementation&)>;

// Calls `judge` with every way to run attention on a problem with these queries and keys.
void for_each_way(const Keys& keys, DType dtype, const std::vector<std::uint16_t>& q,
                  const std::vector<std::uint16_t>& k, const Judge& judge) {
  const SuiteEntry& entry = *suite().find("attention");
  const AnyProblem problem = entry.workload->parse(keys.text());
  Fixture fixture(device(), entry, problem, dtype, /*seed=*/1,
                  {{"q", std::as_bytes(std::span(q))}, {"k", std::as_bytes(std::span(k))}});
  int ways = 0;
  for (const ImplementationPtr& implementation : entry.implementations) {
    if (!implementation->own() || !implementation->runs_on_platform(/*host=*/false) ||
        !implementation->can_run(problem, dtype) || !cannot_run_on(device(), *implementation).empty())
      continue;
    SCOPED_TRACE(keys.text() + " " + implementation->name);
    judge(fixture, *implementation);
    ++ways;
    const AnyVariant& right = *implementation->variant();
    if (!right.choices) continue;
    const auto choices = right.choices(problem, dtype, device().description().info);
    EXPECT_FALSE(choices.empty());
    for (const Choice& choice : choices) {
      SCOPED_TRACE(choice.text);
      AnyVariant variant = right;
      variant.launch = [text = choice.text, launch = right.launch](const AnyProblem& p, DType type,
                                                                   std::span<void* const> pointers,
                                                                   const Scratch& scratch, LaunchContext context) {
        context.choice = text;
        return launch(p, type, pointers, scratch, context);
      };
      judge(fixture, *implementation_of(variant));
    }
  }
  EXPECT_GT(ways, 0);
}

// Keys' first channels are `first`; queries' are 1, so that it is the largest part of every logit.
void for_each_way(const Keys& keys, const std::function<float(std::int64_t key)>& first, const Judge& judge) {
  for_each_way(keys, DType::bf16, rows_of(keys.seq_q * keys.heads, keys.dim, [](std::int64_t) { return 1.0f; }),
               rows_of(keys.seq_kv * keys.heads, keys.dim, [&](std::int64_t row) { return first(keys.key_of(row)); }),
               judge);
}

void expect_correct(Fixture& fixture, const Implementation& implementation) {
  Verifier verifier(fixture, {.oracle_flops = 1e9});
  BoundCase bound(fixture, implementation, &verifier);
  const Verdict verdict = verifier.verify(bound);
  EXPECT_TRUE(verdict.correct()) << verdict.reason;
}

TEST(AttentionOfInfinities, KeysOfMinusInfinityWeighNothing) {
  for (const Keys& keys : kShapes) {
    // All but a third in the middle: the first and the last tile of the longer ones have no finite logit.
    const auto masked = [&](std::int64_t key) { return std::abs(2 * key - keys.seq_kv) * 3 > keys.seq_kv; };
    for_each_way(
        keys, [&](std::int64_t key) { return masked(key) ? -kInfinity : 0.0f; }, expect_correct);
  }
}

// Logits are exact in fp32: all channels are 0 but the first two. The largest are those up to which README.md and
// `list variants` say that tensor-core variants are right.
TEST(AttentionOfInfinities, LargeLogitsWeighAsTheyAre) {
  using Channel = std::function<float(std::int64_t key)>;
  struct Large {
    const char* what;
    float query;
    Channel first, second;
  };
  const auto all = [](float value) { return [value](std::int64_t) { return value; }; };
  const auto a_third_less = [](float value) {
    return [value](std::int64_t key) { return key % 3 == 0 ? value * (1 - 1.0f / 128) : value; };
  };
  const auto rising = [](float step) {  // past the first tiles, too
    return [step](std::int64_t key) { return step * static_cast<float>(key % 8 - (key < 64 ? 3 : 0)); };
  };
  static_assert(attention::kLargestLogit == 0x1p26f);
  const Large cases[] = {
      {"2^10 and units", 32, all(32), rising(1)},
      {"2^21 and units", 2048, all(1024), rising(1)},
      {"2^26", 8192, all(8192), all(0)},
      {"2^26 and steps of 8", 8192, all(8192), rising(-8)},
      {"2^26 and less", 8192, a_third_less(8192), all(0)},
      {"-2^26 and more", -8192, a_third_less(8192), all(0)},
  };
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const Keys& keys : kShapes)
      for (const Large& large : cases) {
        SCOPED_TRACE(to_string(dtype) + std::string(" ") + large.what);
        const auto number = [&](float value) {
          return dtype == DType::bf16 ? float_to_bf16(value) : float_to_fp16(value);
        };
        std::vector<std::uint16_t> q(static_cast<std::size_t>(keys.seq_q * keys.heads * keys.dim));
        std::vector<std::uint16_t> k(static_cast<std::size_t>(keys.seq_kv * keys.heads * keys.dim));
        const auto dim = static_cast<std::size_t>(keys.dim);
        for (std::size_t at = 0; at < q.size(); at += dim) q[at] = number(large.query), q[at + 1] = number(1);
        for (std::size_t at = 0; at < k.size(); at += dim) {
          const std::int64_t key = keys.key_of(static_cast<std::int64_t>(at / dim));
          k[at] = number(large.first(key)), k[at + 1] = number(large.second(key));
        }
        for_each_way(keys, dtype, q, k, expect_correct);
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
