"""Style and script of the page of leaks."""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --paper: #f5f6f8;
  --card: #fff; --line: #d5dae1; --bad: #b3261e; --good: #2f6b3a; --mark: #fff1c9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e9ef; --dim: #9aa5b4;
  --paper: #14181e; --card: #1d232b; --line: #36404c; --bad: #ff8a80; --good: #8fd19e;
  --mark: #4a3d12; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
header, main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { margin: 0; font-size: 1.5rem; }
header p { margin: .2rem 0 1rem; color: var(--dim); }
form { display: flex; flex-wrap: wrap; gap: .8rem; align-items: end; }
label { flex: 1 1 14rem; font-size: .85rem; color: var(--dim); }
input { display: block; width: 100%; padding: .5rem; font: inherit; color: var(--ink);
  background: var(--card); border: 1px solid var(--line); border-radius: 6px; }
output { font-size: .85rem; color: var(--dim); padding-bottom: .6rem; }
article { background: var(--card); border: 1px solid var(--line);
  border-left: 5px solid var(--bad); border-radius: 8px; padding: 1rem; margin: 0 0 1rem; }
article.accepted { border-left-color: var(--good); }
article[hidden] { display: none; }
h2 { margin: 0; font: 600 1.1rem/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.what { margin: .2rem 0 .8rem; color: var(--dim); overflow-wrap: anywhere; }
.badge { color: var(--bad); border: 1px solid; border-radius: 9px; padding: 0 .5rem;
  font-size: .8rem; }
.accepted .badge { color: var(--good); }
.chain { list-style: none; margin: 0 0 1rem; padding: 0; }
.chain li { position: relative; padding: 0 0 .9rem 1.6rem; }
.chain li::before { content: ""; position: absolute; left: .35rem; top: .55rem; width: .7rem;
  height: .7rem; border-radius: 50%; border: 2px solid var(--dim); background: var(--card);
  z-index: 1; }
.chain li::after { content: ""; position: absolute; left: .66rem; top: .9rem; bottom: -.6rem;
  border-left: 2px solid var(--line); }
.chain li:last-child { padding-bottom: 0; }
.chain li:last-child::after { display: none; }
.chain span { font-family: ui-monospace, monospace; font-size: .9rem; overflow-wrap: anywhere; }
.chain .root::before { border-color: var(--ink); background: var(--ink); }
.chain .holder::before { border-color: var(--bad); background: var(--bad); }
.chain .holder span { color: var(--bad); font-weight: 600; }
.chain .value span { border: 1px solid var(--line); border-radius: 5px; padding: .1rem .4rem; }
.chain i { color: var(--dim); font-style: normal; }
figure { margin: 0 0 .8rem; }
figcaption { font-size: .85rem; color: var(--dim); overflow-wrap: anywhere; }
pre { margin: .2rem 0 0; padding: .4rem 0; overflow-x: auto; border: 1px solid var(--line);
  border-radius: 6px; font: .85rem/1.5 ui-monospace, monospace; }
pre code { display: block; padding: 0 .6rem; white-space: pre; font: inherit; width: max-content;
  min-width: 100%; }
pre i { display: inline-block; width: 3rem; color: var(--dim); font-style: normal; }
pre .hit { background: var(--mark); }
.mend { margin: 0 0 .6rem; overflow-wrap: anywhere; }
details ul { margin: .4rem 0 0; padding-left: 1.2rem; font: .85rem ui-monospace, monospace;
  overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--dim); }
"""

SCRIPT = """
const inputs = ["holder", "test"].map(name => document.getElementById(name));
const cards = [...document.querySelectorAll("article")];
function filter() {
  const [holder, test] = inputs.map(input => input.value.trim().toLowerCase());
  let shown = 0;
  for (const card of cards) {
    const fits = card.dataset.holder.toLowerCase().includes(holder)
      && card.dataset.tests.toLowerCase().includes(test);
    card.hidden = !fits;
    shown += fits;
  }
  document.getElementById("shown").textContent = shown + " of " + cards.length;
  document.getElementById("nothing").hidden = shown > 0 || cards.length === 0;
  const wanted = new URLSearchParams();
  if (holder) wanted.set("holder", inputs[0].value);
  if (test) wanted.set("test", inputs[1].value);
  history.replaceState(null, "", "#" + wanted);
}
if (inputs[0]) {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const input of inputs) {
    input.value = given.get(input.id) || "";
    input.addEventListener("input", filter);
  }
  document.getElementById("filters").addEventListener("submit", event => event.preventDefault());
  filter();
}
"""
