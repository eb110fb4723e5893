// Formulas of fields, as ops write the extents and conditions of their tensors.
#include "kernels/core/symbols.h"

#include <gtest/gtest.h>

#include "kernels/catalogue.h"

namespace noisefloor {
namespace {

constexpr const char* kActs[] = {"none", "silu+ss", "silu"};

// m=7, n=unknown, act=silu, flag=1, and half of m.
Symbols some() {
  Symbols symbols;
  std::int64_t m = 7, n = 0;
  bool flag = true;
  int act = 2;
  symbols.integer("m", "", m, 0, 100, std::nullopt);
  symbols.integer("n", "", n, 0, 100, std::nullopt);
  symbols.enumeration("act", "", act, kActs, 0);
  symbols.flag("flag", "", flag, false);
  symbols.let("half", "m/2");
  symbols[1].value.reset();
  symbols.let("more", "n + m");
  return symbols;
}

TEST(Symbols, FormulasHaveTheValuesOfC) {
  const Symbols symbols = some();
  const std::pair<const char*, std::int64_t> known[] = {{"m", 7},
                                                        {"2*m + 3 - 1", 16},
                                                        {"(m + 1)/3*2", 4},
                                                        {"half*half", 9},
                                                        {"m>6", 1},
                                                        {"m>7", 0},
                                                        {"act=silu", 1},
                                                        {"act!=silu", 0},
                                                        {"act=silu+ss", 0},
                                                        {"!flag", 0},
                                                        {"m*(1 + (act=silu))", 14},
                                                        {"flag & act=none | m=7", 1},
                                                        {"n>0 & m=8", 0},
                                                        {"n>0 | m=7", 1},
                                                        {"9000000000000*9000000000000", INT64_MAX}};
  for (const auto& [formula, value] : known) EXPECT_EQ(symbols.evaluate(formula), value) << formula;
}

TEST(Symbols, WhatFollowsAnUnknownIsUnknown) {
  const Symbols symbols = some();
  for (const char* formula : {"n", "m + n", "n>0 & m=7", "n>0 | m=8", "!n", "m/0", "of_its_own(m, act)"})
    EXPECT_EQ(symbols.evaluate(formula), std::nullopt) << formula;
}

TEST(Symbols, FieldsOfAFormulaAreFoundThroughNames) {
  const Symbols symbols = some();
  EXPECT_EQ(symbols.fields_in("2*more + act"), (std::vector<std::size_t>{1, 0, 2}));
  EXPECT_EQ(symbols.fields_in("of_its_own(act, flag)"), (std::vector<std::size_t>{2, 3}));
  for (const char* formula : {"k", "m +", "(m", "m)", "act=slu", "of_its_own(m"})
    EXPECT_THROW(symbols.evaluate(formula), std::logic_error) << formula;
}

// A typing error in an op is found whatever the problem.
TEST(Symbols, EveryFormulaOfTheCatalogueMakesSense) {
  for (const Op& op : catalogue()) {
    EXPECT_FALSE(op.table.rules.empty()) << op.name;
    for (const TensorRule& rule : op.table.rules) {
      EXPECT_NO_THROW(op.table.symbols.evaluate(rule.condition)) << op.name << " " << rule.name;
      for (const std::string_view extent : rule.shape)
        EXPECT_NO_THROW(op.table.symbols.evaluate(extent.substr(0, extent.find('=')))) << op.name << " " << rule.name;
    }
  }
}

}  // namespace
}  // namespace noisefloor
