// The sizes that a network is run at: --height, --width, --frames and --tokens.
#pragma once

#include <string_view>

#include "networks/network.h"

namespace CLI {
class App;
}

namespace noisefloor {

// `otherwise`: what holds where an option is not given, for help. `of_pictures`: height and width are those of what is
// drawn (latents_of_pictures). `without`: a size that cannot be chosen.
void add_size_options(CLI::App& command, networks::Sizes& sizes, const char* otherwise = "the network's own",
                      bool of_pictures = false, std::string_view without = {});

}  // namespace noisefloor
