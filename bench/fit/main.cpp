#include <iostream>

#include "bench/fit/fit.h"

int main(int argc, char** argv) {
  return noisefloor::fit::run(argc, argv, std::cout, std::cerr);
}
