// Elementary functions and products over runs of elements: the portable math of portable_math.h compiled for
// several instruction sets, chosen when the program starts. The bits are the same on all of them.
#pragma once

#include <cstdint>

namespace epweave::replay::cpu {

// out[i] = f(in[i]); out may be in.
void exp_run(std::int64_t n, float* out, const float* in);
void sigmoid_run(std::int64_t n, float* out, const float* in);
void silu_run(std::int64_t n, float* out, const float* in);
void silu_backward_run(std::int64_t n, float* out, const float* grad, const float* in);
// out[i] = exp(in[i] - shift)
void exp_shifted_run(std::int64_t n, float* out, const float* in, float shift);

// Conversions of 16-bit floats: exact, and rounded to the nearest (ties to even).
void float_from_bf16_run(std::int64_t n, float* out, const std::uint16_t* in);
void bf16_from_float_run(std::int64_t n, std::uint16_t* out, const float* in);

// A matrix in memory, element (i, j) at data[i * row_stride + j * column_stride].
template <class C>
struct Matrix {
  const C* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 0;

  Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
  // Rows [first, first + count).
  Matrix row_block(std::int64_t first, std::int64_t count) const {
    return {data + first * row_stride, count, columns, row_stride, column_stride};
  }
  Matrix column_block(std::int64_t first, std::int64_t count) const {
    return {data + first * column_stride, rows, count, row_stride, column_stride};
  }
};

// c = start + a b, c row-major with `stride` elements from row to row. Every element is one chain of fused
// multiply-adds over k ascending; `kZero` starts it at +0, `kAccumulate` at what c holds.
enum class Start : std::uint8_t { kZero, kAccumulate };
void multiply(const Matrix<float>& a, const Matrix<float>& b, float* c, std::int64_t stride,
              Start start = Start::kZero);
void multiply(const Matrix<double>& a, const Matrix<double>& b, double* c, std::int64_t stride,
              Start start = Start::kZero);
void multiply(const Matrix<std::int64_t>& a, const Matrix<std::int64_t>& b, std::int64_t* c,
              std::int64_t stride, Start start = Start::kZero);

}  // namespace epweave::replay::cpu
