// The order that rows of a part are in (verify_frames.h).
#pragma once

#include <cstdint>

#include "analysis/frame_terms.h"

namespace epweave {

struct FrameOrder {
  // kCounted: of 0, 1, .., which are in whatever order the rows are that they pick
  enum class Kind : std::uint8_t { kNoRows, kAny, kCounted, kKnown };
  Kind kind = Kind::kNoRows;  // also of what numbers no rows
  FrameId frame;              // of kKnown
  static FrameOrder known(FrameId frame) { return {Kind::kKnown, frame}; }
  bool is_known() const { return kind == Kind::kKnown; }
  bool is_counted() const { return kind == Kind::kCounted; }
  friend bool operator==(const FrameOrder&, const FrameOrder&) = default;
};

// Of a value: the order that its rows are in, and of numbers that of the rows which they number.
struct FrameOrders {
  FrameOrder rows, numbered;
};

}  // namespace epweave
