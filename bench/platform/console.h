// stdout and stderr as commands may rely on them: printing never throws, never ends the program, and never sends a
// terminal what a file made up.
#pragma once

#include <string>
#include <string_view>

namespace noisefloor {

// Text as a terminal may get it: control characters other than line ends and tabs, and bytes that are not UTF-8, become
// \x1b and the like. It keeps in mind where a character was cut between two pieces.
class PlainText {
 public:
  std::string of(std::string_view piece);

 private:
  std::string pending_;  // the beginning of a character of several bytes
};

// At the start of main(). From here on `stdout` and `stderr` are streams of ours:
// - What cannot be written is dropped and remembered: a progress line that meets a full disk, or a reader that went
//   away (SIGPIPE is ignored), does not end a sweep.
// - Texts are plain (PlainText). A carriage return that begins what is written to stderr stays: progress goes on in
//   its line.
// - Descriptors 0 to 2 that are closed are put onto /dev/null, so that no file of a run gets their numbers.
// A limit on the size of files (SIGXFSZ) becomes an error of the write too. Google Benchmark prints through std::cout,
// which is not changed; finish_console() looks at it too.
void guard_console();

// From here on what is printed to stdout goes to stderr: stdout gets what a user asked for in place of a file.
void words_to_stderr();

void say_line(const std::string& text);  // to stderr

// At the end of main(): writes out what is left, and returns the exit code to end with: `code`, or 2 where that is 0
// and something could not be printed.
int finish_console(int code);

}  // namespace noisefloor
