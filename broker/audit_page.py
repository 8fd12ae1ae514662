"""The fixed parts of the page that `audit report` writes: style, script, and what a browser may do with it.

Always true: nothing is loaded from anywhere; the page's own content security policy allows this style and
this script by their digests and nothing else, so that a command that looks like markup stays text even if
escaping it were forgotten.
"""

from base64 import b64encode
from hashlib import sha256

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1d2733; --soft: #5c6b7a; --line: #dde3ea;
  --ran: #2f7d5b; --refused: #b3362b; --broke: #b7791f; --accent: #2b5fab; }
@media (prefers-color-scheme: dark) { :root { --page: #12171d; --card: #1b222b; --ink: #e4e9ef; --soft: #93a1b0;
  --line: #2c3641; --ran: #4cab83; --refused: #e0685c; --broke: #dba143; --accent: #7fb0f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 16px; margin: 0 0 12px; }
p { margin: 0; overflow-wrap: anywhere; }
.soft { color: var(--soft); } .mono { font-family: ui-monospace, monospace; font-size: 13px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin-top: 18px; overflow-x: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; margin-top: 18px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 26px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 0 18px; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .name { fill: var(--ink); } svg .grid { stroke: var(--line); }
.ran { fill: var(--ran); color: var(--ran); } .refused { fill: var(--refused); color: var(--refused); }
.broke { fill: var(--broke); color: var(--broke); } .event { color: var(--accent); }
.cancelled { fill: var(--soft); color: var(--soft); } .asked { color: var(--ran); }
.key { display: flex; flex-wrap: wrap; gap: 0 18px; font-size: 13px; margin-bottom: 8px; }
.key span::before { content: "■ "; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; vertical-align: bottom; color: var(--soft); font-weight: 600; white-space: nowrap; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; width: 1%; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.when, td.code { width: 1%; }
td.when { white-space: nowrap; font-variant-numeric: tabular-nums; }
td.code { white-space: nowrap; font-weight: 600; }
td.text { overflow-wrap: anywhere; min-width: 14em; }
@media (max-width: 600px) { td.when, td.code { white-space: normal; overflow-wrap: anywhere; min-width: 6.5em; }
  td.code { font-size: 11px; min-width: 13.5em; } td.text { min-width: 8em; } }
.search { display: flex; flex-wrap: wrap; gap: 10px; align-items: center; margin-bottom: 12px; }
input, select { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: 6px; padding: 6px 10px; }
input { flex: 1 1 260px; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
[hidden] { display: none; }
"""

SCRIPT = """
const words = document.getElementById("words"), code = document.getElementById("code");
const shown = document.getElementById("shown");
const rows = Array.from(document.querySelectorAll("#records tbody tr"), row => [row, row.textContent.toLowerCase()]);
function search() {
  const wanted = words.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const [row, text] of rows) {
    const fits = (!code.value || row.dataset.code === code.value) && wanted.every(word => text.includes(word));
    row.hidden = !fits;
    count += fits;
  }
  shown.textContent = `${count} of ${rows.length} rows`;
}
words.addEventListener("input", search);
code.addEventListener("change", search);
search();
"""


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_source(STYLE)}",
        f"script-src {_source(SCRIPT)}",
        "base-uri 'none'",
        "form-action 'none'",
    )
)

HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="referrer" content="no-referrer">'
    f"<title>Audit report</title><style>{STYLE}</style></head><body><main>"
)
FOOT = f"</main><script>{SCRIPT}</script></body></html>\n"
"""What stands before and after the report. Style and script are written exactly as their digests were taken."""
