#include "reports/page/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "reports/run/files.h"

namespace noisefloor {
namespace {

std::string_view embedded(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.name == name) return file.text;
  throw std::logic_error(fmt::format("reports/page has no {}", name));
}

// A library's text inside a script element: "</script" within one of its strings would end the element, and "<\/script"
// is the same string.
std::string script_safe(std::string text) {
  constexpr std::string_view kEnd = "</script";
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (auto at = text.begin();;) {
    at = std::search(at, text.end(), kEnd.begin(), kEnd.end(), same);
    if (at == text.end()) return text;
    at = text.insert(at + 1, '\\') + 1;
  }
}

// The palette, as CSS variables for light and dark; the scripts read the same file for the plots.
std::string css_variables(const nlohmann::json& style) {
  const auto block = [&](const char* theme) {
    std::string text = ":root {";
    for (const auto& [name, colour] : style.at("surface").at(theme).items())
      text += fmt::format(" --{}: {};", name, colour.get<std::string>());
    for (const auto& [name, kind] : style.at("kinds").items())
      text += fmt::format(" --kind-{}: {};", name, kind.at(theme).get<std::string>());
    return text + " }";
  };
  return block("light") + "\n@media (prefers-color-scheme: dark) { " + block("dark") + " }\n";
}

fs::path plotly_of_venv(const fs::path& venv) {
  std::error_code ignored;
  for (const auto& python : fs::directory_iterator(venv / "lib", ignored)) {
    const auto file = python.path() / "site-packages" / "plotly" / "package_data" / "plotly.min.js";
    if (fs::is_regular_file(file, ignored)) return file;
  }
  return {};
}

}  // namespace

std::optional<fs::path> find_plotly() {
  if (const char* named = std::getenv("NOISEFLOOR_PLOTLY"); named != nullptr && *named != '\0') {
    // The banner of every release names the library within its first lines.
    if (read_whole_file(named).substr(0, 400).find("plotly.js v") == std::string::npos)
      throw failure("NOISEFLOOR_PLOTLY: {} is not plotly.min.js", named);
    return named;
  }
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  for (auto folder = program.parent_path(); !error; folder = folder.parent_path()) {
    std::error_code ignored;
    const auto packed = folder / "share" / "noisefloor" / "plotly.min.js";
    if (fs::is_regular_file(packed, ignored)) return packed;
    if (const auto file = plotly_of_venv(folder / ".venv"); !file.empty()) return file;
    if (folder == folder.root_path()) break;
  }
  return std::nullopt;
}

std::string no_plotly_message() {
  return "the plotting library plotly.min.js was not found, so that the page has no plots: run scripts/setup, or set "
         "NOISEFLOOR_PLOTLY to the file of that name in PyPI's plotly package, and write the page again";
}

std::string script_safe_json(const nlohmann::json& json) {
  const std::string text = json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      safe += c;
  }
  return safe;
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += c;
  }
  return escaped;
}

std::string html_page(const HtmlPage& page, const std::optional<fs::path>& plotly) {
  const auto style = nlohmann::json::parse(embedded("style.json"));
  nlohmann::json data = page.data;
  data["style"] = style;
  if (!plotly) data["no_plotly"] = no_plotly_message();
  std::string script = "(() => {\n\"use strict\";\n";
  for (const std::string& name : page.scripts) script += std::string(embedded(name)) + "\n";
  script += "})();";
  const std::map<std::string_view, std::string> values = {
      {"title", escape_html("noisefloor: " + page.heading)},
      {"heading", escape_html(page.heading)},
      {"body", std::string(embedded(page.body))},
      {"style", css_variables(style) + std::string(embedded("page.css"))},
      {"data", script_safe_json(data)},
      {"plotly", plotly ? script_safe(read_whole_file(*plotly)) : ""},
      {"script", script_safe(script)},
  };

  // Filled from left to right; what was put in is never looked at again.
  const std::string_view text = embedded("page.html");
  std::string filled;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find("{{", at);
    filled += text.substr(at, open == std::string_view::npos ? open : open - at);
    if (open == std::string_view::npos) break;
    const std::size_t close = text.find("}}", open);
    filled += values.at(text.substr(open + 2, close - open - 2));
    at = close + 2;
  }
  return filled;
}

}  // namespace noisefloor
