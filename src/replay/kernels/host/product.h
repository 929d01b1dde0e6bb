// Products of matrices. Every element is one chain of fused multiply-adds over k ascending, so that
// its bits depend neither on how the work is cut nor on the instruction set, which is chosen when
// the program starts.
#pragma once

#include <cstdint>
#include <variant>

namespace epweave::replay::cpu {

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

// bfloat16 as it is stored.
struct Bfloat16 {
  std::uint16_t bits;
};

// c = start + a b, c row-major with `stride` elements from row to row. `kZero` starts the chains at
// +0, `kAccumulate` at what c holds.
enum class Start : std::uint8_t { kZero, kAccumulate };
void multiply(const Matrix<float>& a, const Matrix<float>& b, float* c, std::int64_t stride,
              Start start = Start::kZero);
void multiply(const Matrix<double>& a, const Matrix<double>& b, double* c, std::int64_t stride,
              Start start = Start::kZero);
void multiply(const Matrix<std::int64_t>& a, const Matrix<std::int64_t>& b, std::int64_t* c,
              std::int64_t stride, Start start = Start::kZero);
// The chains in float32, of elements that are converted as they are read; a result in bfloat16 is
// rounded once, at the end.
void multiply(const Matrix<Bfloat16>& a, const Matrix<Bfloat16>& b, float* c, std::int64_t stride);
void multiply(const Matrix<Bfloat16>& a, const Matrix<Bfloat16>& b, Bfloat16* c, std::int64_t stride);
void multiply(const Matrix<float>& a, const Matrix<float>& b, Bfloat16* c, std::int64_t stride);

// The elements of either operand as they are stored, the chains in float32.
using FloatMatrix = std::variant<Matrix<float>, Matrix<Bfloat16>>;
inline FloatMatrix transposed(const FloatMatrix& m) {
  return std::visit([](const auto& matrix) { return FloatMatrix(matrix.transposed()); }, m);
}
inline Matrix<double> transposed(const Matrix<double>& m) {
  return m.transposed();
}
template <class C>
struct Sums {
  C* data;
  std::int64_t stride;
};
void multiply(const FloatMatrix& a, const FloatMatrix& b, const Sums<float>& c, Start start = Start::kZero);
inline void multiply(const Matrix<double>& a, const Matrix<double>& b, const Sums<double>& c,
                     Start start = Start::kZero) {
  multiply(a, b, c.data, c.stride, start);
}

}  // namespace epweave::replay::cpu
