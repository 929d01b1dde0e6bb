// A warp of a GPU, as tasks/fused_attention_task.h uses it: each thread does its own lane's part.
// `multiply` and `pack` are of sm_80 and later.
#pragma once

#include "replay/kernels/tasks/fused_attention_task.h"

namespace epweave::replay::device {

using math::Stored;

template <class R>
class Warp {
 public:
  using Registers = R;

  EPWEAVE_HD Warp(R& registers, int thread) : registers_(registers), thread_(thread) {}
  EPWEAVE_HD int number() const { return thread_ / 32; }
  template <class F>
  EPWEAVE_HD void each(F f) {
    f(thread_ % 32, registers_);
  }

  template <bool kTransposed, class From, class To>
  EPWEAVE_HD void load_matrices(From from, To to) {
#if defined(__CUDA_ARCH__)
    std::uint32_t* r = to(registers_);
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(from(thread_ % 32)));
    if constexpr (kTransposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address)
                   : "memory");
#endif
  }
  template <Stored kStored, class C, class A, class B>
  EPWEAVE_HD void multiply(C of_c, A of_a, B of_b) {
#if defined(__CUDA_ARCH__)
    float* c = of_c(registers_);
    const std::uint32_t *a = of_a(registers_), *b = of_b(registers_);
    if constexpr (kStored == Stored::kBfloat16)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
  }

  // Of the four lanes 4 n .. 4 n + 3, in each of them.
  template <class Of>
  EPWEAVE_HD void take_largest(Of of) {
#if defined(__CUDA_ARCH__)
    float& x = *of(registers_);
    for (int apart = 1; apart <= 2; apart *= 2) {
      const float y = __shfl_xor_sync(0xffffffffu, x, apart);
      x = y > x ? y : x;
    }
#endif
  }
  template <class Of>
  EPWEAVE_HD void add_up(Of of) {
#if defined(__CUDA_ARCH__)
    float& x = *of(registers_);
    for (int apart = 1; apart <= 2; apart *= 2) x = x + __shfl_xor_sync(0xffffffffu, x, apart);
#endif
  }

  EPWEAVE_HD static float exp2(float x) {
    float result = x;
#if defined(__CUDA_ARCH__)
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
#endif
    return result;
  }
  // Two elements, the first one in the lower half.
  template <Stored kStored>
  EPWEAVE_HD static std::uint32_t pack(float low, float high) {
    std::uint32_t result = 0;
#if defined(__CUDA_ARCH__)
    if constexpr (kStored == Stored::kBfloat16)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
#endif
    return result;
  }

 private:
  R& registers_;
  int thread_;
};

}  // namespace epweave::replay::device
