// What the loader looks for in a CUDA part (device_api.h), of another build: it is refused before
// its device is opened.
#include <cstdlib>

extern "C" {
__attribute__((visibility("default"))) void* epweave_open_device() {
  std::abort();
}
#ifdef EPWEAVE_NAMES_ITS_BUILD
__attribute__((visibility("default"))) const char* epweave_device_build() {
  return "0123456789abcdef";
}
#endif
}
