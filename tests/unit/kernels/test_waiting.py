"""Signs for workers that wait while others boot or measure."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pytest_fsstack.kernels.controller import _Channel, keep_awake
from pytest_fsstack.machine import commands


class Worker:
    """A worker with a channel of execnet. `answer` sends a message of the worker."""

    answer: Callable[[bytes], None]

    def __init__(self) -> None:
        self.messages: list[bytes | None] = []
        self.shutting_down = False

    def setcallback(self, callback: Callable[[bytes], None]) -> None:
        self.answer = callback

    def send(self, message: bytes | None) -> None:
        self.messages.append(message)


def test_only_workers_that_wait_get_signs() -> None:
    collects, measures, ends, waits = workers = [Worker() for _ in range(4)]
    channels = {worker: _Channel(worker) for worker in workers}
    for worker in measures, ends, waits:
        worker.answer(b"collected")
    ends.shutting_down = True
    channels[measures].send(b"turn")
    ended = threading.Event()
    thread = threading.Thread(target=keep_awake, args=(channels, 0.01, ended))
    thread.start()
    try:
        assert commands.wait_until(lambda: len(waits.messages) > 2, 60)
        assert (collects.messages, measures.messages, ends.messages) == ([], [b"turn"], [])
        measures.answer(b"measured")
        assert commands.wait_until(lambda: measures.messages[-1] is None, 60)
    finally:
        ended.set()
        thread.join()
    assert {*waits.messages} == {None}
