// What `noisefloor sample --conditioning` reads: what a network is told of a picture beside its noise (its row says
// what), and the first noise where the file has one.
#pragma once

#include <string>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/tensors/safetensors.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

class Conditioning {
 public:
  // The tensors of NetworkInfo::conditioning; guided: also those of the half without condition. Throws InvalidInput
  // that names all that is missing, and the command that makes such a file; also on tensors that it does not take.
  Conditioning(const std::string& path, const NetworkInfo& info, bool guided);

  static std::string command_for(const NetworkInfo& info);  // that makes such a file

  // What the network is built for: `asked`, and where that has a 0, what the file's text and pictures say. Throws
  // InvalidInput where they contradict each other.
  Sizes sizes(const Sizes& asked) const;
  // Reads them. Throws InvalidInput on tensors of another shape: each has a row a picture, or one for all; pictures
  // are [n, channels, height, width], and latents (the first noise, optional) [count, channels, height, width], of
  // videos [count, frames, channels, height, width].
  void read(const Network& network, std::int64_t count);
  // Tells the network what images [first, first + batch) are of: rows in turns.
  void set(Platform& platform, const Executor& executor, std::int64_t first) const;
  // The first noise of these images, channels-last, zeros beyond the last one; empty where the file has none.
  std::vector<float> noise(const Network& network, std::int64_t first) const;

 private:
  // An input's rows: of the given half, and of the half without condition (none: zeros).
  struct Rows {
    std::vector<double> given, without;
  };
  const FileTensor& tensor(const char* name) const { return *file_.find(name); }
  std::vector<double> rows_of(const NetworkTensor& input, const Network& network, const char* name,
                              std::int64_t pictures) const;

  std::string path_;
  SafetensorsFile file_;
  const NetworkInfo* info_;
  bool guided_;
  std::vector<Rows> rows_;  // in the order of NetworkInfo::conditioning
  std::vector<float> latents_;
};

}  // namespace noisefloor::pipeline
