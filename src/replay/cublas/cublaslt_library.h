// Loads cuBLASLt, where native math asks for it.
//
// The library is libcublasLt.so.13, else libcublasLt.so.12, where the loader finds it, or the file
// that EPWEAVE_CUBLASLT names. What of the environment changes its arithmetic is set to what does
// not, or is reported.
#pragma once

#include <string>
#include <vector>

#include "replay/cublas/cublaslt_api.h"

namespace epweave::replay::cublas {

struct Library {
  Api api{};
  std::size_t version = 0;                                       // loaded: 130100 is 13.1.0
  std::string path;                                              // of the file that was loaded
  std::vector<std::pair<std::string, std::string>> environment;  // variables that it may read
};

// Whose streams it is given: a library of the one kind is refused by a device of the other.
enum class Streams : bool { kCuda, kEmulated };

// Throws PassError (replay.no-cublaslt) saying what is missing.
Library load_library(Streams streams);

std::string version_text(std::size_t version);  // "13.1.0"

}  // namespace epweave::replay::cublas
