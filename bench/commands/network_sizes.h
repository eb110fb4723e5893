// The sizes that a network is run at: --height, --width, --frames and --tokens, and what the tensors of a file say.
#pragma once

#include <span>
#include <string>

#include "bench/tensors/safetensors.h"
#include "networks/network.h"

namespace CLI {
class App;
}

namespace noisefloor {

// `otherwise`: what holds where an option is not given, for help. `of_pictures`: height and width are those of what is
// drawn (latents_of_pictures). `without`: a size that cannot be chosen.
void add_size_options(CLI::App& command, networks::Sizes& sizes, const char* otherwise = "the network's own",
                      bool of_pictures = false, std::string_view without = {});

// What a network draws, in pixels, unless other sides are asked for: multiples of `side` (0: no others).
struct PictureSides {
  std::int64_t height, width, side;
};
PictureSides picture_sides(const networks::NetworkInfo& info);

// Height and width of pictures, as those of the latents that a decoder makes them of; other networks' are their
// pictures'. Throws InvalidInput on pictures that the network does not draw.
networks::Sizes latents_of_pictures(const networks::NetworkInfo& info, networks::Sizes pictures);

// The sizes of a call on a user's tensors: those asked for, and where none is (0), those of the tensors: images [n,
// channels, height, width], of videos [n, frames, channels, height, width], and text [n, tokens]. A tensor that is not
// in the file, or has another number of dimensions, is for the caller to complain of. Throws InvalidInput, with file
// and tensor, where the two contradict each other, or the network does not take such sizes.
networks::Sizes sizes_of_inputs(const networks::NetworkInfo& info, const networks::Sizes& asked,
                                std::span<const FileTensor> tensors, const std::string& path);

}  // namespace noisefloor
