// Whether a function pointer of ours is called as the library's own header declares the function.
// C++17.
#pragma once

#include <cstddef>
#include <type_traits>

namespace epweave::replay::abi {

// A function of ours and one of a library's are called alike: as many arguments, each of the same
// size and kind. Pointers and enumerations have other names there; identifiers are passed by value
// in both.
template <class Ours, class Theirs>
struct IsAlike
    : std::integral_constant<bool, sizeof(Ours) == sizeof(Theirs) &&
                                       std::is_pointer<Ours>::value == std::is_pointer<Theirs>::value &&
                                       std::is_class<Ours>::value == std::is_class<Theirs>::value> {};
template <class Ours, class Theirs>
struct AreAlike : std::false_type {};
template <class R, class... A, class S, class... B>
struct AreAlike<R (*)(A...), S (*)(B...)> {
  template <bool is_same_count, class = void>
  struct All : std::false_type {};
  template <class Unused>
  struct All<true, Unused> : std::conjunction<IsAlike<R, S>, IsAlike<A, B>...> {};
  static constexpr bool value = All<sizeof...(A) == sizeof...(B)>::value;
};
}  // namespace epweave::replay::abi
