// Random numbers, each made of its index alone (shared/kernels_random.cc).
#pragma once

#include "replay/kernels/tasks/tasks.h"

namespace epweave::replay::tasks {

// Number `i` of those that `salt` tells apart: 64 bits, by splitmix64.
EPWEAVE_HD std::uint64_t random_bits(std::uint64_t i, std::uint64_t salt) {
  std::uint64_t bits = i * 0x9e3779b97f4a7c15 ^ salt;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

// Uniform in [0, 1), of `digits` binary digits, which `out` holds, 53 at most.
struct DrawTask {
  Shape shape;
  Strided out;
  std::uint64_t salt;
  unsigned digits;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::uint64_t bits = random_bits(static_cast<std::uint64_t>(i), salt) >> (64 - digits);
    const double unit = 1.0 / static_cast<double>(std::uint64_t{1} << digits);
    math::store_element(out.data, out.stored, offset_of(shape, out.strides, i),
                        static_cast<double>(bits) * unit);
  }
};

}  // namespace epweave::replay::tasks
