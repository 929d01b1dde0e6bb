#include "failure.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

namespace epweave::cli {

Failure describe(const std::exception_ptr& error, const std::string& subject) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& e) {
    return {kUsage, "usage", e.what()};
  } catch (const InputError& e) {
    return {kInvalidInput, "invalid-input", e.what()};
  } catch (const PassError& e) {
    Json details = {{"id", e.id()}, {"problem", e.problem()}};
    add_site(details, e.site());
    details["remedy"] = text_or_null(e.remedy());
    const ExitCode code = e.id() == "replay.no-device" ? kNoDevice : kDeclined;
    return {code, code == kNoDevice ? "no-device" : "declined",
            (subject.empty() ? "" : subject + ": ") + e.what(), std::move(details)};
  } catch (const std::bad_alloc&) {
    return {kInternal, "internal", "out of memory"};
  } catch (const std::exception& e) {
    return {kInternal, "internal", fmt::format("internal error: {}", e.what())};
  }
}

int fail(const Failure& failure, Console& console) {
  console.error(failure.message);
  if (console.json()) {
    Json error = {{"kind", failure.kind}, {"exit_code", failure.code}, {"message", failure.message}};
    error.update(failure.details);
    console.print(report_text({{"error", std::move(error)}}));
  }
  return failure.code;
}

bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i)
    if (std::strcmp(argv[i], "--json") == 0) return true;
  return false;
}

}  // namespace epweave::cli
