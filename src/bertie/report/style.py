"""The style sheet of every page, light or dark as set in the reader's system."""

# Text passes WCAG AA (4.5:1) on every ground, in both schemes; a test reads this sheet and computes it. What is drawn,
# the series, keeps apart for the colour-blind (after Okabe and Ito 2008). A tinted ground carries --ink only.
STYLE = """
:root {
  color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans KR", "Apple SD Gothic Neo", sans-serif;
  --ground: #f6f7f9; --card: #ffffff; --ink: #18202c; --soft: #566072; --grid: #e1e5eb;
  --good: #0a7048; --bad: #a94a09; --link: #1f5fd6;
  --alarm: #b3261e; --on-alarm: #ffffff;
  --series-1: #1f5fd6; --series-2: #d2691e; --series-3: #0a8f6a; --series-4: #a0449b; --series-5: #6b7688;
  --series-6: #b8900b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #11151b; --card: #191f28; --ink: #e8ecf2; --soft: #9aa6b8; --grid: #2c3542;
    --good: #4cc79a; --bad: #f2a154; --link: #74a5ff;
    --alarm: #8c1d18; --on-alarm: #ffffff;
    --series-1: #74a5ff; --series-2: #f2a154; --series-3: #45c79c; --series-4: #d98ad4; --series-5: #9aa6b8;
    --series-6: #e0bd4b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.55 var(--font); }
header, main, footer { max-width: 1080px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 44px; padding-bottom: 8px; }
footer { padding-top: 6px; padding-bottom: 40px; color: var(--soft); font-size: 0.88rem; }
footer p { margin: 3px 0; }
h1 { font-size: 2.1rem; line-height: 1.15; margin: 0 0 6px; letter-spacing: -0.02em; overflow-wrap: anywhere; }
header p { color: var(--soft); margin: 0 0 18px; font-size: 1.05rem; max-width: 62em; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 0 0 6px; letter-spacing: -0.01em; }
h3 { font-size: 1rem; margin: 16px 0 2px; }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 14px;
  padding: 22px 24px; margin: 20px 0; }
section > p { max-width: 68em; margin: 0 0 14px; color: var(--soft); overflow-wrap: anywhere; }
a { color: var(--link); }
code { font: 0.92em/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
ul { margin: 4px 0; padding-left: 1.2em; } li { margin: 3px 0; overflow-wrap: anywhere; }
.banner { background: var(--alarm); color: var(--on-alarm); border-radius: 14px; padding: 14px 18px; margin: 14px 0; }
.banner p { margin: 0; } .banner p + p { margin-top: 6px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; margin: 14px 0; }
.tile { background: var(--card); border: 1px solid var(--grid); border-radius: 14px; padding: 14px 16px;
  min-width: 0; overflow-wrap: anywhere; }
.tile .label, .tile .note { color: var(--soft); font-size: 0.86rem; }
.tile .value { font-size: 1.75rem; font-weight: 650; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 18px; }
figure { margin: 10px 0; min-width: 0; }
figure > svg { width: 100%; min-width: 320px; max-width: 500px; height: auto; display: block; }
.charts figure { overflow-x: auto; }
figcaption { color: var(--soft); font-size: 0.88rem; margin-top: 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: 50%; font-size: 0.93rem; }
th { text-align: left; color: var(--soft); font-weight: 550; vertical-align: bottom; }
th, td { padding: 7px 18px 7px 0; border-bottom: 1px solid var(--grid); }
td { vertical-align: top; }
th.number, td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.heat { min-width: 0; } .heat th { font-weight: 550; max-width: 14em; overflow-wrap: anywhere; }
.heat tbody th { min-width: 4.5em; }
.heat thead th + th { text-align: right; padding: 7px 12px; }
.heat td { text-align: right; padding: 7px 12px; min-width: 3.2em; font-variant-numeric: tabular-nums; }
.heat td.hit { color: var(--ink); background: color-mix(in srgb, var(--series-1) var(--share), transparent); }
.heat td.miss { color: var(--ink); background: color-mix(in srgb, var(--series-2) var(--share), transparent); }
.heat td.none, .heat td.sum { color: var(--soft); }
.cells { --side: 15px; display: grid; grid-template: max-content max-content / max-content max-content;
  width: max-content; font: 11px/var(--side) var(--font); }
.cells img { width: calc(var(--cells) * var(--side)); height: calc(var(--cells) * var(--side)); }
.cells .above { display: flex; align-items: end; }
.cells .above span { writing-mode: vertical-rl; transform: rotate(180deg); width: var(--side); }
.cells .beside span { display: block; height: var(--side); padding-right: 6px; text-align: right; }
.cells span { white-space: pre; }
.cells img, .small img { image-rendering: pixelated; border: 1px solid var(--grid); display: block; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 4px 14px; }
.small figure { margin: 6px 0; } .small img { width: 100%; height: auto; }
summary { cursor: pointer; margin: 6px 0; }
.weak { color: var(--bad); font-weight: 600; }
.interval { position: relative; width: 180px; height: 1.3em; }
.interval * { position: absolute; top: 0.2em; height: 0.9em; }
.interval i { background: color-mix(in srgb, var(--series-1) 28%, transparent); border-radius: 4px; }
.interval b { width: 3px; margin-left: -1px; background: var(--series-1); }
.interval u { width: 0; top: 0; height: 1.3em; border-left: 1px dashed var(--soft); }
.interval s { width: 1px; top: 0; height: 1.3em; background: var(--grid); }
.ticks { display: flex; justify-content: space-between; width: 180px; font-weight: 400; font-size: 0.82rem; }
mark { color: inherit; background: none; }
mark.given { color: var(--ink); background: color-mix(in srgb, var(--series-2) 24%, transparent); border-radius: 3px; }
mark.true { border-bottom: 2px solid var(--good); } mark + small { color: var(--bad); margin-left: 3px; }
mark.asked { font-weight: 650; } mark.asked + small { color: var(--soft); }
mark.random { border-bottom: 2px dotted var(--series-5); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 8px 0; font-size: 0.93rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.example { border-top: 1px solid var(--grid); padding: 14px 0 6px; display: grid; gap: 4px 26px;
  grid-template-columns: minmax(0, 3fr) minmax(240px, 2fr); }
.example p { margin: 0 0 5px; overflow-wrap: anywhere; white-space: pre-line; }
.example .meta { color: var(--soft); font-size: 0.86rem; }
.prob { display: grid; grid-template-columns: minmax(7em, 2fr) 3fr max-content; gap: 8px;
  align-items: center; font-size: 0.86rem; }
.prob span { overflow-wrap: anywhere; } .prob span:last-child { text-align: right; min-width: 3.2em; }
.prob .track { background: var(--grid); border-radius: 4px; height: 9px; overflow: hidden; }
.prob .fill { background: var(--series-5); height: 100%; } .prob.top .fill { background: var(--series-1); }
.prob.true { font-weight: 650; } .right { color: var(--good); font-weight: 600; } .wrong { color: var(--bad); }
.masked td:first-child { min-width: 230px; }
.blank { border-bottom: 2px solid var(--series-1); display: inline-block; width: 2.6em; }
.guess { display: inline-block; white-space: nowrap; border-radius: 6px; padding: 1px 7px; margin: 1px 0;
  color: var(--ink); background: color-mix(in srgb, var(--series-5) 14%, transparent); }
.guess.hit { color: var(--ink); background: color-mix(in srgb, var(--series-3) 24%, transparent); font-weight: 600; }
.guess small { font-weight: 400; }
@media (max-width: 700px) {
  header, main, footer { padding-left: 12px; padding-right: 12px; }
  header { padding-top: 24px; }
  h1 { font-size: 1.6rem; }
  section { padding: 16px 14px; margin: 14px 0; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 8px; }
  .tile { padding: 10px 12px; } .tile .value { font-size: 1.45rem; }
  .example { grid-template-columns: minmax(0, 1fr); }
  dl { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); column-gap: 12px; } dt { overflow-wrap: anywhere; }
  table { min-width: 100%; }
  .stack thead { display: none; }
  .stack tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--grid); }
  .stack td, .stack td.number { display: flex; justify-content: space-between; gap: 16px; padding: 2px 0; border: 0;
    text-align: right; white-space: normal; overflow-wrap: anywhere; }
  .stack td::before { content: attr(data-label); color: var(--soft); text-align: left; flex: none; }
  .stack td:empty { display: none; }
}
"""
