// What a terminal gets of texts that come from files. That printing never throws is tested with the program itself
// (tests/cli/test_streams.py): its streams belong to the process.
#include "bench/platform/console.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace noisefloor {
namespace {

std::string plain(std::string_view text) {
  return PlainText().of(text);
}

TEST(PlainText, KeepsTextAndEscapesControls) {
  EXPECT_EQ(plain("time 12.5 µs\t(±1 %)\n"), "time 12.5 µs\t(±1 %)\n");
  EXPECT_EQ(plain("日本 \xF0\x9F\x99\x82"), "日本 \xF0\x9F\x99\x82");
  EXPECT_EQ(plain("\x1b[31mred\x1b]0;title\a"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(plain("a\rb\bc\x7f"), "a\\x0db\\x08c\\x7f");
  EXPECT_EQ(plain("\xC2\x9B"
                  "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins a sequence, as ESC [ does";
  EXPECT_EQ(plain("\x9B"
                  "31m"),
            "\\x9b31m");
  EXPECT_EQ(plain("\xE0\x80\xAF \xED\xA0\x80 \xF4\x90\x80\x80 \xC0\xAF"),
            "\\xe0\\x80\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xc0\\xaf")
      << "overlong, surrogates, beyond the last";
  EXPECT_EQ(plain("\xE6\x97\n"), "\\xe6\\x97\n") << "cut off";
}

RC_GTEST_PROP(PlainText, DoesNotDependOnWhereItIsCut, (const std::string& text, std::size_t cut)) {
  PlainText pieces;
  const std::size_t at = text.empty() ? 0 : cut % text.size();
  std::string out = pieces.of(std::string_view(text).substr(0, at));
  out += pieces.of(std::string_view(text).substr(at));
  RC_ASSERT(out == plain(text));
  for (const char c : out) RC_ASSERT(c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20);
}

}  // namespace
}  // namespace noisefloor
