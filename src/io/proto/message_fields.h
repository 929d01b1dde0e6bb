// Messages, taken apart and parsed.
#pragma once

#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "io/proto/wire_reader.h"
#include "ir/text/text_spelling.h"

namespace epweave {

// How deep messages of the tables may lie within one another: a value is two, a value of a keyword
// lies in two.
inline constexpr int kMaxMessageDepth = 2 * text::kMaxValueDepth + 3;

template <class Message>
bool parse_message(std::string_view bytes, Message& message) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kMaxMessageDepth);
  return message.ParseFromCodedStream(&input);
}

// Takes a message apart: take(tag, content) is asked for each length-delimited field whether it
// keeps the bytes; all other fields are returned, in their order. None if the bytes are no fields.
template <class Take>
std::optional<std::string> split_fields(std::string_view bytes, const Take& take) {
  WireReader in(bytes);
  std::string others;
  while (in.next())
    if (!in.is_bytes() || !take(in.tag(), in.content())) others += in.field();
  return in.is_broken() ? std::nullopt : std::optional(std::move(others));
}

// The fields of a newer format, as they are.
template <class Message>
std::string unknown_of(const Message& message) {
  const auto& fields = message.GetReflection()->GetUnknownFields(message);
  std::string bytes;
  if (!fields.empty()) fields.SerializeToString(&bytes);
  return bytes;
}

}  // namespace epweave
