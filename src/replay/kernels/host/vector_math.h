// Elementary functions over runs of elements: the portable math of portable_math.h compiled for
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
void exp_shifted_run(std::int64_t n, double* out, const double* in, double shift);

// The largest of `start` and the elements; NaN if one is.
float maximum_run(std::int64_t n, const float* in, float start);

// Conversions of 16-bit floats: exact, and rounded to the nearest (ties to even).
void float_from_bf16_run(std::int64_t n, float* out, const std::uint16_t* in);
void bf16_from_float_run(std::int64_t n, std::uint16_t* out, const float* in);

}  // namespace epweave::replay::cpu
