// Asks the processor for memory that is read soon. Has no effect but on speed.
#pragma once

#include <cstddef>

namespace epweave {

// The first bytes of the object, at most two cache lines; it need not exist.
//
// A function that does nothing but this must always be inlined, and so must its callers that do
// nothing else: g++ 12 takes such a function for one without effects, and drops the calls.
template <class T>
[[gnu::always_inline]] inline void prefetch(const T* object) {
  constexpr std::size_t kLine = 64;
  const char* const bytes = reinterpret_cast<const char*>(object);
  __builtin_prefetch(bytes);
  if constexpr (sizeof(T) > kLine) __builtin_prefetch(bytes + kLine);
}

}  // namespace epweave
