// Protobuf's wire format, written straight into the bytes of the file: no message is built first.
//
//   WireWriter out;
//   out.put(1, name);                       // a field without presence: 0 is not written
//   const auto args = out.open(4);          // a message, or packed numbers
//   out.set(3, integer);                    // a field of a oneof, or an optional one: 0 is written
//   out.close(args);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace epweave {

class WireWriter {
 public:
  explicit WireWriter(std::size_t expected_bytes = 0) { bytes_.reserve(expected_bytes); }

  // Numbers of 32 and 64 bits, booleans, enumerations.
  void set(int field, std::uint64_t value) { tag(field, kVarint), varint(value); }
  void put(int field, std::uint64_t value) {
    if (value != 0) set(field, value);
  }
  // sint64
  void set_signed(int field, std::int64_t value) { set(field, zigzag(value)); }
  void put_signed(int field, std::int64_t value) { put(field, zigzag(value)); }
  // fixed64, and double by its bits
  void set_fixed64(int field, std::uint64_t value) {
    tag(field, kFixed64);
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift & 0xff);
  }
  void set_text(int field, std::string_view text) {
    tag(field, kLengthDelimited), varint(text.size());
    bytes_ += text;
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
    tag(field, kLengthDelimited);
    bytes_ += '\0';
    return {bytes_.size()};
  }
  void close(Open open) {
    const std::size_t length = bytes_.size() - open.begin;
    if (length < 0x80) {
      bytes_[open.begin - 1] = static_cast<char>(length);
      return;
    }
    char digits[10];
    const std::size_t count = varint_digits(length, digits);
    bytes_[open.begin - 1] = digits[0];
    bytes_.insert(open.begin, digits + 1, count - 1);
  }
  void add(std::uint64_t value) { varint(value); }
  void add_signed(std::int64_t value) { varint(zigzag(value)); }

  void append(std::string_view fields) { bytes_ += fields; }
  std::size_t size() const { return bytes_.size(); }
  std::string take() { return std::move(bytes_); }

 private:
  static constexpr unsigned kVarint = 0, kFixed64 = 1, kLengthDelimited = 2;

  static std::uint64_t zigzag(std::int64_t value) {
    return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  }
  static std::size_t varint_digits(std::uint64_t value, char (&digits)[10]) {
    std::size_t count = 0;
    for (; value >= 0x80; value >>= 7) digits[count++] = static_cast<char>(value | 0x80);
    digits[count++] = static_cast<char>(value);
    return count;
  }
  void tag(int field, unsigned type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    if (value < 0x80) {
      bytes_ += static_cast<char>(value);
      return;
    }
    char digits[10];
    bytes_.append(digits, varint_digits(value, digits));
  }

  std::string bytes_;
};

}  // namespace epweave
