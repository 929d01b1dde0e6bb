// The random numbers of std::random_device: libstdc++ asks glibc 2.36 for arc4random, and older ones have none.
#include <sys/random.h>

extern "C" unsigned arc4random() {
  unsigned value = 0;
  while (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
  }
  return value;
}
