// A difference as one HTML file that needs nothing else: no network, no other file.
//
// The page shows the two graphs side by side, each in its own execution order, in sections by
// module that fold; a list of modules with what changed in each; a search; and, for the selected
// node, what became of it with links to its parts or to the node that it is a part of. Page and
// script are compare/diff/diff_page.html; this function adds the graphs as JSON. The script draws
// only the lines in view, so that graphs of 100,000 nodes open at once.
#pragma once

#include <string>

#include "compare/diff/diff_text.h"

namespace epweave {

std::string print_diff_html(const DiffSides& sides, const GraphDiff& diff);

}  // namespace epweave
