#include "io/crc32.h"

#include <zlib.h>

#include <cstddef>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace epweave {
namespace {

std::uint32_t crc32_by_zlib(std::string_view bytes, std::uint32_t before) {
  uLong crc = before;
  while (!bytes.empty()) {
    const std::string_view block = bytes.substr(0, 1u << 30);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(block.data()), static_cast<uInt>(block.size()));
    bytes.remove_prefix(block.size());
  }
  return static_cast<std::uint32_t>(crc);
}

#ifdef __x86_64__

// Bytes are a polynomial over bits, and their checksum is its remainder by another one, P. "Fast
// CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): 16 bytes that
// n bits follow may be replaced by the product of their halves and the remainders of x^(n+64) and
// x^n, added to what follows. The remainders below are of its appendix, for reflected bits.
#define EPWEAVE_FOLDING __attribute__((target("pclmul,sse4.1")))

constexpr std::size_t kLane = 16, kLanes = 4;

EPWEAVE_FOLDING __m128i load(const char* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

EPWEAVE_FOLDING __m128i fold(__m128i lane, __m128i remainders, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(lane, remainders, 0x00);
  const __m128i high = _mm_clmulepi64_si128(lane, remainders, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// The remainder of 16 bytes by P.
EPWEAVE_FOLDING std::uint32_t reduce(__m128i lane, __m128i by_lane) {
  const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
  const __m128i by_word = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i quotient = _mm_set_epi64x(0x01f7011641, 0x01db710641);  // P, and 1 / P
  __m128i rest = _mm_xor_si128(_mm_srli_si128(lane, 8), _mm_clmulepi64_si128(lane, by_lane, 0x10));
  rest = _mm_xor_si128(_mm_srli_si128(rest, 4),
                       _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), by_word, 0x00));
  __m128i product = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), quotient, 0x10);
  product = _mm_clmulepi64_si128(_mm_and_si128(product, low_words), quotient, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(rest, product), 1));
}

// Of at least kLanes lanes, and of whole ones.
EPWEAVE_FOLDING std::uint32_t crc32_by_folding(std::string_view bytes, std::uint32_t before) {
  const __m128i by_lanes = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_lane = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  __m128i lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = load(at + i * kLane);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(~before)));
  for (at += kLanes * kLane; static_cast<std::size_t>(end - at) >= kLanes * kLane; at += kLanes * kLane)
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = fold(lanes[i], by_lanes, load(at + i * kLane));
  __m128i all = lanes[0];
  for (std::size_t i = 1; i < kLanes; ++i) all = fold(all, by_lane, lanes[i]);
  for (; at != end; at += kLane) all = fold(all, by_lane, load(at));
  return ~reduce(all, by_lane);
}

bool can_fold() {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

#endif

}  // namespace

std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before) {
#ifdef __x86_64__
  if (bytes.size() >= kLanes * kLane && can_fold()) {
    const std::size_t whole = bytes.size() / kLane * kLane;
    before = crc32_by_folding(bytes.substr(0, whole), before);
    bytes.remove_prefix(whole);
  }
#endif
  return crc32_by_zlib(bytes, before);
}

}  // namespace epweave
