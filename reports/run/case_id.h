// What a measured thing is called, in every table, file, map, NVTX range and listener.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace noisefloor {

// A problem of an op in an element type. `problem` is the op's canonical text (Op::print), `dtype` as to_string gives
// it.
struct ProblemId {
  std::string op, problem, dtype;

  std::string name() const { return op + "/" + problem + "/" + dtype; }  // "gemm/m=64,n=64,k=64/bf16"
  auto operator<=>(const ProblemId&) const = default;
};

// That problem by one variant.
struct CaseId : ProblemId {
  std::string variant;

  // "gemm/m=64,n=64,k=64/bf16/tiled": also the benchmark's name and the argument of `run`.
  std::string name() const { return ProblemId::name() + "/" + variant; }
  const ProblemId& problem_id() const { return *this; }
  const CaseId& case_id() const { return *this; }
  auto operator<=>(const CaseId&) const = default;

  // Reads what name() prints; the parts are not looked up. Throws std::runtime_error naming the text and the form.
  static CaseId parse(std::string_view text);
};

// Its parts in the order of name().
inline constexpr std::pair<const char*, std::string CaseId::*> kCaseParts[] = {
    {"op", &CaseId::op}, {"problem", &CaseId::problem}, {"dtype", &CaseId::dtype}, {"variant", &CaseId::variant}};

// Which names an option lets through: those in which its regular expression is found. The grammar is ECMAScript's, in
// every command the same, without back-references, with at most 1000 characters and one look-ahead, so that it ends
// for every expression. An empty one lets all through. Throws std::runtime_error naming the option.
using NameFilter = std::function<bool(const std::string& name)>;
NameFilter name_filter(const std::string& option, const std::string& expression);

}  // namespace noisefloor

template <>
struct std::hash<noisefloor::ProblemId> {
  std::size_t operator()(const noisefloor::ProblemId& id) const { return std::hash<std::string>()(id.name()); }
};
template <>
struct std::hash<noisefloor::CaseId> {
  std::size_t operator()(const noisefloor::CaseId& id) const { return std::hash<std::string>()(id.name()); }
};
