// The identity of a case: printed, parsed, compared, hashed.
#include "reports/run/case_id.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>
#include <unordered_set>

#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

// What ops, problems, dtypes and variants are made of; few letters, so that equal parts come up.
std::string part() {
  return *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab=,_1"))));
}
CaseId any_case() {
  return {{part(), part(), part()}, part()};
}

TEST(CaseId, PrintsAndParses) {
  const CaseId id{{"gemm", "m=64,n=64,k=64", "bf16"}, "tiled"};
  EXPECT_EQ(id.name(), "gemm/m=64,n=64,k=64/bf16/tiled");
  EXPECT_EQ(id.problem_id().name(), "gemm/m=64,n=64,k=64/bf16");
  EXPECT_TRUE(rc::check("what name() prints, parse() reads", [] {
    const CaseId any = any_case();
    RC_ASSERT(CaseId::parse(any.name()) == any);
  }));
}

TEST(CaseId, ComparesPartByPart) {
  EXPECT_TRUE(rc::check("equal where every part is, ordered as the parts are, and as a set of names", [] {
    const CaseId a = any_case(), b = any_case();
    const auto parts = [](const CaseId& id) { return std::tie(id.op, id.problem, id.dtype, id.variant); };
    RC_ASSERT((a == b) == (parts(a) == parts(b)));
    RC_ASSERT((a < b) == (parts(a) < parts(b)));
    RC_ASSERT((a.name() == b.name()) == (a == b));
    RC_ASSERT((a.problem_id() == b.problem_id()) == (a.problem_id().name() == b.problem_id().name()));
  }));
}

TEST(CaseId, EqualOnesHashTheSame) {
  EXPECT_TRUE(rc::check("a hash map has as many as a tree", [] {
    std::set<CaseId> tree;
    std::unordered_set<CaseId> hashed;
    for (int i = 0; i < 20; ++i) {
      const CaseId id = any_case();
      tree.insert(id);
      hashed.insert(CaseId::parse(id.name()));
    }
    RC_ASSERT(std::set<CaseId>(hashed.begin(), hashed.end()) == tree);
    RC_ASSERT(std::hash<ProblemId>()(*tree.begin()) == std::hash<ProblemId>()(tree.begin()->problem_id()));
  }));
}

TEST(NameFilter, HasOneGrammar) {
  const std::string name = "conv2d/n=32,h=64,act=silu/bf16/ptx_sm90a";
  for (const char* pattern : {"", "conv2d", "^conv2d/", "ptx_sm90a$", "n=\\d+,h=\\d{2},", "[[:digit:]]{2},h",
                              "(?:silu|gelu)/", "^(?!gemm)", "h=6.", "act=[^/]*/bf16", "\\bptx", "n=32.*?ptx"})
    EXPECT_TRUE(name_filter("--filter", pattern)(name)) << pattern;
  for (const char* pattern : {"conv2d$", "^ptx", "n=d", "\\d{3}", "h=6/", "CONV", "n=32.ptx"})
    EXPECT_FALSE(name_filter("--filter", pattern)(name)) << pattern;
  for (const char* pattern : {"(", "[", "*", "a)(b", "(a)\\1", "a{2,1}", "(.{1000}){1000}"})
    expect_parts(error_of([&] { return name_filter("--filter", pattern); }), {"--filter: '"});
}

// A search that goes back would take longer than this test may for each.
TEST(NameFilter, Ends) {
  const std::string name(4096, 'x');
  for (const char* pattern : {"(.*)*z", "(x+x+)+y", "(x*)*y", "(x|xx)+y", "x*x*x*x*x*x*x*x*x*y", "(.*.*.*)*z"})
    EXPECT_FALSE(name_filter("--filter", pattern)(name)) << pattern;
}

TEST(NameFilter, RefusesWhatTheLibraryDoesNotBear) {
  for (const std::string& pattern : {std::string(90000, 'a'), std::string(60000, '(') + std::string(60000, ')'),
                                     std::string("(?=.*(?=.*(?=.*(?=.*(?=.*z)))))"), std::string("(?=.*(?!.*z))")}) {
    const std::string said = error_of([&] { return name_filter("--filter", pattern); });
    expect_parts(said, {"--filter: "});
    EXPECT_LT(said.size(), 200U);
  }
}

TEST(CaseId, RefusesWhatIsNotOne) {
  for (const char* text : {"", "gemm", "gemm/p/bf16", "gemm/p/bf16/", "/p/bf16/v", "gemm//bf16/v", "gemm/p/bf16/v/w"})
    EXPECT_EQ(error_of([&] { return CaseId::parse(text); }),
              "'" + std::string(text) + "' is not a case: op/problem/dtype/variant");
}

}  // namespace
}  // namespace noisefloor
