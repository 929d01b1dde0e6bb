#include "replay/values/message.h"

#include <bit>

namespace epweave::replay {

Writer& Writer::number(std::uint64_t number) {
  for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  return *this;
}

Writer& Writer::real(double real) {
  return number(std::bit_cast<std::uint64_t>(real));
}

Writer& Writer::text(std::string_view text) {
  number(text.size());
  bytes_ += text;
  return *this;
}

Writer& Writer::numbers(std::span<const std::int64_t> numbers) {
  number(numbers.size());
  for (std::int64_t one : numbers) number(static_cast<std::uint64_t>(one));
  return *this;
}

std::uint64_t Reader::number() {
  if (bytes_.size() < 8) throw WireError("a message is too short");
  std::uint64_t number = 0;
  for (std::size_t i = 8; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes_[i]);
  bytes_.remove_prefix(8);
  return number;
}

double Reader::real() {
  return std::bit_cast<double>(number());
}

std::string Reader::text() {
  const std::uint64_t size = number();
  if (bytes_.size() < size) throw WireError("a message is too short");
  std::string text(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
  return text;
}

std::vector<std::int64_t> Reader::numbers() {
  const std::uint64_t count = number();
  if (bytes_.size() / 8 < count) throw WireError("a message is too short");
  std::vector<std::int64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(static_cast<std::int64_t>(number()));
  return numbers;
}

}  // namespace epweave::replay
