#include "ir/text_spelling.h"

#include <algorithm>

#include "base/error.h"

namespace epweave::text {
namespace {

constexpr std::string_view kLayouts[] = {"torch.strided",    "torch.sparse_coo", "torch.sparse_csr",
                                         "torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc",
                                         "torch._mkldnn",    "torch.jagged"};
constexpr std::string_view kMemoryFormats[] = {"torch.contiguous_format", "torch.preserve_format",
                                               "torch.channels_last", "torch.channels_last_3d"};

// Strides with more terms than this are written out, never reconstructed: products of sums grow fast.
constexpr std::size_t kMaxStrideTerms = 16;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

std::string_view keyword_of(std::span<const ArgSpelling> spellings, ArgKind kind) {
  for (const ArgSpelling& s : spellings)
    if (s.kind == kind) return s.keyword;
  return {};
}

std::optional<ArgKind> find_keyword(std::span<const ArgSpelling> spellings, std::string_view keyword) {
  for (const ArgSpelling& s : spellings)
    if (s.keyword == keyword) return s.kind;
  return std::nullopt;
}

std::optional<ArgKind> find_torch_constant(std::string_view name) {
  if (std::ranges::find(kLayouts, name) != std::end(kLayouts)) return ArgKind::kLayout;
  if (std::ranges::find(kMemoryFormats, name) != std::end(kMemoryFormats)) return ArgKind::kMemoryFormat;
  return std::nullopt;
}

bool is_name_char(char c) {
  return is_letter(c) || is_digit(c) || c == '.';
}

bool is_word_char(char c) {
  return is_name_char(c) || c == ':' || c == '*' || c == '/' || c == '+' || c == '-' || c == '$';
}

bool is_name(std::string_view text) {
  return !text.empty() && text != kAbsent && std::ranges::all_of(text, is_name_char);
}

bool is_word(std::string_view text) {
  return !text.empty() && text != kAbsent && std::ranges::all_of(text, is_word_char);
}

bool is_key(std::string_view text) {
  return is_name(text) && is_letter(text.front());
}

std::optional<std::vector<ExprId>> contiguous_strides(ExprPool& exprs, std::span<const ExprId> sizes) {
  std::vector<ExprId> strides(sizes.size());
  PolyId stride = exprs.poly_number(1);
  try {
    for (std::size_t i = sizes.size(); i-- > 0;) {
      strides[i] = exprs.from_poly(stride);
      const PolyId size = exprs.poly(sizes[i]);
      // As PyTorch has it: an extent of 0 counts as 1.
      if (exprs.is_constant(size, 0)) continue;
      if (exprs[stride].terms.size() * exprs[size].terms.size() > kMaxStrideTerms) return std::nullopt;
      // The product of all sizes is no stride.
      if (i > 0) stride = exprs.mul(stride, size);
    }
  } catch (const InputError&) {  // beyond 64 bits
    return std::nullopt;
  }
  return strides;
}

}  // namespace epweave::text
