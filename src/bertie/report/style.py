"""How a report looks: one sheet for all pages, light or dark as the reader likes."""

# Colours: text on both grounds passes WCAG AA; the series keep apart for the colour-blind (after Okabe and Ito 2008).
STYLE = """
:root {
  color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans KR", "Apple SD Gothic Neo", sans-serif;
  --ground: #f6f7f9; --card: #ffffff; --ink: #18202c; --soft: #566072; --grid: #e1e5eb; --good: #0a7a55;
  --series-1: #1f5fd6; --series-2: #d2691e; --series-3: #0a8f6a; --series-4: #a0449b; --series-5: #6b7688;
  --series-6: #b8900b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #11151b; --card: #191f28; --ink: #e8ecf2; --soft: #9aa6b8; --grid: #2c3542; --good: #4cc79a;
    --series-1: #74a5ff; --series-2: #f2a154; --series-3: #45c79c; --series-4: #d98ad4; --series-5: #9aa6b8;
    --series-6: #e0bd4b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.55 var(--font); }
header, main { max-width: 1080px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 44px; padding-bottom: 8px; }
h1 { font-size: 2.1rem; line-height: 1.15; margin: 0 0 6px; letter-spacing: -0.02em; }
header p { color: var(--soft); margin: 0 0 18px; font-size: 1.05rem; max-width: 62em; }
h2 { font-size: 1.3rem; margin: 0 0 6px; letter-spacing: -0.01em; }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 14px;
  padding: 22px 24px; margin: 20px 0; }
section > p { max-width: 68em; margin: 0 0 14px; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; margin: 14px 0; }
.tile { background: var(--card); border: 1px solid var(--grid); border-radius: 14px; padding: 14px 16px; }
.tile .label, .tile .note { color: var(--soft); font-size: 0.86rem; }
.tile .value { font-size: 1.75rem; font-weight: 650; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 18px; }
figure { margin: 10px 0; min-width: 0; }
figure > svg { width: 100%; max-width: 700px; height: auto; display: block; }
figcaption { color: var(--soft); font-size: 0.88rem; margin-top: 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.93rem; }
th { text-align: left; color: var(--soft); font-weight: 550; }
th, td { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; text-align: left; white-space: nowrap; }
a { color: var(--series-1); }
ul { margin: 4px 0; padding-left: 1.2em; } li { margin: 3px 0; overflow-wrap: anywhere; }
.heat { width: auto; } .heat th { font-weight: 550; max-width: 14em; overflow-wrap: anywhere; vertical-align: bottom; }
.heat td { text-align: right; padding: 7px 12px; min-width: 3.2em; font-variant-numeric: tabular-nums; }
.heat td.hit { background: color-mix(in srgb, var(--series-1) var(--share), transparent); }
.heat td.miss { background: color-mix(in srgb, var(--series-2) var(--share), transparent); }
.heat td.none, .heat td.sum { color: var(--soft); } td .weak { color: var(--series-2); font-weight: 600; }
.interval { position: relative; width: 180px; height: 1.3em; }
.interval * { position: absolute; top: 0.2em; height: 0.9em; }
.interval i { background: color-mix(in srgb, var(--series-1) 28%, transparent); border-radius: 4px; }
.interval b { width: 3px; margin-left: -1px; background: var(--series-1); }
.interval u { width: 0; top: 0; height: 1.3em; border-left: 1px dashed var(--soft); }
mark { color: inherit; background: none; }
mark.given { background: color-mix(in srgb, var(--series-2) 24%, transparent); border-radius: 3px; }
mark.true { border-bottom: 2px solid var(--good); } mark + small { color: var(--series-2); margin-left: 3px; }
mark.asked { font-weight: 650; } mark.asked + small { color: var(--soft); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 8px 0; font-size: 0.93rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.example { border-top: 1px solid var(--grid); padding: 14px 0 6px; display: grid; gap: 4px 26px;
  grid-template-columns: minmax(0, 3fr) minmax(240px, 2fr); }
@media (max-width: 700px) { .example { grid-template-columns: 1fr; } dl { grid-template-columns: 1fr; } }
.example p { margin: 0 0 5px; overflow-wrap: anywhere; white-space: pre-line; }
.example .meta { color: var(--soft); font-size: 0.86rem; }
.prob { display: grid; grid-template-columns: minmax(7em, 2fr) 3fr 3em; gap: 8px;
  align-items: center; font-size: 0.86rem; }
.prob span { overflow-wrap: anywhere; }
.prob .track { background: var(--grid); border-radius: 4px; height: 9px; overflow: hidden; }
.prob .fill { background: var(--series-5); height: 100%; } .prob.top .fill { background: var(--series-1); }
.prob.true { font-weight: 650; } .right { color: var(--good); font-weight: 600; } .wrong { color: var(--series-2); }
.blank { border-bottom: 2px solid var(--series-1); display: inline-block; width: 2.6em; }
.guess { display: inline-block; white-space: nowrap; border-radius: 6px; padding: 1px 7px; margin: 1px 0;
  background: color-mix(in srgb, var(--series-5) 14%, transparent); }
.guess.hit { background: color-mix(in srgb, var(--series-3) 24%, transparent); font-weight: 600; }
.guess small { color: var(--soft); font-weight: 400; }
"""
