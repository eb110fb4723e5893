// Self-contained HTML pages: a template of reports/page with its style, scripts, data and plotting library in one file
// that opens with no network.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace noisefloor {

// plotly.min.js, of PyPI's plotly package: $NOISEFLOOR_PLOTLY where that is set; else share/noisefloor/plotly.min.js or
// the package of a .venv, in the program's folder or one above it. Nothing where there is none. Throws
// std::runtime_error when $NOISEFLOOR_PLOTLY names a file that cannot be read or is another one.
std::optional<std::filesystem::path> find_plotly();

struct HtmlPage {
  std::string heading;               // the title is "noisefloor: <heading>"
  std::string body;                  // "report.html": what stands in page.html
  std::vector<std::string> scripts;  // in order; they share one scope
  nlohmann::json data;               // what the scripts read
};

// The page as text. Text in `data` may hold anything: none of it can end the script it stands in. Without `plotly` the
// page says how to get it where its plots would be, and everything else works.
std::string html_page(const HtmlPage& page, const std::optional<std::filesystem::path>& plotly);

// What to do where find_plotly() found nothing; for stderr and for the page.
std::string no_plotly_message();

// JSON that may stand in a script element: ASCII alone, no '<', '>' or '&'; bytes that are no UTF-8 become U+FFFD.
std::string script_safe_json(const nlohmann::json& json);

std::string escape_html(std::string_view text);

// The files of reports/page, held by the program: a page needs nothing beside it.
struct EmbeddedFile {
  std::string_view name;  // without its folder
  std::string_view text;
};

// Generated at build time (scripts/cmake/embed.cmake).
const std::vector<EmbeddedFile>& embedded_files();

}  // namespace noisefloor
