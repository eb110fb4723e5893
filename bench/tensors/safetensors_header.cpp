// The header of a safetensors file, checked while it is read.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>

#include "bench/tensors/safetensors.h"

namespace noisefloor {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxRank = 16;
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::size_t kMostMetadata = 100;  // entries that are kept, and the layout
// No entry of a header is shorter than this one, so a header of n bytes has at most n / kSmallestEntry tensors.
constexpr std::size_t kSmallestEntry = std::string_view(R"("":{"dtype":"U8","shape":[],"data_offsets":[0,0]},)").size();

struct ElementType {
  std::string_view name;
  unsigned bits;
  std::optional<DType> dtype;
};
constexpr std::array kElementTypes = {
    ElementType{"BF16", 16, DType::bf16},    ElementType{"F16", 16, DType::fp16},
    ElementType{"F32", 32, DType::fp32},     ElementType{"F64", 64, DType::fp64},
    ElementType{"I32", 32, DType::int32},    ElementType{"I64", 64, DType::int64},
    ElementType{"U8", 8, DType::uint8},      ElementType{"BOOL", 8, std::nullopt},
    ElementType{"I8", 8, std::nullopt},      ElementType{"I16", 16, std::nullopt},
    ElementType{"U16", 16, std::nullopt},    ElementType{"U32", 32, std::nullopt},
    ElementType{"U64", 64, std::nullopt},    ElementType{"C64", 64, std::nullopt},
    ElementType{"F8_E4M3", 8, std::nullopt}, ElementType{"F8_E5M2", 8, std::nullopt},
    ElementType{"F8_E8M0", 8, std::nullopt}, ElementType{"F6_E2M3", 6, std::nullopt},
    ElementType{"F6_E3M2", 6, std::nullopt}, ElementType{"F4", 4, std::nullopt},
};

const ElementType* find_type(std::string_view name) {
  const auto found = std::ranges::find(kElementTypes, name, &ElementType::name);
  return found == kElementTypes.end() ? nullptr : &*found;
}

// For messages: a name from the file may be long.
std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 80;
  return name.size() <= kMost ? std::string(name) : std::string(name.substr(0, kMost)) + "...";
}

using Json = nlohmann::json;

template <class... Arguments>
[[noreturn]] void refuse_header(fmt::format_string<Arguments...> form, Arguments&&... arguments) {
  throw SafetensorsError(fmt::format(form, std::forward<Arguments>(arguments)...));
}

// The header's JSON, as nlohmann's parser comes to it: it keeps one entry at a time, and ends at the first value that
// the format has no place for, so that a hostile header costs no more memory than another one.
class HeaderReader {
 public:
  using Event = Json::parse_event_t;

  HeaderReader(std::size_t header_bytes, std::span<const std::byte> data, FileMetadata* metadata)
      : data_(data), metadata_(metadata) {
    tensors_.reserve(header_bytes / kSmallestEntry + 1);
  }
  std::vector<FileTensor> take() { return std::move(tensors_); }

  // Whether the parser keeps it. In the header depth is 1, in an entry or the metadata 2, in an entry's array 3.
  bool operator()(int depth, Event event, const Json& parsed) {
    if (event == Event::key) return depth == 1 ? begin_entry(parsed) : begin_value(parsed);
    if (event == Event::object_end && depth == 1) {
      if (!in_metadata_) finish_entry(parsed);
      return false;
    }
    if (depth == 0 || event == Event::object_end || event == Event::array_end) return true;
    if (depth == 1 && event != Event::object_start)
      refuse_header("tensor '{}' is {}, not an object", shown(name_), what(event, parsed));
    if (depth == 1) return true;
    if (in_metadata_) {
      if (!is_text(event, parsed)) refuse_header("'__metadata__' has {} where a string belongs", what(event, parsed));
      if (metadata_ != nullptr && (metadata_->size() < kMostMetadata || key_ == kLayoutKey))
        (*metadata_)[key_] = parsed.get<std::string>();
    } else if (depth == 2 && key_ == "dtype" ? !is_text(event, parsed) : depth == 2 && event != Event::array_start) {
      refuse_header("tensor '{}': {} is {}, not {}", shown(name_), key_, what(event, parsed),
                    key_ == "dtype" ? "a string" : "an array");
    } else if (depth > 2) {
      if (event != Event::value || !parsed.is_number_unsigned())
        refuse_header("tensor '{}': {} has {} where a whole number below 2^64 belongs", shown(name_), key_,
                      what(event, parsed));
      if (++count_ > kMaxRank) refuse_header("tensor '{}': {} has more than {} numbers", shown(name_), key_, kMaxRank);
    }
    return true;
  }

 private:
  static bool is_text(Event event, const Json& parsed) { return event == Event::value && parsed.is_string(); }
  static std::string what(Event event, const Json& parsed) {
    if (event == Event::array_start) return "an array";
    if (event == Event::object_start) return "an object";
    return parsed.is_number() ? "the number " + parsed.dump()
           : parsed.is_null() ? "null"
                              : fmt::format("a {}", parsed.type_name());
  }

  bool begin_entry(const Json& key) {
    name_ = key.get_ref<const std::string&>();
    if (name_.size() > kMaxNameBytes)
      refuse_header("a name of {} bytes ('{}'); at most {} are read", name_.size(), shown(name_), kMaxNameBytes);
    in_metadata_ = name_ == "__metadata__";
    if (in_metadata_ && std::exchange(has_metadata_, true)) refuse_header("'__metadata__' is given twice");
    seen_.clear();
    return true;
  }

