/** The page's document and styles. `page/main.ts` creates everything else. */

/** The document with these modules, which the browser requests at once rather than as one imports another. */
export const htmlOf = (modules: readonly string[]): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Colonnade: runs</title>
<link rel="icon" href="icon.svg">
<link rel="stylesheet" href="page.css">
${modules.map((name) => `<link rel="modulepreload" href="${name}.js">`).join('\n')}
<script type="module" src="main.js"></script>
</head>
<body>
<noscript>This page needs JavaScript: its scripts come from this server alone.</noscript>
</body>
</html>
`

export const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<path fill="#2f7fb8" d="M1 1h14v2H1zM1 13h14v2H1zM2.5 4h2v8h-2zM7 4h2v8H7zM11.5 4h2v8h-2z"/></svg>
`

/** Colors with a text contrast of at least 4.5 to 1, for light and dark mode. */
export const styles = `
:root {
  --ground: #ffffff; --raised: #f4f5f7; --line: #d4d7dd; --ink: #1c2026; --quiet: #596170; --accent: #1f5f99;
  --grid: #e6e8ec; color-scheme: light;
}
@media (prefers-color-scheme: dark) {
  :root:not([data-theme="light"]) {
    --ground: #14171c; --raised: #1d2128; --line: #39404b; --ink: #e8eaee; --quiet: #a3acba; --accent: #7ab8f0;
    --grid: #2a2f38; color-scheme: dark;
  }
}
:root[data-theme="dark"] {
  --ground: #14171c; --raised: #1d2128; --line: #39404b; --ink: #e8eaee; --quiet: #a3acba; --accent: #7ab8f0;
  --grid: #2a2f38; color-scheme: dark;
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
header { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center; padding: .6rem 1rem;
  border-bottom: 1px solid var(--line); position: sticky; top: 0; background: var(--ground); z-index: 2; }
h1 { font-size: 1.05rem; margin: 0; }
h2 { font-size: 1rem; margin: 1.4rem 0 .5rem; }
h3 { font-size: .85rem; margin: 0; font-weight: 600; overflow-wrap: anywhere; }
button, select, input { font: inherit; color: inherit; }
button, select { background: var(--raised); border: 1px solid var(--line); border-radius: .3rem; padding: .2rem .5rem; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
label { display: inline-flex; gap: .4rem; align-items: center; }
.quiet { color: var(--quiet); }
.runs th button.plain, .runs td button.plain { padding: 0 .15rem; }
button.plain { background: none; border: 0; font-weight: inherit; cursor: pointer; }
.scroll.runs { max-height: 19rem; overflow: auto; border: 1px solid var(--line); border-radius: .4rem; }
table.runs { width: 100%; white-space: nowrap; }
table.runs thead th { position: sticky; top: 0; background: var(--raised); z-index: 1; }
table.runs tbody th { font-weight: 500; }
table.runs th.inner { padding-left: 2.6rem; }
table.runs tr.quiet th, table.runs tr.quiet td { color: var(--quiet); }
table.runs .swatch { display: inline-block; margin: 0 .4rem; vertical-align: -.05rem; }
input[type="search"], input[list] { background: var(--ground); border: 1px solid var(--line); border-radius: .3rem; padding: .2rem .5rem; width: 17rem; max-width: 100%; }
.swatch { width: .8rem; height: .8rem; border-radius: 50%; flex: none; }
main { padding: .4rem 1rem 3rem; min-width: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: .8rem; }
.chart { border: 1px solid var(--line); border-radius: .4rem; padding: .5rem .6rem; min-width: 0; }
.chart canvas { display: block; width: 100%; height: 14rem; touch-action: pan-y; }
.plot { position: relative; overflow: hidden; }
.mark { position: absolute; transform: translate(-50%, -50%); width: 1.3rem; height: 1.3rem; padding: 0; border-radius: 50%;
  font-size: .7rem; line-height: 1; cursor: pointer; background: var(--ground); }
.histograms { display: flex; flex-wrap: wrap; gap: .8rem; }
.histograms figure { margin: 0; width: 15rem; border: 1px solid var(--line); border-radius: .4rem; padding: .5rem .6rem; }
.histograms svg { display: block; width: 100%; border-bottom: 1px solid var(--quiet); }
.histograms rect { fill: var(--accent); }
.chart .head { display: flex; justify-content: space-between; gap: .6rem; align-items: baseline; }
.chart .head select { font-size: .75rem; padding: 0 .2rem; border: 0; background: none; color: var(--quiet); }
.chart .legend { margin: .1rem 0 0; max-height: 6.4em; overflow: auto; }
.chart .legend > span { display: inline-flex; gap: .35rem; align-items: center; overflow-wrap: anywhere; }
.chart p { margin: 0; min-height: 1.4em; font-size: .8rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; width: max-content; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--grid); vertical-align: top; max-width: 22rem; overflow-wrap: break-word; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.phases { display: flex; height: 1.1rem; min-width: 16rem; border-radius: .2rem; overflow: hidden; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .8rem; margin: .4rem 0; }
.share { white-space: nowrap; display: flex; gap: .5rem; align-items: center; min-width: 14rem; }
.bar { height: .7rem; border-radius: .15rem; min-width: 1px; }
.parallel { width: 100%; max-width: 72rem; font-size: 11px; }
.parallel text { fill: var(--ink); paint-order: stroke; stroke: var(--ground); stroke-width: 3px; }
.parallel .name { font-weight: 600; }
.parallel .axis { stroke: var(--quiet); }
.parallel .way { fill: none; stroke-width: 1.5; opacity: .75; }
.parallel .way:hover { stroke-width: 4; opacity: 1; }
.note { border-left: 3px solid #b36b00; padding-left: .6rem; margin: .4rem 0; overflow-wrap: anywhere; }
dialog { background: var(--ground); color: var(--ink); border: 1px solid var(--line); border-radius: .4rem; max-width: 100%; }
dialog::backdrop { background: rgb(0 0 0 / .4); }
dialog h2 { margin: 0 0 .6rem; overflow-wrap: anywhere; }
label.above { display: block; margin-bottom: .6rem; }
label.above > * { display: block; max-width: 100%; }
textarea, dialog input { font: inherit; color: inherit; background: var(--ground); border: 1px solid var(--line); border-radius: .3rem; }
details { scroll-margin-top: 3rem; }
details > summary { cursor: pointer; font-weight: 600; margin: 1.2rem 0 .6rem; }
.group { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: .8rem; align-items: start; }
.conversation { border: 1px solid var(--line); border-radius: .4rem; padding: .5rem .6rem; min-width: 0; }
.conversation p { margin: .2rem 0; }
.conversation details > summary { margin: .2rem 0; font-weight: 400; color: var(--quiet); }
.turn { font-size: .8rem; }
.tokens { white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.6 ui-monospace, monospace; border-left: 3px solid var(--line); padding-left: .5rem; }
.tokens.model { border-left-color: var(--accent); }
.tokens span { unicode-bidi: isolate; }
.call { border: 1px dashed var(--accent); border-radius: .2rem; padding: 0 .2rem; }
.call b { font: 600 .75rem system-ui, sans-serif; color: var(--accent); margin-right: .4rem; }
.replay { max-width: 100%; min-width: min(16rem, 100%); image-rendering: pixelated; border: 1px solid var(--line); }
@media (max-width: 76rem) { header { position: static; } }
`
