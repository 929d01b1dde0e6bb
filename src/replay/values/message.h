// What processes of a run tell one another: numbers and texts, one after the other. A number is 8
// bytes, little-endian, a text its length and its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace epweave::replay {

class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  Writer& number(std::uint64_t number);
  Writer& real(double number);
  Writer& text(std::string_view text);
  Writer& numbers(std::span<const std::int64_t> numbers);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what a Writer wrote. Throws WireError at the end of the text.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t number();
  double real();
  std::string text();
  std::vector<std::int64_t> numbers();

 private:
  std::string_view bytes_;
};

}  // namespace epweave::replay
