// Files of tensors in the safetensors format (https://huggingface.co/docs/safetensors): eight bytes of header length,
// a JSON header that gives each tensor's dtype, shape and place, and the tensors' bytes, which tile the rest of the
// file.
//
// The reader is strict: whatever the format does not allow is refused with a message that names it, before any tensor
// is touched. It allocates at most about four bytes for each byte of the file, however the header is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/fields.h"

namespace noisefloor {

// A file that cannot be read, or is not a safetensors file. The message names the tensor or the byte.
struct SafetensorsError : InvalidInput {
  using InvalidInput::InvalidInput;
};

struct FileTensor {
  std::string name;
  std::string_view dtype;           // the format's name, in static storage: "BF16", "F32", "I64", ...
  std::vector<std::int64_t> shape;  // row-major, outermost first; empty for a scalar
  std::span<const std::byte> data;  // in the file's memory; not aligned where the file does not align it

  std::string text() const;  // "BF16 [2, 320]"
};

// The format's name of an element type, and back; nullopt for those that no op has (BOOL, I8, F8_E4M3, ...).
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_of_safetensors(std::string_view name);

// How a file has images, as its metadata says under this key. Ops are channels-last ([n, h, w, channels]); at the
// border of networks images are channels-first, as PyTorch has them.
inline constexpr const char* kLayoutKey = "layout";
inline constexpr const char* kChannelsLast = "channels-last";
inline constexpr const char* kChannelsFirst = "channels-first";

// The tensors of a whole file that is in memory, in the order of their bytes; and the first entries of its metadata.
// Throws SafetensorsError.
using FileMetadata = std::map<std::string, std::string>;
std::vector<FileTensor> parse_safetensors(std::span<const std::byte> file, FileMetadata* metadata = nullptr);

// A file, open for the life of the object: a tensor's bytes are read from the disk when they are asked for.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  // throws SafetensorsError with the file's name
  // A file of another format, whose tensors `parse` finds; it throws SafetensorsError.
  using Parse = std::function<std::vector<FileTensor>(std::span<const std::byte> file)>;
  SafetensorsFile(const std::filesystem::path& path, const Parse& parse);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::vector<FileTensor>& tensors() const { return tensors_; }
  const FileTensor* find(std::string_view name) const;  // null where there is none
  std::size_t bytes() const { return bytes_; }          // of the whole file
  const FileMetadata& metadata() const { return metadata_; }

  // A tensor's bytes, aligned for every dtype. `data` of the tensors is the file mapped into memory, and the end of the
  // process where someone truncates the file in the meantime; this throws SafetensorsError then.
  std::vector<std::byte> read(const FileTensor& tensor) const;
  void read(const FileTensor& tensor, std::span<std::byte> bytes) const;  // into as many bytes as it has
  // Gives `take` its bytes in pieces of whole elements, on several threads at once. `take` must not throw.
  void scan(const FileTensor& tensor, const std::function<void(std::span<const std::byte>)>& take) const;
  // Throws SafetensorsError where the metadata says the other layout.
  void require_layout(std::string_view layout) const;

 private:
  SafetensorsFile() = default;  // complete: what throws after it is followed by the destructor
  std::int64_t offset_of(const FileTensor& tensor) const;
  void require_read(const FileTensor& tensor, int fault) const;  // 0: it was

  std::filesystem::path path_;
  FileMetadata metadata_;
  int descriptor_ = -1;
  std::vector<FileTensor> tensors_;
  void* mapping_ = nullptr;
  std::size_t bytes_ = 0;
};

// Fills a file, and reads it back: whoever writes over one gives another name and renames. The largest elements come
// first and the data begins at a multiple of 8 bytes, so that every tensor is aligned. Throws SafetensorsError with the
// file's name; for a name that occurs twice, and data whose size is not that of dtype and shape.
void write_safetensors(const std::filesystem::path& path, std::span<const FileTensor> tensors,
                       const FileMetadata& metadata = {});

}  // namespace noisefloor
