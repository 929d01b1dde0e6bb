#include "version.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <openssl/opensslv.h>
#include <zlib.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

namespace epweave::cli {

std::string tool_name() {
  return "epweave " EPWEAVE_VERSION;
}

std::string version_text(std::string_view program) {
  return fmt::format(
      "{} {} (graph format 1; protobuf {}, fmt {}.{}.{}, zlib {}, OpenSSL {}, nlohmann-json "
      "{}.{}.{}, "
      "CLI11 {})",
      program, EPWEAVE_VERSION, google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION),
      FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100, zlibVersion(), OPENSSL_VERSION_STR,
      NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH, CLI11_VERSION);
}

}  // namespace epweave::cli
