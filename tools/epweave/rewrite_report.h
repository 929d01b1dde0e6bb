// What a rewrite did, for people: `epweave report A B`. docs/ci.md shows it.
#pragma once

#include <string>

#include "common/report.h"
#include "cost/cluster.h"
#include "ir/graph.h"

namespace epweave::cli {

struct RewriteSides {
  const Graph& a;
  const Graph& b;
  std::string name_a, name_b;  // files, - for standard input
};

// All that the page says; times in milliseconds. docs/command_line.md has the keys. The graphs
// share a context.
Json rewrite_page(const RewriteSides& sides, const Cluster& cluster);

// A page of HTML that needs nothing else, and Markdown, of what rewrite_page() gives.
std::string page_html(const Json& page);
std::string page_markdown(const Json& page);

}  // namespace epweave::cli
