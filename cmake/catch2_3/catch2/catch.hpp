// The one header of Catch2 2, by those of Catch2 3 (Debian 13): what the tests use, under the names of version 2.
#pragma once

#include <catch2/catch_all.hpp>

using Catch::Approx;

namespace Catch {
inline auto Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }
inline auto StartsWith(const std::string& part) { return Matchers::StartsWith(part); }
}  // namespace Catch
