#include "report.h"

namespace epweave::cli {

std::string report_text(Json report) {
  Json document = {{"schema", kReportSchema}};
  for (auto& [key, value] : report.items()) document[key] = std::move(value);
  return indented_text(document);
}

std::string indented_text(const Json& report) {
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_line(const Json& report) {
  return report.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json file_report(std::string_view path) {
  return {{"file", path}};
}

Json text_or_null(std::string_view text) {
  return text.empty() ? Json() : Json(text);
}

void add_site(Json& report, const Site& site) {
  report["node"] = text_or_null(site.node);
  report["op"] = text_or_null(site.op);
  report["module"] = text_or_null(site.module);
  report["source"] = text_or_null(site.source);
}

}  // namespace epweave::cli
