// The header of a safetensors file, checked while it is read: nlohmann's SAX interface, because a tree of a hostile
// header would take many times its size.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/tensors/safetensors.h"

namespace noisefloor {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxRank = 16;
constexpr std::size_t kMaxNameBytes = 4096;
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
  for (const ElementType& type : kElementTypes)
    if (type.name == name) return &type;
  return nullptr;
}

// For messages: a name from the file may be long.
std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 80;
  return name.size() <= kMost ? std::string(name) : std::string(name.substr(0, kMost)) + "...";
}

// What the header's JSON says, entry by entry. nlohmann's parser keeps its own stack, so nesting costs nothing; it ends
// at the first value that the format has no place for.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(std::size_t header_bytes, std::span<const std::byte> data, std::string* layout)
      : data_(data), layout_(layout) {
    tensors_.reserve(header_bytes / kSmallestEntry + 1);
  }
  std::vector<FileTensor> take() { return std::move(tensors_); }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::outside:
        place_ = Place::header;
        return true;
      case Place::entry_value:
        place_ = Place::entry;
        tensors_.push_back({name_, {}, {}, {}});
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return true;
      case Place::metadata_value:
        place_ = Place::metadata;
        return true;
      default:
        unexpected("an object");
    }
  }

  bool key(std::string& text) override {
    switch (place_) {
      case Place::header:
        if (text.size() > kMaxNameBytes)
          refuse("a name of {} bytes ('{}'); at most {} are read", text.size(), shown(text), kMaxNameBytes);
        name_ = text;
        if (text == "__metadata__") {
          if (has_metadata_) refuse("'__metadata__' is given twice");
          has_metadata_ = true;
          place_ = Place::metadata_value;
        } else {
          place_ = Place::entry_value;
        }
        return true;
      case Place::metadata:
        place_ = Place::metadata_text;
        is_layout_ = text == kLayoutKey;
        return true;
      default:  // an entry: the parser gives no key elsewhere
        break;
    }
    if (text == "dtype" && !has_dtype_) {
      place_ = Place::dtype;
    } else if (text == "shape" && !has_shape_) {
      place_ = Place::shape_value;
    } else if (text == "data_offsets" && !has_offsets_) {
      place_ = Place::offsets_value;
    } else if (text == "dtype" || text == "shape" || text == "data_offsets") {
      refuse("tensor '{}': '{}' is given twice", shown(name_), text);
    } else {
      refuse("tensor '{}': unknown key '{}'; a tensor has dtype, shape and data_offsets", shown(name_), shown(text));
    }
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata_text) {
      place_ = Place::metadata;
      if (is_layout_ && layout_ != nullptr) *layout_ = shown(text);
      return true;
    }
    if (place_ != Place::dtype) unexpected("a string");
    type_ = find_type(text);
    if (type_ == nullptr) {
      std::vector<std::string> known;
      for (const ElementType& type : kElementTypes) known.emplace_back(type.name);
      refuse("tensor '{}': unknown dtype '{}'; known are {}", shown(name_), shown(text), fmt::join(known, ", "));
    }
    has_dtype_ = true;
    place_ = Place::entry;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::shape_value && place_ != Place::offsets_value) unexpected("an array");
    place_ = place_ == Place::shape_value ? Place::shape : Place::offsets;
    count_ = 0;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::offsets) {
      if (count_ == 2) refuse("tensor '{}': data_offsets has more than two numbers", shown(name_));
    } else if (place_ != Place::shape) {
      unexpected("a number");
    } else if (count_ == kMaxRank) {
      refuse("tensor '{}' has more than {} dimensions", shown(name_), kMaxRank);
    } else if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse("tensor '{}': an extent of {} is too large", shown(name_), value);
    }
    numbers_[count_++] = value;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::shape) {
      tensors_.back().shape.assign(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(count_));
      has_shape_ = true;
    } else {
      if (count_ != 2) refuse("tensor '{}': data_offsets has {} numbers, not 2", shown(name_), count_);
      begin_ = numbers_[0];
      end_ = numbers_[1];
      has_offsets_ = true;
    }
    place_ = Place::entry;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::entry) finish_entry();
    place_ = place_ == Place::header ? Place::outside : Place::header;
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a truth value"); }
  bool number_integer(std::int64_t value) override { unexpected(fmt::format("the negative number {}", value)); }
  bool number_float(double, const std::string& text) override {
    unexpected(fmt::format("'{}', which is not a whole number below 2^64", shown(text)));
  }
  bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse("the header is not JSON at its byte {}", position);
  }

 private:
  enum class Place {
    outside,
    header,
    entry_value,
    entry,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    metadata_value,
    metadata,
    metadata_text
  };

  template <class... Arguments>
  [[noreturn]] static void refuse(fmt::format_string<Arguments...> form, Arguments&&... arguments) {
    throw SafetensorsError(fmt::format(form, std::forward<Arguments>(arguments)...));
  }

  [[noreturn]] void unexpected(const std::string& what) const {
    switch (place_) {
      case Place::outside:
        refuse("the header is {}, not an object", what);
      case Place::entry_value:
        refuse("tensor '{}' is {}, not an object", shown(name_), what);
      case Place::dtype:
        refuse("tensor '{}': dtype is {}, not a string", shown(name_), what);
      case Place::shape_value:
      case Place::shape:
        refuse("tensor '{}': shape has {} where a whole number of an array belongs", shown(name_), what);
      case Place::offsets_value:
      case Place::offsets:
        refuse("tensor '{}': data_offsets has {} where a whole number of an array belongs", shown(name_), what);
      default:
        refuse("'__metadata__' has {} where a string belongs", what);
    }
  }

  void finish_entry() {
    FileTensor& tensor = tensors_.back();
    const char* missing = !has_dtype_ ? "dtype" : !has_shape_ ? "shape" : !has_offsets_ ? "data_offsets" : nullptr;
    if (missing != nullptr) refuse("tensor '{}' has no {}", shown(name_), missing);
    tensor.dtype = type_->name;
    if (begin_ > end_ || end_ > data_.size())
      refuse("tensor '{}': data_offsets [{}, {}] do not lie in the {} bytes behind the header", shown(name_), begin_,
             end_, data_.size());
    std::uint64_t bits = type_->bits;
    bool overflow = false, empty = false;
    for (const std::int64_t extent : tensor.shape) {
      empty = empty || extent == 0;
      overflow = overflow || __builtin_mul_overflow(bits, static_cast<std::uint64_t>(extent), &bits);
    }
    if (empty) bits = 0, overflow = false;
    if (overflow || bits % 8 != 0 || bits / 8 != end_ - begin_)
      refuse("tensor '{}' is {}, which takes {} bytes; data_offsets give it {}", shown(name_), tensor.text(),
             overflow ? "more than 2^61" : fmt::format("{}", static_cast<double>(bits) / 8), end_ - begin_);
    tensor.data = data_.subspan(begin_, end_ - begin_);
  }

  std::span<const std::byte> data_;
  std::string* layout_;  // null where it is not wanted
  bool is_layout_ = false;
  std::vector<FileTensor> tensors_;
  Place place_ = Place::outside;
  std::string name_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  const ElementType* type_ = nullptr;
  std::array<std::uint64_t, kMaxRank> numbers_{};
  std::size_t count_ = 0;
  std::uint64_t begin_ = 0, end_ = 0;
};

