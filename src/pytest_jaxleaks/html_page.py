"""The leaks of a run as one self-contained page: no network, no other file."""

from __future__ import annotations

import linecache
from html import escape
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.html_style import SCRIPT, STYLE
from pytest_jaxleaks.keeping_line import keeping_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_jaxleaks.gathering import GatheredLeak

__all__ = ["html_page"]

_MOST_LEAKS = 500
_CONTEXT = 2
_LONGEST_LINE = 200


def html_page(found: Sequence[GatheredLeak], root: Path, *, left_out: int = 0) -> str:
    """Return the page.

    Args:
        found: what a run found, failing leaks first.
        root: folder that paths in ``found`` are relative to; source lines are read from there.
        left_out: how many leaks were not gathered.
    """
    shown = found[:_MOST_LEAKS]
    missing = len(found) - len(shown) + left_out
    cards = "".join(_card(each, root) for each in shown)
    more = f"<p class=more>{missing} more leaks are not shown.</p>" if missing else ""
    none = "" if found else "<p class=none>No tracer leak was found.</p>"
    return (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>Tracer leaks</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>Tracer leaks</h1><p>{_summary(found)}</p>{_filters(found)}</header>\n"
        f"<main>{none}{cards}<p class=none id=nothing hidden>No leak matches.</p>{more}</main>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _summary(found: Sequence[GatheredLeak]) -> str:
    holders = {each.leak["holder"] for each in found if not each.accepted}
    accepted = {each.leak["holder"] for each in found if each.accepted}
    tests = {test.nodeid for each in found for test in each.tests}
    parts = [_count(len(holders), "holder"), f"in {_count(len(tests), 'test')}"]
    if accepted:
        parts.append(f"({_count(len(accepted), 'accepted holder')} among them or besides)")
    return escape(" ".join(parts))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _filters(found: Sequence[GatheredLeak]) -> str:
    if not found:
        return ""
    holders = sorted({str(each.leak["holder"]) for each in found})
    options = "".join(f"<option value={_attribute(name)}>" for name in holders[:_MOST_LEAKS])
    return (
        "<form id=filters role=search>"
        "<label>Holder <input id=holder type=search list=holders autocomplete=off></label>"
        f"<datalist id=holders>{options}</datalist>"
        "<label>Test <input id=test type=search autocomplete=off></label>"
        "<output id=shown></output></form>"
    )


def _attribute(text: str) -> str:
    return f'"{escape(text)}"'


def _card(each: GatheredLeak, root: Path) -> str:
    leak = each.leak
    nodeids = list(dict.fromkeys(test.nodeid for test in each.tests))
    state = "accepted" if each.accepted else "failing"
    tests = "\n".join(nodeids)
    return (
        f"<article class={state} data-holder={_attribute(leak['holder'])} "
        f"data-tests={_attribute(tests)}>"
        f"<h2>{_breakable(leak['holder'])}</h2>"
        f"<p class=what><span class=badge>{state}</span> {escape(_what(leak))}</p>"
        f"{_chain(leak)}{_sources(leak, root)}"
        f"<p class=mend><b>Mend</b> {escape(leak['hint'])}</p>"
        f"{_tests(nodeids, each.count)}</article>\n"
    )


def _breakable(dotted: str) -> str:
    return escape(dotted).replace(".", ".<wbr>").replace("_", "_<wbr>")


def _what(leak: Mapping[str, Any]) -> str:
    text = f"{leak['value']} of {leak['transform']}"
    traced = leak.get("traced")
    if traced:
        text += f" of {traced['function']} ({traced['path']}:{traced['line']})"
    return text + (", a third party's code" if leak.get("owner") == "third-party" else "")


def _chain(leak: Mapping[str, Any]) -> str:
    labels = [str(label) for label in leak["chain"]]
    holder = _holder_position(labels, str(leak["holder"]))
    items = []
    for position, label in enumerate(labels):
        role = "holder" if position == holder else "root" if position == 0 else "link"
        items.append(f"<li class={role}><span>{_breakable(label)}</span></li>")
    value = f"<li class=value><span>{escape(leak['value'])} <i>{escape(leak['tracer'])}</i></span>"
    return f"<ol class=chain aria-label='from root to value'>{''.join(items)}{value}</li></ol>"


def _holder_position(labels: Sequence[str], holder: str) -> int:
    name = holder.rpartition(".")[2]
    named = [label.endswith(f".{name}") for label in labels]
    told = [f"'{name}'" in label or label.endswith(f" of {name}") for label in labels]
    for fits in (named, told):
        if any(fits):
            return max(position for position, fit in enumerate(fits) if fit)
    return 0


def _sources(leak: Mapping[str, Any], root: Path) -> str:
    kept = keeping_line(leak, root)
    created = leak.get("created")
    parts = []
    if kept is not None:
        parts.append(_source("kept at", kept.path, kept.line, root))
    if created and (kept is None or (created["path"], created["line"]) != tuple(kept)):
        parts.append(_source("made at", created["path"], created["line"], root))
    return "".join(parts)


def _source(title: str, path: str, line: int, root: Path) -> str:
    lines = "".join(
        f"<code class={'hit' if number == line else 'near'}><i>{number}</i>{escape(text)}</code>"
        for number, text in _lines_around(root / path, line)
    )
    place = f"{_breakable(path)}:{line}"
    return f"<figure><figcaption>{title} {place}</figcaption><pre>{lines}</pre></figure>"


def _lines_around(path: Path, line: int) -> Iterator[tuple[int, str]]:
    for number in range(max(1, line - _CONTEXT), line + _CONTEXT + 1):
        text = linecache.getline(str(path), number)
        if text:
            yield number, text.rstrip("\n")[:_LONGEST_LINE]


def _tests(nodeids: Sequence[str], count: int) -> str:
    items = "".join(f"<li>{_breakable(nodeid)}</li>" for nodeid in nodeids)
    more = f"<li>and {count - len(nodeids)} more</li>" if count > len(nodeids) else ""
    title = f"Seen in {_count(count, 'test')}"
    return f"<details><summary>{title}</summary><ul>{items}{more}</ul></details>"
