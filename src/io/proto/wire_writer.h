// Protobuf's wire format, written straight into the bytes of the file: no message is built first.
//
//   WireWriter out;
//   out.put(1, name);                       // a field without presence: 0 is not written
//   const auto args = out.open(4);          // a message, or packed numbers
//   out.set(3, integer);                    // a field of a oneof, or an optional one: 0 is written
//   out.close(args);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace epweave {

class WireWriter {
 public:
  explicit WireWriter(std::size_t expected_bytes = 0) { bytes_.reserve(expected_bytes); }

  // Numbers of 32 and 64 bits, booleans, enumerations.
  void set(int field, std::uint64_t value) {
    char* at = room(2 * kMostDigits);
    at = write_varint(write_tag(at, field, kVarint), value);
    end_at(at);
  }
  void put(int field, std::uint64_t value) {
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
    std::size_t begin;
  };
  Open open(int field) {
    end_at(write_tag(room(kMostDigits + 1), field, kLengthDelimited) + 1);
    return {end_};
  }
  void close(Open open) {
    const std::size_t length = end_ - open.begin;
    if (length < 0x80) {
      bytes_[open.begin - 1] = static_cast<char>(length);
      return;
    }
    char digits[kMostDigits];
    const auto more = static_cast<std::size_t>(write_varint(digits, length) - digits) - 1;
    room(more);
    char* const begin = bytes_.data() + open.begin;
    std::memmove(begin + more, begin, length);
    std::memcpy(begin - 1, digits, more + 1);
    end_ += more;
  }
  void add(std::uint64_t value) { end_at(write_varint(room(kMostDigits), value)); }
  void add_signed(std::int64_t value) { add(zigzag(value)); }

  void append(std::string_view fields) {
    end_at(std::copy(fields.begin(), fields.end(), room(fields.size())));
  }
  std::size_t size() const { return end_; }
  std::string take() {
    bytes_.resize(std::exchange(end_, 0));
    return std::exchange(bytes_, {});
  }

 private:
  static constexpr unsigned kVarint = 0, kFixed64 = 1, kLengthDelimited = 2;
  static constexpr std::size_t kMostDigits = 10;  // of a number of 64 bits

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

  std::string bytes_;    // longer than what is written
  std::size_t end_ = 0;  // of what is written
};

}  // namespace epweave