void require_distinct_names(const std::vector<FileTensor>& tensors) {
  std::vector<const FileTensor*> by_name(tensors.size());
  std::transform(tensors.begin(), tensors.end(), by_name.begin(), [](const FileTensor& tensor) { return &tensor; });
  const auto name_less = [](const FileTensor* a, const FileTensor* b) { return a->name < b->name; };
  std::sort(by_name.begin(), by_name.end(), name_less);
  const auto twice = std::adjacent_find(by_name.begin(), by_name.end(),
                                        [](const FileTensor* a, const FileTensor* b) { return a->name == b->name; });
  if (twice != by_name.end())
    throw SafetensorsError(fmt::format("tensor '{}' is in the header twice", shown((*twice)->name)));
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
      throw SafetensorsError(
          fmt::format("tensor '{}' overlaps the one before it at byte {} of the data", shown(tensor.name), at));
    if (tensor.data.data() > end)
      throw SafetensorsError(fmt::format("a gap of {} bytes before tensor '{}', which begins at byte {} of the data",
                                         tensor.data.data() - end, shown(tensor.name), at));
    end += tensor.data.size();
  }
  if (end != data.data() + data.size())
    throw SafetensorsError(fmt::format("{} bytes behind the last tensor", data.data() + data.size() - end));
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const ElementType& type : kElementTypes)
    if (type.dtype == dtype) return type.name;
  return "?";
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  const ElementType* type = find_type(name);
  return type == nullptr ? std::nullopt : type->dtype;
}

std::string FileTensor::text() const {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

std::vector<FileTensor> parse_safetensors(std::span<const std::byte> file, std::string* layout) {
  if (file.size() < kLengthBytes)
    throw SafetensorsError(
        fmt::format("truncated: {} bytes, less than the {} of the header's length", file.size(), kLengthBytes));
  std::uint64_t length = 0;  // little-endian in the file; the project is for x86-64
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    throw SafetensorsError(
        fmt::format("the header's length is {} bytes, more than the format's limit of {}: not a "
                    "safetensors file",
                    length, kMaxHeaderBytes));
  if (length > file.size() - kLengthBytes)
    throw SafetensorsError(fmt::format("truncated: the header's length is {} bytes, but only {} follow", length,
                                       file.size() - kLengthBytes));
  const auto* header = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  if (length == 0 || *header != '{') throw SafetensorsError("the header does not begin with '{'");
  const auto data = file.subspan(kLengthBytes + length);
  HeaderHandler handler(length, data, layout);
  nlohmann::json::sax_parse(header, header + length, &handler);  // failures throw
  std::vector<FileTensor> tensors = handler.take();
  require_distinct_names(tensors);
  require_tiling(tensors, data);
  return tensors;
}

}  // namespace noisefloor
