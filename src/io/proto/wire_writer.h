// Protobuf's wire format, written straight into the bytes of the file: no message is built first.
//
//   WireWriter out;
//   out.put(1, name);                       // a field without presence: 0 is not written
//   const auto args = out.open(4);          // a message, or packed numbers
//   out.set(3, integer);                    // a field of a oneof, or an optional one: 0 is written
//   out.close(args);
//   out.cut_if_long();                      // between two fields
//
// The bytes of a large file lie in pieces: what passes have freed has room for these, and none for
// all in one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace epweave {

class WireWriter {
 public:
  // Numbers of 32 and 64 bits, booleans, enumerations. Inlined, so that the tag is a constant.
  [[gnu::always_inline]] void set(int field, std::uint64_t value) {
    char* at = room(2 * kMostDigits);
    if (field < 16 && value < 0x80) {  // nearly all: a byte each
      at[0] = static_cast<char>(field << 3 | static_cast<int>(kVarint));
      at[1] = static_cast<char>(value);
      end_ += 2;
      return;
    }
    at = write_varint(write_tag(at, field, kVarint), value);
    end_at(at);
  }
  [[gnu::always_inline]] void put(int field, std::uint64_t value) {
    if (value != 0) set(field, value);
  }
  // sint64
  void set_signed(int field, std::int64_t value) { set(field, zigzag(value)); }
  void put_signed(int field, std::int64_t value) { put(field, zigzag(value)); }
  // fixed64, and double by its bits
  void set_fixed64(int field, std::uint64_t value) {
    char* at = write_tag(room(2 * kMostDigits), field, kFixed64);
    for (int shift = 0; shift < 64; shift += 8) *at++ = static_cast<char>(value >> shift & 0xff);
    end_at(at);
  }
  void set_text(int field, std::string_view text) {
    char* at = write_tag(room(2 * kMostDigits + text.size()), field, kLengthDelimited);
    at = write_varint(at, text.size());
    end_at(std::copy(text.begin(), text.end(), at));
  }
  void put_text(int field, std::string_view text) {
    if (!text.empty()) set_text(field, text);
  }

  // Between open and close lie the fields of a message, or numbers by `add` and `add_signed`. The
  // length ahead of them is one byte until it is known to be more.
  struct Open {
    std::size_t piece, begin;
  };
  [[gnu::always_inline]] Open open(int field) {
    end_at(write_tag(room(kMostDigits + 1), field, kLengthDelimited) + 1);
    return {pieces_.size(), end_};
  }
  [[gnu::always_inline]] void close(Open open) {
    const std::size_t length = end_ - open.begin;
    if (open.piece < pieces_.size() || length >= 0x80) return close_long(open);
    bytes_[open.begin - 1] = static_cast<char>(length);
  }
  void add(std::uint64_t value) { end_at(write_varint(room(kMostDigits), value)); }
  void add_signed(std::int64_t value) { add(zigzag(value)); }

  void append(std::string_view fields) {
    end_at(std::copy(fields.begin(), fields.end(), room(fields.size())));
  }
  // Begins a new piece where the last one is long. Messages that are open go on in it.
  void cut_if_long() {
    if (end_ >= kPieceBytes) cut();
  }
  // What was written, which is in one piece.
  std::string take() {
    bytes_.resize(std::exchange(end_, 0));
    return std::exchange(bytes_, {});
  }
  std::vector<std::string> take_pieces() {
    cut();
    return std::exchange(pieces_, {});
  }

 private:
  static constexpr unsigned kVarint = 0, kFixed64 = 1, kLengthDelimited = 2;
  static constexpr std::size_t kMostDigits = 10;  // of a number of 64 bits
  static constexpr std::size_t kPieceBytes = 1 << 15;

  static std::uint64_t zigzag(std::int64_t value) {
    return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  }
  static char* write_varint(char* at, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at++ = static_cast<char>(value | 0x80);
    *at++ = static_cast<char>(value);
    return at;
  }
  static char* write_tag(char* at, int field, unsigned type) {
    return write_varint(at, static_cast<std::uint64_t>(field) << 3 | type);
  }

  void cut() {
    pieces_.emplace_back(bytes_.data(), end_);
    end_ = 0;
  }
  // Of a message whose length takes more than a byte.
  [[gnu::noinline]] void close_long(Open open) {
    if (open.piece < pieces_.size()) return close_cut(open);
    const std::size_t length = end_ - open.begin;
    char digits[kMostDigits];
    const auto more = static_cast<std::size_t>(write_varint(digits, length) - digits) - 1;
    room(more);
    char* const begin = bytes_.data() + open.begin;
    std::memmove(begin + more, begin, length);
    std::memcpy(begin - 1, digits, more + 1);
    end_ += more;
  }
  // Of a message that began in an earlier piece.
  void close_cut(Open open) {
    std::string& first = pieces_[open.piece];
    std::size_t length = first.size() - open.begin + end_;
    for (std::size_t i = open.piece + 1; i < pieces_.size(); ++i) length += pieces_[i].size();
    char digits[kMostDigits];
    const auto count = static_cast<std::size_t>(write_varint(digits, length) - digits);
    first.replace(open.begin - 1, 1, digits, count);
  }
  // Where the next `count` bytes go.
  char* room(std::size_t count) {
    if (bytes_.size() - end_ < count) grow(count);
    return bytes_.data() + end_;
  }
  void end_at(const char* at) { end_ = static_cast<std::size_t>(at - bytes_.data()); }
  // In steps that are small beside what is there: bytes that are not written take no memory.
  void grow(std::size_t count) {
    constexpr std::size_t kLeast = 64, kMost = 1 << 16;
    bytes_.resize(end_ + count + std::clamp(end_, kLeast, kMost));
  }

  std::vector<std::string> pieces_;  // those before the last
  std::string bytes_;                // of the last piece, longer than what is written
  std::size_t end_ = 0;              // of what is written
};

}  // namespace epweave