  // Of the metadata the parser keeps nothing.
  bool begin_value(const Json& key) {
    key_ = key.get_ref<const std::string&>();
    count_ = 0;
    if (in_metadata_) return false;
    if (std::ranges::count(kKeys, key_) == 0)
      refuse_header("tensor '{}': unknown key '{}'; a tensor has {}", shown(name_), shown(key_),
                    fmt::join(kKeys, ", "));
    if (!seen_.insert(key_).second) refuse_header("tensor '{}': '{}' is given twice", shown(name_), key_);
    return true;
  }

  void finish_entry(const Json& entry) {
    for (const std::string_view key : kKeys)
      if (!seen_.contains(key)) refuse_header("tensor '{}' has no {}", shown(name_), key);
    const std::string& dtype = entry["dtype"].get_ref<const std::string&>();
    const ElementType* const type = find_type(dtype);
    if (type == nullptr)
      refuse_header("tensor '{}': unknown dtype '{}'; known are {}", shown(name_), shown(dtype),
                    fmt::join(kElementTypes | std::views::transform(&ElementType::name), ", "));
    if (entry["data_offsets"].size() != 2)
      refuse_header("tensor '{}': data_offsets has {} numbers, not 2", shown(name_), entry["data_offsets"].size());
    const std::uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    if (begin > end || end > data_.size())
      refuse_header("tensor '{}': data_offsets [{}, {}] do not lie in the {} bytes behind the header", shown(name_),
                    begin, end, data_.size());
    FileTensor& tensor = tensors_.emplace_back(FileTensor{name_, type->name, {}, data_.subspan(begin, end - begin)});
    std::uint64_t bits = type->bits;
    bool overflow = false, empty = false;
    for (const std::uint64_t extent : entry["shape"]) {
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        refuse_header("tensor '{}': an extent of {} is too large", shown(name_), extent);
      tensor.shape.push_back(static_cast<std::int64_t>(extent));
      empty = empty || extent == 0;
      overflow = overflow || __builtin_mul_overflow(bits, extent, &bits);
    }
    if (empty) bits = 0, overflow = false;
    if (overflow || bits % 8 != 0 || bits / 8 != end - begin)
      refuse_header("tensor '{}' is {}, which takes {} bytes; data_offsets give it {}", shown(name_), tensor.text(),
                    overflow ? "more than 2^61" : fmt::format("{}", static_cast<double>(bits) / 8), end - begin);
  }

  static constexpr std::array<std::string_view, 3> kKeys = {"dtype", "shape", "data_offsets"};
  std::span<const std::byte> data_;
  FileMetadata* metadata_;  // null where it is not wanted
  std::vector<FileTensor> tensors_;
  std::string name_, key_;
  bool in_metadata_ = false, has_metadata_ = false;
  std::set<std::string, std::less<>> seen_;  // keys of an entry
  std::size_t count_ = 0;                    // numbers of an array
};

void require_distinct_names(const std::vector<FileTensor>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const FileTensor& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) refuse_header("tensor '{}' is in the header twice", shown(*twice));
}

// In place and in the order of their bytes, which must tile the data.
void require_tiling(std::vector<FileTensor>& tensors, std::span<const std::byte> data) {
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  const std::byte* end = data.data();
  for (const FileTensor& tensor : tensors) {
    const auto at = tensor.data.data() - data.data();
    if (tensor.data.data() < end)
      refuse_header("tensor '{}' overlaps the one before it at byte {} of the data", shown(tensor.name), at);
    if (tensor.data.data() > end)
      refuse_header("a gap of {} bytes before tensor '{}', which begins at byte {} of the data",
                    tensor.data.data() - end, shown(tensor.name), at);
    end += tensor.data.size();
  }
  if (end != data.data() + data.size())
    refuse_header("{} bytes behind the last tensor", data.data() + data.size() - end);
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  return std::ranges::find(kElementTypes, std::optional(dtype), &ElementType::dtype)->name;
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  const ElementType* type = find_type(name);
  return type == nullptr ? std::nullopt : type->dtype;
}

std::string FileTensor::text() const {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

std::vector<FileTensor> parse_safetensors(std::span<const std::byte> file, FileMetadata* metadata) {
  if (file.size() < kLengthBytes)
    refuse_header("truncated: {} bytes, less than the {} of the header's length", file.size(), kLengthBytes);
  std::uint64_t length = 0;  // little-endian in the file; the project is for x86-64
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    refuse_header("the header's length is {} bytes, more than the format's limit of {}: not a safetensors file", length,
                  kMaxHeaderBytes);
  if (length > file.size() - kLengthBytes)
    refuse_header("truncated: the header's length is {} bytes, but only {} follow", length, file.size() - kLengthBytes);
  const auto* header = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  if (length == 0 || *header != '{') refuse_header("the header does not begin with '{{'");
  const auto data = file.subspan(kLengthBytes + length);
  HeaderReader reader(length, data, metadata);
  try {
    [[maybe_unused]] const Json rest = Json::parse(header, header + length, std::ref(reader));
  } catch (const Json::parse_error& error) {
    refuse_header("the header is not JSON at its byte {}", error.byte);
  } catch (const Json::out_of_range&) {
    refuse_header("the header has a number that is too large");
  }
  std::vector<FileTensor> tensors = reader.take();
  require_distinct_names(tensors);
  require_tiling(tensors, data);
  return tensors;
}

}  // namespace noisefloor
