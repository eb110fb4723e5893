#include "bench/pipeline/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <ranges>

#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

namespace fs = std::filesystem;
using networks::Network;
using networks::NetworkInfo;

constexpr const char* kFromPickle =
    "take the model's .safetensors, or write them once, in Python: safetensors.torch.save_file(torch.load(FILE, "
    "weights_only=True), \"weights.safetensors\")";
constexpr const char* kDownload = "download the file itself again, and compare its size with the one that is published";
constexpr const char* kUnquantised = "take the model's weights in fp16, bf16 or fp32";
constexpr const char* kFromSingleFile =
    "make a folder of it, in Python: diffusers' StableDiffusionPipeline (for sdxl StableDiffusionXLPipeline) "
    ".from_single_file(FILE).save_pretrained(FOLDER); then --weights FOLDER";

struct ByBytes {
  std::string_view begins;
  const char* what;
  const char* advice;
};
using namespace std::string_view_literals;
constexpr ByBytes kByBytes[] = {
    {"PK\x03\x04"sv, "a zip archive, as PyTorch's pickles are (.ckpt, .bin, .pt)", kFromPickle},
    {"\x80"sv, "a pickle (.ckpt, .bin, .pt)", kFromPickle},
    {"GGUF"sv, "a GGUF file, of quantised weights", kUnquantised},
    {"version https://git-lfs"sv, "a pointer of Git LFS, not the file that it points to",
     "fetch the file: git lfs pull, in the folder of the clone"},
    {"<"sv, "a web page, as a wrong address or a login leaves in the place of a file", kDownload},
    {"{"sv, "a text in JSON, as a server's refusal is", kDownload},
    {"\x89HDF"sv, "an HDF5 file, of Keras", "take the model's .safetensors"},
    {"\x1f\x8b"sv, "a compressed archive", "unpack it first"},
    {""sv, "a text", kDownload},  // where all that is seen of it is one
};

// A mark is a part of a name; behind ^, its beginning.
struct ByNames {
  const char* what;
  std::string_view marks;
  const char* advice;
};
constexpr ByNames kByNames[] = {
    {"a LoRA, which changes a checkpoint and is none itself",
     "lora_up lora_down lora_A lora_B ^lora_ .lora. hada_w1 lokr_w1 oft_blocks",
     "add it to its checkpoint, in Python: pipeline.load_lora_weights(FILE), pipeline.fuse_lora(), "
     "pipeline.save_pretrained(FOLDER); then --weights FOLDER"},
    {"a ControlNet", "controlnet_cond_embedding controlnet_down_blocks ^control_model. ^input_hint_block",
     "there is no ControlNet here; take the pipeline's unet/ without it"},
    {"an IP-Adapter", "^image_proj ^ip_adapter to_k_ip", "there is no IP-Adapter here; take the pipeline without it"},
    {"a single-file checkpoint, of all of a pipeline's networks by their original names",
     "^model.diffusion_model. ^first_stage_model. ^cond_stage_model. ^conditioner.", kFromSingleFile},
    {"quantised: its weights are whole numbers, or fp8, with scales beside them",
     ".weight_scale .scale_weight ^scaled_fp8 .SCB .absmax .quant_map .qweight .qzeros bitsandbytes__", kUnquantised},
    {"an embedding of a textual inversion", "^emb_params ^string_to_param ^clip_l ^clip_g ^<",
     "it belongs to the text encoder: load it where the file of --conditioning is made"},
    {"a text encoder", "text_model.encoder.", "give the pipeline's folder, or its unet/"},
    {"a transformer, as Stable Diffusion 3, Flux and later have in the place of a U-Net",
     "^transformer_blocks. ^joint_blocks. ^double_blocks. ^single_transformer_blocks.",
     "noisefloor list networks has the networks that there are"},
    {"a U-Net by its original names, not by diffusers'", "^input_blocks. ^middle_block. ^output_blocks.",
     kFromSingleFile},
    {"an autoencoder by its original names, not by diffusers'", "decoder.mid.block_1. decoder.up.0.block.",
     "make a folder of it, in Python: diffusers' AutoencoderKL.from_single_file(FILE).save_pretrained(FOLDER)"},
};

