// What a rewrite did, for people: `epweave report A B`. docs/ci.md shows it.
#pragma once

#include <optional>
#include <string>

#include "common/report.h"
#include "cost/cluster.h"
#include "cost/measured_costs.h"
#include "ir/graph.h"

namespace epweave::cli {

struct RewriteSides {
  const Graph& a;
  const Graph& b;
  std::string name_a, name_b;  // files, - for standard input
};

// What times are predicted by.
struct PagePrices {
  Cluster cluster;
  std::string planned_for;  // the cluster that passes chose for, where it is another; or empty
  std::optional<MeasuredCosts> costs;
  std::string costs_path;  // empty: none
};

// All that the page says; times in milliseconds. docs/command_line.md has the keys. The graphs
// share a context. Throws InputError where the costs price nothing of a graph.
Json rewrite_page(const RewriteSides& sides, const PagePrices& prices);

// "OUT: proved to compute what IN computes, under 2 assumptions", in a line.
std::string verdict_text(const Json& page);

// A page of HTML that needs nothing else, and Markdown, of what rewrite_page() gives.
std::string page_html(const Json& page);
std::string page_markdown(const Json& page);

}  // namespace epweave::cli
