// Numbers from a seed and a name: the same on every machine, and any of them can be made alone.
//
// Number i of the stream named `key` under `seed` is
//   splitmix64(hash(key) ^ splitmix64(seed) + (i + 1) * 0x9e3779b97f4a7c15)     hash: FNV-1a, 64 bits
// A uniform number in [-1, 1) is the upper 24 bits, read as k / 2^23 - 1: exact in float32.
#pragma once

#include <cstdint>
#include <string_view>

namespace epweave::replay {

class RandomNumbers {
 public:
  RandomNumbers(std::uint64_t seed, std::string_view key) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    start_ = hash ^ mix(seed);
  }
  std::uint64_t bits(std::uint64_t index) const { return mix(start_ + (index + 1) * 0x9e3779b97f4a7c15); }
  double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 40) * 0x1p-23 - 1; }
  double small_integer(std::uint64_t index) const {
    return static_cast<double>(bits(index) % 5) - 2;
  }  // -2 to 2

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  std::uint64_t start_;
};

}  // namespace epweave::replay
