// What `noisefloor sample --conditioning` reads: embedded text for networks that read it, and the first noise where the
// file has one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/tensors/safetensors.h"
#include "networks/network.h"

namespace noisefloor {

class Conditioning {
 public:
  // The file's prompt_embeds [n, tokens, width]; guided: and negative_prompt_embeds, as many or one. Throws
  // InvalidInput that names all that is missing, and the command that makes such a file.
  Conditioning(const std::string& path, const networks::NetworkInfo& info, bool guided);

  static std::string command_for(const networks::NetworkInfo& info);  // that makes such a file

  std::int64_t tokens() const { return tokens_; }
  // Reads them. Throws InvalidInput on tensors that the network does not take, and latents (the first noise, optional)
  // that are not [count, channels, height, width].
  void read(const networks::Network& network, std::int64_t count);
  // Tells the network what images [first, first + batch) are of: prompts in turns.
  void set(Platform& platform, const pipeline::Executor& executor, std::int64_t first) const;
  // The first noise of these images, channels-last, zeros beyond the last one; empty where the file has none.
  std::vector<float> noise(const networks::Network& network, std::int64_t first) const;

 private:
  const FileTensor& tensor(const char* name) const { return *file_.find(name); }

  std::string path_;
  SafetensorsFile file_;
  bool guided_;
  std::int64_t tokens_ = 0;
  std::vector<double> prompts_, negative_prompts_;
  std::vector<float> latents_;
};

}  // namespace noisefloor
