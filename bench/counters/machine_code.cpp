#include "bench/counters/machine_code.h"

#include <elf.h>

#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "bench/platform/fingerprint.h"

namespace noisefloor {
namespace {

constexpr std::string_view kText = ".text.", kConstants = ".nv.constant", kGlobals = ".nv.global";
constexpr unsigned char kEntry = 0x10;  // STO_CUDA_ENTRY in a symbol's st_other: a kernel, and no function of one

// A file's bytes; what lies outside of them throws.
class Elf {
 public:
  explicit Elf(std::span<const std::byte> bytes) : bytes_(bytes), header_(at<Elf64_Ehdr>(0)) {
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_ident[EI_CLASS] != ELFCLASS64)
      throw std::runtime_error("machine code: not an ELF file of 64 bits");
    for (std::size_t i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(at<Elf64_Shdr>(header_.e_shoff + i * header_.e_shentsize));
    if (header_.e_shstrndx >= sections_.size()) throw std::runtime_error("machine code: no names of sections");
  }
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  std::span<const std::byte> bytes_of(const Elf64_Shdr& section) const {
    return section.sh_type == SHT_NOBITS ? std::span<const std::byte>() : range(section.sh_offset, section.sh_size);
  }
  std::string_view name_of(const Elf64_Shdr& section) const {
    return text(sections_[header_.e_shstrndx], section.sh_name);
  }
  std::string_view text(const Elf64_Shdr& table, std::size_t offset) const {
    const auto bytes = bytes_of(table);
    if (offset >= bytes.size()) throw std::runtime_error("machine code: a name outside of its table");
    const char* const begin = reinterpret_cast<const char*>(bytes.data()) + offset;
    return {begin, strnlen(begin, bytes.size() - offset)};
  }
  template <class Struct>
  Struct at(std::size_t offset) const {
    Struct value;
    std::memcpy(&value, range(offset, sizeof value).data(), sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> range(std::size_t offset, std::size_t bytes) const {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset)
      throw std::runtime_error("machine code: it is cut off");
    return bytes_.subspan(offset, bytes);
  }

  std::span<const std::byte> bytes_;
  Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

// Names of the kernels; other functions may be called by any of them.
std::map<std::string, Fingerprint, std::less<>> kernels_of(const Elf& elf) {
  std::map<std::string, Fingerprint, std::less<>> kernels;
  for (const Elf64_Shdr& section : elf.sections()) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= elf.sections().size()) continue;
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = elf.at<Elf64_Sym>(section.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && (symbol.st_other & kEntry) != 0)
        kernels.emplace(elf.text(elf.sections()[section.sh_link], symbol.st_name), Fingerprint());
    }
  }
  return kernels;
}

}  // namespace

std::map<std::string, std::uint64_t> machine_code_of(std::span<const std::byte> cubin) {
  const Elf elf(cubin);
  auto kernels = kernels_of(elf);
  Fingerprint shared;
  for (const Elf64_Shdr& section : elf.sections()) {
    const std::string_view name = elf.name_of(section);
    const bool text = name.starts_with(kText);
    if (!text && !name.starts_with(kConstants) && !name.starts_with(kGlobals)) continue;
    // ".text.NAME", ".nv.constant0.NAME"; what has no kernel's name is everybody's.
    const std::size_t dot = text ? kText.size() - 1 : name.find('.', kConstants.size());
    const auto kernel = dot == std::string_view::npos ? kernels.end() : kernels.find(name.substr(dot + 1));
    Fingerprint& code = kernel == kernels.end() ? shared : kernel->second;
    const auto bytes = elf.bytes_of(section);
    code.add(section.sh_size).add(bytes.data(), bytes.size());
  }
  std::map<std::string, std::uint64_t> codes;
  for (auto& [name, code] : kernels) codes.emplace(name, code.add(shared.value()).value());
  return codes;
}

}  // namespace noisefloor