bool marked(std::string_view name, std::string_view marks) {
  for (const auto part : std::views::split(marks, ' ')) {
    const std::string_view mark(part.begin(), part.end());
    if (mark.starts_with('^') ? name.starts_with(mark.substr(1)) : name.find(mark) != std::string_view::npos)
      return true;
  }
  return false;
}

std::string three_lines(const std::string& what, const std::string& has, const std::string& advice) {
  return fmt::format("{}\n  {}\n  to do: {}", what, has, advice);
}

std::string examples(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3, kLongest = 120;
  std::vector<std::string> some;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i)
    some.push_back(names[i].size() <= kLongest ? names[i] : names[i].substr(0, kLongest) + "...");
  const std::size_t more = names.size() - some.size();
  return fmt::format("{}{}", fmt::join(some, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

bool quantised(std::string_view dtype) {
  return dtype.starts_with("F8") || dtype.starts_with("F6") || dtype.starts_with("F4") || dtype == "I8" ||
         dtype == "U8";
}

// Whether all weights of a network are there, in their shapes.
bool are_of(const NetworkInfo& info, const std::map<std::string_view, const FileTensor*>& tensors) {
  const Network network =
      info.build({.conditional = tensors.contains(info.label_weight), .old_names = tensors.contains(info.old_weight)});
  return std::ranges::all_of(checkpoint_of(network.graph), [&](const auto& wanted) {
    const auto found = tensors.find(wanted.first);
    return found != tensors.end() && found->second->shape == wanted.second;
  });
}

// Of a safetensors file whose header says more than there is; empty where it does not.
std::string cut_off(const fs::path& file, const std::string& head, std::uintmax_t size) {
  constexpr std::uint64_t kMostHeader = 100'000'000;
  std::uint64_t length = 0;
  if (head.size() < sizeof length + 1 || head[sizeof length] != '{') return "";
  std::memcpy(&length, head.data(), sizeof length);
  if (length > kMostHeader) return "";
  std::uint64_t whole = sizeof length + length;
  std::string header(std::min<std::uint64_t>(length, size), '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.seekg(sizeof length);
  stream.read(header.data(), static_cast<std::streamsize>(header.size()));
  if (whole <= size) {
    constexpr std::string_view kKey = "\"data_offsets\":[";
    for (std::size_t at = header.find(kKey); at != std::string::npos; at = header.find(kKey, at + 1))
      if (const std::size_t comma = header.find(',', at); comma != std::string::npos)
        whole = std::max<std::uint64_t>(
            whole, sizeof length + length + std::strtoull(header.c_str() + comma + 1, nullptr, 10));
  }
  if (whole <= size) return "";
  return three_lines(
      fmt::format("{} is cut off, as a download that did not end", file.string()),
      fmt::format("it has {} of {}{} bytes", size, whole == sizeof length + length ? "more than " : "", whole),
      kDownload);
}

}  // namespace

std::string kind_of_file(const fs::path& file) {
  const std::string head = head_of(file, 256);
  std::error_code error;
  if (const std::string kind = cut_off(file, head, fs::file_size(file, error)); !kind.empty()) return kind;
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t start = std::min(head.find_first_not_of(kBlank), head.size());
  const auto printable = [](char byte) { return byte >= ' ' && byte <= '~'; };
  const bool is_text = start < head.size() && std::ranges::all_of(head, [&](char byte) {
                         return printable(byte) || kBlank.find(byte) != std::string_view::npos;
                       });
  for (const ByBytes& kind : kByBytes) {
    if (head.compare(start, kind.begins.size(), kind.begins) != 0 || (kind.begins.empty() && !is_text)) continue;
    std::string shown;  // of a text its beginning, of anything else less
    for (const char byte : head.substr(start, is_text ? 60 : 16))
      shown += printable(byte) ? std::string(1, byte) : fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    if (const std::size_t entry = head.find("data.pkl"); entry != std::string::npos) shown += "...data.pkl";
    return three_lines(fmt::format("{} is no safetensors file, but {}", file.string(), kind.what),
                       fmt::format("it begins with '{}'", shown), kind.advice);
  }
  return "";
}

std::string kind_of_tensors(const fs::path& file, std::span<const FileTensor* const> tensors, const NetworkInfo& wanted,
                            const TensorNames& known) {
  std::map<std::string_view, const FileTensor*> by_name;
  for (const FileTensor* tensor : tensors) by_name[tensor->name] = tensor;
  const auto lines = [&](const std::string& what, const std::vector<std::string>& names, const std::string& advice) {
    return three_lines(fmt::format("{} is not a checkpoint of {}: {}", file.string(), wanted.name, what),
                       "it has " + examples(names), advice);
  };
  const auto names_where = [&](const auto& so) {
    std::vector<std::string> names;
    for (const FileTensor* tensor : tensors)
      if (so(*tensor)) names.push_back(tensor->name);
    return names;
  };
  for (const NetworkInfo& info : networks::all_networks())
    if (std::string_view(info.name) != wanted.name && are_of(info, by_name))
      return lines(fmt::format("these are the weights of {}", info.name),
                   names_where([](const FileTensor&) { return true; }),
                   fmt::format("ask for {}, or give the weights of {}", info.name, wanted.name));
  for (const ByNames& kind : kByNames) {
    const auto of_kind = [&](std::string_view name) { return marked(name, kind.marks); };
    if (std::ranges::any_of(known, of_kind)) continue;  // as the network's own
    const auto names = names_where([&](const FileTensor& tensor) { return of_kind(tensor.name); });
    if (!names.empty()) return lines(fmt::format("it is {}", kind.what), names, kind.advice);
  }
  const auto small = names_where([](const FileTensor& tensor) { return quantised(tensor.dtype); });
  if (!small.empty())
    return lines("it is quantised, to " + std::string(by_name.at(small.front())->dtype), small, kUnquantised);
  return "";
}

std::string lines_of(const std::vector<Complaint>& complaints, std::size_t weights, const NetworkInfo& wanted) {
  constexpr std::size_t kMost = 20;  // lines that anybody reads
  std::vector<std::string> lines;
  for (const Complaint& complaint : complaints) lines.push_back(complaint.text);
  if (lines.size() <= kMost) return first_lines(lines, kMost);
  using Kind = Complaint::Kind;
  std::map<Kind, std::vector<std::string>> by_kind;
  for (const Complaint& complaint : complaints)
    by_kind[complaint.kind].push_back(
        complaint.kind == Kind::missing || complaint.kind == Kind::unknown ? complaint.name : complaint.text);
  constexpr const char* kWords[] = {"are missing", "are of another shape", "are of another dtype", "have wrong numbers",
                                    "are no tensors of it"};  // in the order of the kinds
  std::vector<std::string> counted;
  for (const auto& [kind, some] : by_kind)
    counted.push_back(fmt::format("{} {}: {}", some.size(), kWords[static_cast<int>(kind)], examples(some)));
  const std::size_t missing = by_kind[Kind::missing].size(), unknown = by_kind[Kind::unknown].size();
  counted.push_back("most likely: " +
                    (!by_kind[Kind::misshapen].empty() ? fmt::format("another version or width of {}", wanted.name)
                     : missing == weights
                         ? fmt::format("another network, or names of another library: none is {}'s", wanted.name)
                     : missing > 0 && unknown == 0
                         ? std::string("a part of a checkpoint, as one shard is: give the index, or the folder")
                     : missing > 0 ? fmt::format("a network like {}, but another", wanted.name)
                     : unknown > 0 ? fmt::format("{} with something added, or beside another network", wanted.name)
                                   : std::string("weights that were damaged, or kept in another form")));
  return first_lines(counted, kMost);
}

}  // namespace noisefloor::pipeline
