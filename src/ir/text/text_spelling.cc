#include "ir/text/text_spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace epweave::text {
namespace {

constexpr std::string_view kLayouts[] = {"torch.strided",    "torch.sparse_coo", "torch.sparse_csr",
                                         "torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc",
                                         "torch._mkldnn",    "torch.jagged"};
constexpr std::string_view kMemoryFormats[] = {"torch.contiguous_format", "torch.preserve_format",
                                               "torch.channels_last", "torch.channels_last_3d"};

// Strides with more terms than this are written out, never reconstructed: products of sums grow
// fast.
constexpr std::size_t kMaxStrideTerms = 16;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
// Takes a varint of the shortest form off the front.
std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return byte == 0 && shift > 0 ? std::nullopt : std::optional(value);
  }
  return std::nullopt;
}

bool take_bytes(std::string_view& bytes, std::uint64_t count) {
  if (bytes.size() < count) return false;
  bytes.remove_prefix(static_cast<std::size_t>(count));
  return true;
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

std::string overload_repr(std::string_view target) {
  const std::size_t dot = target.rfind('.');
  const std::string_view overload = dot == target.npos ? std::string_view() : target.substr(dot + 1);
  return fmt::format("<OpOverload(op='{}', overload='{}')>", target.substr(0, dot), overload);
}

std::optional<std::string> find_overload(std::string_view repr) {
  constexpr std::string_view kBegin = "<OpOverload(op='", kBetween = "', overload='", kEnd = "')>";
  const std::size_t between = repr.find(kBetween);
  if (!repr.starts_with(kBegin) || !repr.ends_with(kEnd) || between == repr.npos) return std::nullopt;
  std::string target(repr.substr(0, between).substr(kBegin.size()));
  target += '.';
  target += repr.substr(0, repr.size() - kEnd.size()).substr(between + kBetween.size());
  if (!is_name(target) || overload_repr(target) != repr) return std::nullopt;
  return target;
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

unsigned c1_control(std::string_view text) {
  if (text.size() < 2 || text[0] != '\xc2') return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  return second >= 0x80 && second < 0xa0 ? second : 0;
}

std::size_t count_valid_utf8(std::string_view text) {
  constexpr std::size_t kAtOnce = sizeof(std::uint64_t);
  constexpr std::uint64_t kLeads = 0x8080808080808080;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t block = kLeads;
    if (at + kAtOnce <= text.size()) std::memcpy(&block, text.data() + at, kAtOnce);
    if ((block & kLeads) == 0) {  // ASCII, as nearly all text is
      at += kAtOnce;
      continue;
    }
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xc2 ? 0
                               : lead < 0xe0 ? 2
                               : lead < 0xf0 ? 3
                               : lead < 0xf5 ? 4
                                             : 0;
    if (length == 0 || at + length > text.size()) return at;
    std::uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(text[at + i]);
      if ((byte & 0xc0) != 0x80) return at;
      code = code << 6 | (byte & 0x3fu);
    }
    // Longer than needed, a surrogate, or beyond Unicode.
    if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) || code > 0x10ffff) return at;
    if (code >= 0xd800 && code < 0xe000) return at;
    at += length;
  }
  return at;
}

bool is_wire_format(std::string_view bytes) {
  constexpr std::uint64_t kMaxField = (1u << 29) - 1;
  constexpr std::size_t kMaxDepth = 200;  // about what the binary reader accepts
  std::vector<std::uint64_t> groups;      // the fields of those that are open
  while (!bytes.empty()) {
    const auto tag = take_varint(bytes);
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > kMaxField) return false;
    bool is_whole = false;
    switch (*tag & 7) {
      case 0:
        is_whole = take_varint(bytes).has_value();
        break;
      case 1:
        is_whole = take_bytes(bytes, 8);
        break;
      case 2:
        if (const auto length = take_varint(bytes)) is_whole = take_bytes(bytes, *length);
        break;
      case 3:
        groups.push_back(*tag >> 3);
        is_whole = groups.size() <= kMaxDepth;
        break;
      case 4:
        is_whole = !groups.empty() && groups.back() == *tag >> 3;
        if (is_whole) groups.pop_back();
        break;
      case 5:
        is_whole = take_bytes(bytes, 4);
        break;
      default:
        break;
    }
    if (!is_whole) return false;
  }
  return groups.empty();
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
