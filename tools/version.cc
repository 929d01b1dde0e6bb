#include "version.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <openssl/crypto.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

namespace epweave::cli {

std::string tool_name() {
  return "epweave " EPWEAVE_VERSION;
}

std::string version_text() {
  return fmt::format(
      "{} (graph format 1; protobuf {}, fmt {}.{}.{}, zlib {}, OpenSSL {}, nlohmann-json {}.{}.{})",
      tool_name(), google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION), FMT_VERSION / 10000,
      FMT_VERSION / 100 % 100, FMT_VERSION % 100, zlibVersion(), OpenSSL_version(OPENSSL_VERSION_STRING),
      NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace epweave::cli
