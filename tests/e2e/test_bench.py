"""`salus bench report` from results that are there: the page, the JSON and the figures."""

import json
from html.parser import HTMLParser

from harness import run


def part(name: str, verdict: str, reason: str) -> dict:
    claim = {
        "what": f"gain of {name}",
        "original": "3.19 x",
        "target": "at least 0.85",
        "measured": "0.91 <&>",
        "spread": "0.88 to 0.94",
        "rounds": 5,
        "verdict": verdict,
        "reason": reason,
    }
    plot = {
        "name": name,
        "title": "Times",
        "kind": "bars",
        "x": "",
        "y": "s",
        "log_x": False,
        "log_y": False,
        "groups": ["a"],
        "series": [{"name": "one", "points": [{"x": 0.0, "y": 1.0, "spread": [0.5, 1.5]}]}],
    }
    return {
        "salus": "0.1.0",
        "machine": {"date": "2026-11-18 05:00 UTC", "cpu": "a CPU", "cores": 2, "jax": "0.10.2"},
        "quick": False,
        "report": "salus bench report",
        "took_seconds": 61.0,
        "experiment": {
            "name": name,
            "title": f"Title of {name}",
            "command": f"salus bench {name} --rounds 5",
            "what": "Jobs & more",
            "claims": [claim],
            "tables": [{"title": "times", "columns": ["job", "time"], "rows": [["a<b", "1 s"]]}],
            "plots": [plot],
            "numbers": {"times_s": [1.0]},
        },
    }


class Page(HTMLParser):
    """What a page has, and whether its elements close."""

    VOID = {"meta", "br", "line", "rect", "path", "polyline", "circle"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.outside += [named[key] for key in ("src", "href") if key in named]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_report_is_made_from_what_is_there(sandbox, salus_bin):
    directory = sandbox.directory / "report"
    env = sandbox.environment()
    command = [salus_bin, "bench", "report", "--render", "--out", directory]

    nothing = run(sandbox, command, env)
    assert nothing.code == 2
    assert f"there are no results in `{directory}`" in nothing.stderr, nothing.text()
    assert "salus bench report --out" in nothing.stderr

    parts = directory / "parts"
    parts.mkdir(parents=True)
    met, missed = part("jct", "met", ""), part("sweep", "missed", "compilations are short")
    for one in (met, missed):
        (parts / f"{one['experiment']['name']}.json").write_text(json.dumps(one))
    shown = run(sandbox, command, env).ok().stdout
    assert "met        gain of jct: 0.91 <&>" in shown, shown
    assert "missed     gain of sweep" in shown

    html = (directory / "index.html").read_text()
    page = Page(html)
    assert page.open == []
    # It needs nothing else: no address but places in itself.
    assert [one for one in page.outside if not one.startswith("#")] == []
    assert "https://" not in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    for said in (
        "0.91 <&>",
        "3.19 x",
        "compilations are short",
        "salus bench sweep --rounds 5",
        "0.88 to 0.94",
        "a CPU",
    ):
        assert said in page.text, said
    assert html.count("<svg") >= 2 and "prefers-color-scheme" in html and "viewport" in html
    assert {path.name for path in (directory / "figures").iterdir()} == {"jct.svg", "sweep.svg"}
    report = json.loads((directory / "report.json").read_text())
    assert "jct" in json.dumps(report) and "pairs" in json.dumps(report)

    (parts / "sweep.json").write_text(json.dumps(missed)[:200])
    damaged = run(sandbox, command, env)
    assert damaged.code == 2
    assert "sweep.json` is damaged: " in damaged.stderr, damaged.text()
    assert "--again sweep" in damaged.stderr

    unknown = run(sandbox, [*command[:3], "--again", "swep"], env)
    assert unknown.code == 2
    assert "no experiment `swep`" in unknown.stderr and "sweep" in unknown.stderr
