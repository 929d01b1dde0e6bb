// Spelling shared by the printer and the parser of the text form.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/arg.h"
#include "ir/expr.h"

namespace epweave::text {

inline constexpr std::string_view kMagic = "epweave text 1";

// What a field without a value is written as where it cannot be left out. The string "_" is quoted.
inline constexpr std::string_view kAbsent = "_";

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Values written `keyword(...)`: those that hold a name, and trees without brackets of their own.
struct ArgSpelling {
  ArgKind kind;
  std::string_view keyword;
};

inline constexpr ArgSpelling kNamedArgs[] = {
    {ArgKind::kDType, "dtype"}, {ArgKind::kLayout, "layout"},   {ArgKind::kMemoryFormat, "memory_format"},
    {ArgKind::kGraph, "graph"}, {ArgKind::kProcessGroup, "pg"}, {ArgKind::kOperator, "op"},
};
inline constexpr ArgSpelling kTreeArgs[] = {
    {ArgKind::kSlice, "slice"},   {ArgKind::kMesh, "mesh"},     {ArgKind::kComplex, "complex"},
    {ArgKind::kOpaque, "opaque"}, {ArgKind::kTensor, "tensor"}, {ArgKind::kNamedTuple, "namedtuple"},
    {ArgKind::kSet, "set"},
};
std::string_view keyword_of(std::span<const ArgSpelling> spellings, ArgKind kind);
std::optional<ArgKind> find_keyword(std::span<const ArgSpelling> spellings, std::string_view keyword);

// How PyTorch prints an operator overload, which exporters keep as an opaque value with every node.
// Written `overload(aten.mm.default)`.
inline constexpr std::string_view kOverloadClass = "OpOverload";
std::string overload_repr(std::string_view target);
std::optional<std::string> find_overload(std::string_view repr);  // the target, if it is such a text

// Layouts and memory formats that are written as they are: `torch.strided`.
std::optional<ArgKind> find_torch_constant(std::string_view name);

// Characters of names behind '%', of targets and of keys.
bool is_name_char(char c);
// Characters of values that need no quotes: also those of module patterns, devices and plain
// expressions.
bool is_word_char(char c);
// Whether a name or value can be written without quotes.
bool is_name(std::string_view text);
bool is_word(std::string_view text);
// A name that no number or punctuation begins like, so that it can open an argument.
bool is_key(std::string_view text);

// The C1 control character (U+0080 to U+009F) that the text begins with; 0: none. Terminals obey
// these as they obey escape sequences. Written `\u0085`.
unsigned c1_control(std::string_view text);

// How many bytes at the front of the text are UTF-8.
std::size_t count_valid_utf8(std::string_view text);

// Whether the bytes are protobuf fields, as a writer of a newer format leaves them.
bool is_wire_format(std::string_view bytes);
// How deep values may lie within one another, the outermost and the innermost included: hostile
// input must not exhaust the stack. In the binary form, too, so that each form reads what the other
// writes.
constexpr int kMaxValueDepth = 100;

// Strides of a contiguous tensor of these sizes: what sizes without strides stand for. None where
// they would be too large to write down.
std::optional<std::vector<ExprId>> contiguous_strides(ExprPool& exprs, std::span<const ExprId> sizes);

}  // namespace epweave::text
