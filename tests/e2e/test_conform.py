"""A conformance tool by others, on our library."""

import json
import sys

from harness import run, salus_library


def test_pypjrt_conform(daemon, sandbox):
    report = sandbox.directory / "report.json"
    command = [sys.executable, "-m", "pypjrt.conform", salus_library(), "--json", report, "-v"]
    result = run(sandbox, command, sandbox.salus(daemon.socket)).ok()
    checks = json.loads(report.read_text())["checks"]
    by_result = {}
    for check in checks:
        by_result.setdefault(check["result"], []).append(check["id"])
    assert not by_result.get("fail"), result.text()
    assert len(by_result.get("pass", [])) >= 50, result.text()
