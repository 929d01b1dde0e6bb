// Reads protobuf's wire format where it lies: no message is built first.
//
//   WireReader in(message);
//   while (in.next()) {
//     if (in.tag() == number_tag(1)) name = in.ref();
//     else if (in.tag() == bytes_tag(4)) add(in.content());
//     else unknown += in.field();
//   }
//   if (in.is_broken()) ...                 // the bytes are no fields
//
// As in protobuf's own reader, a known field with another wire type is an unknown one, and so are
// groups, which proto3 has no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace epweave {

enum class WireType : std::uint8_t {
  kNumber = 0,
  kFixed64 = 1,
  kBytes = 2,
  kBegin = 3,
  kEnd = 4,
  kFixed32 = 5
};

constexpr std::uint32_t wire_tag(int field, WireType type) {
  return static_cast<std::uint32_t>(field) << 3 | static_cast<std::uint32_t>(type);
}
// Numbers of 32 and 64 bits, booleans, enumerations.
constexpr std::uint32_t number_tag(int field) {
  return wire_tag(field, WireType::kNumber);
}
constexpr std::uint32_t fixed64_tag(int field) {
  return wire_tag(field, WireType::kFixed64);
}
// Messages, strings, packed numbers.
constexpr std::uint32_t bytes_tag(int field) {
  return wire_tag(field, WireType::kBytes);
}

class WireReader {
 public:
  explicit WireReader(std::string_view bytes)
      : begin_(bytes.data()), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  // Goes to the next field. False behind the last, and where the bytes are no fields. Inlined, as
  // read_number is, since reading a graph is mostly this.
  [[gnu::always_inline]] bool next() {
    if (at_ == end_) return false;
    begin_ = at_;
    if (read_tag() && (type() == WireType::kBegin ? skip_group() : read_value())) return true;
    is_broken_ = true;
    at_ = end_;
    return false;
  }
  bool is_broken() const { return is_broken_; }

  std::uint32_t tag() const { return tag_; }
  bool is_bytes() const { return type() == WireType::kBytes; }
  std::uint64_t number() const { return number_; }
  std::uint32_t ref() const { return static_cast<std::uint32_t>(number_); }  // to an entry of a table
  std::int64_t signed_number() const {                                       // sint64
    return static_cast<std::int64_t>(number_ >> 1) ^ -static_cast<std::int64_t>(number_ & 1);
  }
  std::string_view content() const { return content_; }
  // All of its bytes, the tag too.
  std::string_view field() const { return {begin_, static_cast<std::size_t>(at_ - begin_)}; }

  // The next number of packed ones. Nearly all have at most three digits, which are read without a
  // look at the end for each: a digit carries a bit that says that another follows.
  [[gnu::always_inline]] bool read_number(std::uint64_t& number) {
    constexpr std::uint64_t kFollowed = 0x80;
    if (left() < 3) return read_digits(number);
    const auto digit = [at = at_](int i) { return std::uint64_t{static_cast<std::uint8_t>(at[i])}; };
    if (digit(0) < kFollowed) {
      number = digit(0), at_ += 1;
    } else if (digit(1) < kFollowed) {
      number = digit(0) - kFollowed + (digit(1) << 7), at_ += 2;
    } else if (digit(2) < kFollowed) {
      number = digit(0) - kFollowed + ((digit(1) - kFollowed) << 7) + (digit(2) << 14), at_ += 3;
    } else {
      return read_digits(number);
    }
    return true;
  }
  bool is_at_end() const { return at_ == end_; }

 private:
  static constexpr std::size_t kMostGroups = 200;  // within one another

  WireType type() const { return static_cast<WireType>(tag_ & 7); }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  [[gnu::noinline]] bool read_digits(std::uint64_t& number) {
    number = 0;
    for (int shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(*at_++);
      number |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  [[gnu::always_inline]] bool read_tag() {
    std::uint64_t tag = 0;
    if (!read_number(tag) || tag > UINT32_MAX || tag >> 3 == 0) return false;
    tag_ = static_cast<std::uint32_t>(tag);
    return true;
  }
  // What stands behind a tag; not of a group.
  [[gnu::always_inline]] bool read_value() {
    if (type() == WireType::kNumber) return read_number(number_);
    if (type() == WireType::kBytes) {
      std::uint64_t length = 0;
      if (!read_number(length) || length > left()) return false;
      content_ = {at_, static_cast<std::size_t>(length)};
      at_ += length;
      return true;
    }
    if (type() == WireType::kFixed64) return read_fixed(8);
    return type() == WireType::kFixed32 && read_fixed(4);
  }
  bool read_fixed(std::size_t bytes) {
    if (left() < bytes) return false;
    number_ = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      number_ |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(*at_++)) << 8 * i;
    return true;
  }
  [[gnu::noinline]] bool skip_group() {
    const std::uint32_t outermost = tag_;
    std::vector<std::uint32_t> open{tag_ >> 3};  // fields whose groups have no end yet
    while (!open.empty()) {
      if (!read_tag()) return false;
      if (type() == WireType::kBegin) {
        open.push_back(tag_ >> 3);
        if (open.size() > kMostGroups) return false;
      } else if (type() == WireType::kEnd) {
        if (open.back() != tag_ >> 3) return false;
        open.pop_back();
      } else if (!read_value()) {
        return false;
      }
    }
    tag_ = outermost;
    return true;
  }

  const char *begin_, *at_, *end_;  // of the field, behind it, of all
  std::uint32_t tag_ = 0;
  bool is_broken_ = false;
  std::uint64_t number_ = 0;
  std::string_view content_;
};

// Calls take(number) for each of packed numbers. False where the bytes are no numbers.
template <class Take>
bool read_numbers(std::string_view packed, const Take& take) {
  WireReader in(packed);
  std::uint64_t number = 0;
  while (!in.is_at_end()) {
    if (!in.read_number(number)) return false;
    take(number);
  }
  return true;
}

}  // namespace epweave
