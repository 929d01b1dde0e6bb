// Instruction sets that loops are compiled for, the best of which is chosen when the program
// starts.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#define EPWEAVE_AVX2 __attribute__((target("avx2,fma")))
#define EPWEAVE_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")))
#endif
#define EPWEAVE_INLINE [[gnu::always_inline]] inline

namespace epweave::replay::cpu {

enum class Level { kBase, kAvx2, kAvx512 };

inline Level detect_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return Level::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Level::kAvx2;
#endif
  return Level::kBase;
}
inline Level level() {
  static const Level detected = detect_level();
  return detected;
}

}  // namespace epweave::replay::cpu
