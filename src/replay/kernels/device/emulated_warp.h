// The model of a warp (tasks/fused_attention_task.h): all 32 lanes, with the registers of each.
// What a lane holds of a matrix is what PTX says ("Matrix Fragments for mma.m16n8k16 with floating
// point type", "ldmatrix"), so that an index that is off shows in the results. Products are exact
// in float32. A GPU adds up the 16 of a step in an order and precision of its own; here one by one.
#pragma once

#include <array>
#include <cmath>
#include <cstring>

#include "replay/kernels/tasks/fused_attention_task.h"

namespace epweave::replay::device {

using math::Stored;

template <class R>
class EmulatedWarp {
 public:
  using Registers = R;
  static constexpr int kLanes = 32;

  // `lanes`: of the warp's threads.
  EmulatedWarp(R* lanes, int number) : lanes_(lanes), number_(number) {}
  int number() const { return number_; }
  template <class F>
  void each(F f) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane, lanes_[lane]);
  }

  // Lane l gives the address of row l % 8 of matrix l / 8, and gets of each matrix two elements.
  template <bool kTransposed, class From, class To>
  void load_matrices(From from, To to) {
    std::array<std::array<std::array<std::uint16_t, 8>, 8>, 4> matrices;
    for (int lane = 0; lane < kLanes; ++lane) {
      auto& row = matrices[static_cast<std::size_t>(lane) / 8][static_cast<std::size_t>(lane) % 8];
      std::memcpy(row.data(), from(lane), sizeof row);
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      for (std::size_t m = 0; m < 4; ++m) {
        const std::size_t row = lane / 4, column = lane % 4 * 2;
        const std::uint32_t low = kTransposed ? matrices[m][column][row] : matrices[m][row][column],
                            high = kTransposed ? matrices[m][column + 1][row] : matrices[m][row][column + 1];
        to(lanes_[lane])[m] = low | high << 16;
      }
  }

  template <Stored kStored, class C, class A, class B>
  void multiply(C of_c, A of_a, B of_b) {
    float a[16][16], b[16][8], c[16][8];
    const auto element = [](std::uint32_t pair, std::size_t which) {
      const auto bits = static_cast<std::uint16_t>(pair >> (16 * which));
      return kStored == Stored::kBfloat16 ? math::float_from_bf16(bits) : math::float_from_fp16(bits);
    };
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::size_t group = lane / 4, pair = lane % 4 * 2;
      R& r = lanes_[lane];
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t k = 0; k < 4; ++k)
          a[group + k % 2 * 8][pair + k / 2 * 8 + i] = element(of_a(r)[k], i);
        for (std::size_t k = 0; k < 2; ++k) b[pair + k * 8 + i][group] = element(of_b(r)[k], i);
        for (std::size_t k = 0; k < 2; ++k) c[group + k * 8][pair + i] = of_c(r)[2 * k + i];
      }
    }
    for (std::size_t row = 0; row < 16; ++row)
      for (std::size_t step = 0; step < 16; ++step)
        for (std::size_t column = 0; column < 8; ++column) c[row][column] += a[row][step] * b[step][column];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::size_t group = lane / 4, pair = lane % 4 * 2;
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t k = 0; k < 2; ++k) of_c(lanes_[lane])[2 * k + i] = c[group + k * 8][pair + i];
    }
  }

  template <class Of>
  void take_largest(Of of) {
    exchange(of, [](float x, float y) { return y > x ? y : x; });
  }
  template <class Of>
  void add_up(Of of) {
    exchange(of, [](float x, float y) { return x + y; });
  }

  static float exp2(float x) { return std::exp2(x); }
  template <Stored kStored>
  static std::uint32_t pack(float low, float high) {
    const auto bits = [](float x) -> std::uint32_t {
      return kStored == Stored::kBfloat16 ? math::bf16_from_float(x) : math::fp16_from_float(x);
    };
    return bits(low) | bits(high) << 16;
  }

 private:
  template <class Of, class F>
  void exchange(Of of, F f) {
    for (int apart = 1; apart <= 2; apart *= 2) {
      std::array<float, kLanes> before;
      for (int lane = 0; lane < kLanes; ++lane) before[static_cast<std::size_t>(lane)] = *of(lanes_[lane]);
      for (int lane = 0; lane < kLanes; ++lane)
        *of(lanes_[lane]) =
            f(before[static_cast<std::size_t>(lane)], before[static_cast<std::size_t>(lane ^ apart)]);
    }
  }

  R* lanes_;
  int number_;
};

}  // namespace epweave::replay::device
