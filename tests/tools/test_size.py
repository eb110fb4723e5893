"""tools/size: what it takes for a function and for a word."""

from tests.support.machine import load_tool

size = load_tool("size")

CODE = """#define MACRO(x) { (
namespace a {
struct B {
  int value = 0;  // a { brace
  int get() const {
    return value;
  }
};
const int kTable[] = {f(1),
                      2};
template <class T>
void long_one(T a,
              int b) {
  auto inner = [&] {
    g("}");
  };
  for (;;) {
  }
}
}  // namespace a
"""


def test_functions_of_cpp_and_python():
    assert list(size.functions("a.cpp", CODE)) == [(5, 3), (11, 9)]
    assert list(size.functions("a.py", "def f(\n    a):\n    return a\n\n\nclass C:\n    def g(self):\n        pass\n")) == [(1, 3), (7, 2)]
    assert list(size.functions("a.sh", "say() { echo; }\nbuild() {\n  x\n}\n"))[-1] == (2, 3)


def test_words_are_of_prose_alone():
    text = "# A title\n\nTwo [words here](a/link.md).\n\n| a | table |\n\n```\ncode here\n```\n\n<!-- generated: rows -->\nmany words\n<!-- end -->\n- last one\n"
    assert size.words(text) == 2 + 3 + 2
