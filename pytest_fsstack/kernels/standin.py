"""The worker that replaces a guest that did not boot or went down."""

from __future__ import annotations

import pytest

from pytest_fsstack.rounds.protocol import Phase, Protocol, succeed


class StandIn:
    """The pytest plugin of a worker without its kernel: each test fails with the reason."""

    def __init__(self, config: pytest.Config, reason: str) -> None:
        self.reason = reason
        self.protocol = Protocol(config, lambda item: None)
        config.pluginmanager.register(self.protocol, "fsstack-protocol")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        def fail() -> None:
            pytest.fail(self.reason, pytrace=False)

        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self.protocol.report(item, [Phase("setup", fail), Phase("teardown", succeed)]):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True
